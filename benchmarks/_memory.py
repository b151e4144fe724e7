"""The memory of processes, as the system counts it."""

from __future__ import annotations

from pathlib import Path


def resident_mb(pid: int) -> float:
    """All memory that is in use, shared pages included."""
    return _status(pid, "VmRSS")


def private_mb(pid: int) -> float:
    """Memory that no other process shares."""
    return _status(pid, "RssAnon")


def _status(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) / 1024
    raise LookupError(name)

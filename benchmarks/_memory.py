"""Memory of processes as reported by the kernel."""

from __future__ import annotations

from pathlib import Path


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, including shared pages."""
    return _status(pid, "VmRSS")


def private_mb(pid: int) -> float:
    """Return the memory of a process that it does not share with others."""
    return _status(pid, "RssAnon")


def _status(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) / 1024
    raise LookupError(name)

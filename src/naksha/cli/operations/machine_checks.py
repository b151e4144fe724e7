"""Checks of the machine for `naksha doctor`: extras, Java, limits, memory and disks."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from naksha.model.errors import NotSupported
from naksha.spi.diagnosis import DiagnosisResult, failed, ok, warning
from naksha.spi.extras import EXTRAS

_JAVA_MIN: Final = 17
_FILES_MIN: Final = 4_096
_MEMORY_MIN: Final = 1 << 30
_DISK_FREE_MIN: Final = 5 << 30
_DISK_SHARE_MIN: Final = 0.1
_GIB: Final = 1 << 30
_JAVA_SECONDS_MAX: Final = 20
_VERSION: Final = re.compile(r'version "(\d+)')


def check_machine() -> list[DiagnosisResult]:
    """Check the machine without its disks."""
    return [_check_java(), _check_open_files(), _check_memory()]


def _check_java() -> DiagnosisResult:
    """Check that jobs can run: Spark needs Java."""
    if any(importlib.util.find_spec(module) is None for module in EXTRAS["spark"]):
        return warning(
            "Spark", "Spark is not installed, so jobs cannot run", "pip install 'naksha[spark]'"
        )
    fix = f"apt install openjdk-{_JAVA_MIN}-jre-headless"
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return failed("Java", NotSupported("Java is not installed, so jobs cannot run"), fix)
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed("Java", NotSupported(f"Java cannot be started: {error}"), fix)
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None or int(found[1]) < _JAVA_MIN:
        version = found[1] if found else "an unknown version"
        too_old = NotSupported(f"Java {version} is too old for Spark, which needs {_JAVA_MIN}")
        return failed("Java", too_old, fix)
    return ok("Java", f"Java {found[1]}")


def _check_open_files() -> DiagnosisResult:
    """Check the limit of open files, of which a hub needs one per connection and storage file."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit >= _FILES_MIN or limit == resource.RLIM_INFINITY:
        return ok("open files", f"a process may open {limit:,} files")
    wanted = _FILES_MIN if hard == resource.RLIM_INFINITY else min(_FILES_MIN, hard)
    return warning(
        "open files",
        f"A process may open {limit:,} files; a hub with many storages or clients needs more",
        f"ulimit -n {wanted}   # or LimitNOFILE={_FILES_MIN} in the unit of systemd",
    )


def _check_memory() -> DiagnosisResult:
    """Check the available memory."""
    available = _available_memory()
    if available is None or available >= _MEMORY_MIN:
        text = "unknown" if available is None else f"{available / _GIB:,.1f} GiB available"
        return ok("memory", text)
    return warning(
        "memory",
        f"{available / _GIB:.2f} GiB of memory are available",
        "ps aux --sort=-rss | head   # shows what uses it",
    )


def check_disks(directories: Iterable[Path]) -> list[DiagnosisResult]:
    """Check the free space of the disks of directories; one that is missing counts as its parent.

    A disk is checked once.
    """
    found, seen = [], set()
    for directory in directories:
        place = next(path for path in (directory, *directory.parents) if path.exists())
        device = device_of(place)
        if device in seen:
            continue
        seen.add(device)
        usage = shutil.disk_usage(place)
        text = f"{usage.free / _GIB:,.1f} of {usage.total / _GIB:,.1f} GiB are free at {place}"
        if usage.free < _DISK_FREE_MIN and usage.free < usage.total * _DISK_SHARE_MIN:
            found.append(
                warning("disk", text, f"du -xh {place} | sort -h | tail   # shows what uses it")
            )
        else:
            found.append(ok("disk", text))
    return found


def device_of(path: Path) -> int:
    """Return the number of the disk of an existing file."""
    return path.stat().st_dev


def _available_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024

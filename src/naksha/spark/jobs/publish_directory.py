"""Atomic publication of output directories: written next to the target, then renamed.

A job whose process has died may be run again. If it had published its directory, that is the
result: the directory contains the id of its job. If not, its work directory is removed by the next
job with the same target; a lock that is released when a process ends tells whether it is still in
use. Replacing a directory takes two renames. If a process dies between them, the next job restores
the old directory.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeVar

import msgspec

from naksha.model.errors import Conflict, InvalidArgument, Unavailable

REPORT: Final = "_report.json"
"""Report of the job that wrote a directory, and the id of that job."""
MANIFEST: Final = "_manifest.json"
"""List of the files in the directory of an export."""
_LOCK: Final = ".lock"
_OLD: Final = ".old"
R = TypeVar("R", bound=msgspec.Struct)


class OutputFormat(StrEnum):
    """Format of output rows."""

    PARQUET = "parquet"
    """Geometries in WKB, and the rest of features as JSON."""
    LINES = "json-lines"
    """One object per row, with complete features as GeoJSON."""


class _JobFile(msgspec.Struct, rename="camel"):
    job_id: str = ""


def earlier_report(output: str, job_id: str, report: type[R]) -> R | None:
    """Return the report in an output directory if the same job has written it, else None."""
    if not output or not job_id:
        return None
    try:
        text = (Path(output).absolute() / REPORT).read_bytes()
        if msgspec.json.decode(text, type=_JobFile).job_id != job_id:
            return None
        return msgspec.json.decode(text, type=report)
    except (OSError, msgspec.DecodeError):
        return None


def write_report(work: Path, job_id: str, report: msgspec.Struct) -> None:
    """Write the report of a job to its output directory."""
    attributes = {**msgspec.to_builtins(report), "jobId": job_id}
    (work / REPORT).write_bytes(msgspec.json.encode(attributes))


def check_output(output: str, *, overwrite: bool) -> Path:
    """Check the path of a directory to write, which must not exist unless it is overwritten."""
    if not output:
        raise InvalidArgument(
            "The option output must not be empty; set it to the path of a directory", field="output"
        )
    target = Path(output).absolute()
    _sweep(target)
    _check_target(target, overwrite=overwrite)
    if not target.parent.is_dir():
        raise InvalidArgument(
            f"The parent directory {target.parent} of the output does not exist; create it",
            field="output",
        )
    return target


def _check_target(target: Path, *, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise Conflict(
            f"The output {target} already exists; use another output, or the option overwrite",
            field="output",
        )
    if target.exists() and not target.is_dir():
        raise Conflict(
            f"The output {target} is not a directory and cannot be overwritten", field="output"
        )


@contextmanager
def published(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Create a work directory, which becomes the target at the end of the block.

    If the block fails it is removed.
    """
    with _names(target) as names:
        try:
            names.work.mkdir()
            yield names.work
            _rename(names, target, overwrite=overwrite)
        finally:
            shutil.rmtree(names.work, ignore_errors=True)


def _rename(names: _OutputPaths, target: Path, *, overwrite: bool) -> None:
    if not target.exists():
        # This fails if another process has created the target in the meantime: a rename does not
        # replace a directory that is not empty.
        _move(names.work, target)
        return
    _check_target(target, overwrite=overwrite)
    target.rename(names.old)
    try:
        _move(names.work, target)
    except BaseException:
        names.old.rename(target)
        raise
    shutil.rmtree(names.old, ignore_errors=True)


def _move(work: Path, target: Path) -> None:
    try:
        work.rename(target)
    except OSError as error:
        raise Conflict(
            f"The output {target} was created by another process; use another output",
            field="output",
        ) from error


# ---- Leftovers of dead processes -----------------------------------------------------------------


class _OutputPaths(NamedTuple):
    """Paths next to a target that one job uses."""

    work: Path
    old: Path
    """Previous directory, until it is replaced."""
    lock: Path
    """Lock file, which the process holds while it uses the other two."""

    @classmethod
    def of(cls, target: Path, number: str) -> _OutputPaths:
        """Return the paths with a number."""
        name = f".{target.name}.{number}"
        return cls(*(target.with_name(name + end) for end in ("", _OLD, _LOCK)))


@contextmanager
def _names(target: Path) -> Iterator[_OutputPaths]:
    """Reserve unique paths for the block."""
    while True:
        names = _OutputPaths.of(target, uuid.uuid4().hex)
        try:
            file = names.lock.open("xb")
        except OSError as error:
            raise Unavailable(f"Cannot write to {target.parent}: {error.strerror}") from error
        with file:
            # Between creating and locking it, another process may have removed it as a leftover.
            if not _is_held(file) or not names.lock.exists():
                continue
            try:
                yield names
            finally:
                names.lock.unlink(missing_ok=True)
            return


def _sweep(target: Path) -> None:
    """Remove leftovers of dead processes, and restore directories that they were replacing."""
    form = re.compile(re.escape(f".{target.name}.") + "([0-9a-f]{32})" + re.escape(_LOCK))
    found = target.parent.iterdir() if target.parent.is_dir() else ()
    for number in [match[1] for path in found if (match := form.fullmatch(path.name))]:
        names = _OutputPaths.of(target, number)
        try:
            file = names.lock.open("r+b")
        except OSError:
            continue  # it was removed in the meantime, or belongs to another user
        with file:
            if not _is_held(file):
                continue
            if names.old.exists() and not target.exists():
                names.old.rename(target)
            for left in (names.work, names.old):
                shutil.rmtree(left, ignore_errors=True)
            names.lock.unlink(missing_ok=True)


def _is_held(file: IO[bytes]) -> bool:
    """Try to lock a file; return whether this process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unavailable(
            f"Cannot lock {file.name}: {error.strerror}; the output must be on a file system that "
            "supports locks",
            field="output",
        ) from error
    return True

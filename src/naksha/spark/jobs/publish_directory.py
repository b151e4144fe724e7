"""Directories that are there whole or not at all: written beside their place, then renamed.

A job whose process dies may be run again. What it had published is its result then: the directory
says which job made it. What it had not is swept by the next job that writes to the same place; it
has a lock that is free once the process is gone. Where a directory is replaced there is a moment
without any; what a job has put aside that died in it comes back.
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
MANIFEST: Final = "_manifest.json"
"""What is in the directory of an export, file by file."""
"""What a job tells of the directory, and which one it was."""
_LOCK: Final = ".lock"
_OLD: Final = ".old"
R = TypeVar("R", bound=msgspec.Struct)


class Output(StrEnum):
    """How rows are written."""

    PARQUET = "parquet"
    """With geometries in WKB, and features without them as JSON."""
    LINES = "json-lines"
    """An object for each, with whole features as GeoJSON."""


class _Made(msgspec.Struct, rename="camel"):
    job_id: str = ""


def made_before(output: str, job_id: str, report: type[R]) -> R | None:
    """What the same job has told when it made this directory; None when it did not."""
    if not output or not job_id:
        return None
    try:
        text = (Path(output).absolute() / REPORT).read_bytes()
        if msgspec.json.decode(text, type=_Made).job_id != job_id:
            return None
        return msgspec.json.decode(text, type=report)
    except (OSError, msgspec.DecodeError):
        return None


def tell(work: Path, job_id: str, report: msgspec.Struct) -> None:
    """Keep what a job tells of the directory in it."""
    told = {**msgspec.to_builtins(report), "jobId": job_id}
    (work / REPORT).write_bytes(msgspec.json.encode(told))


def check_output(output: str, *, overwrite: bool) -> Path:
    """The place of a directory to be written; what is there already is refused."""
    if not output:
        raise InvalidArgument("It has no name", field="output")
    target = Path(output).absolute()
    _sweep(target)
    _check_target(target, overwrite=overwrite)
    if not target.parent.is_dir():
        raise InvalidArgument(f"There is no directory {target.parent}", field="output")
    return target


def _check_target(target: Path, *, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise Conflict(f"{target} is there already", field="output")
    if target.exists() and not target.is_dir():
        raise Conflict(f"{target} is no directory, and is not overwritten", field="output")


@contextmanager
def published(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new directory beside the target, which takes its place at the end of the block; when the
    block fails nothing is left of it."""
    with _names(target) as names:
        try:
            names.work.mkdir()
            yield names.work
            _rename(names, target, overwrite=overwrite)
        finally:
            shutil.rmtree(names.work, ignore_errors=True)


def _rename(names: _Names, target: Path, *, overwrite: bool) -> None:
    if not target.exists():
        # Not over what somebody else made meanwhile: a directory that is not empty is not replaced.
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
        raise Conflict(f"{target} is there already", field="output") from error


# ---- What the dead have left ---------------------------------------------------------------------


class _Names(NamedTuple):
    """What one job uses beside a target."""

    work: Path
    old: Path
    """What was there before, until it is replaced."""
    lock: Path
    """Held by the process for as long as it uses the other two."""

    @classmethod
    def of(cls, target: Path, number: str) -> _Names:
        """Those with a number of their own."""
        name = f".{target.name}.{number}"
        return cls(*(target.with_name(name + end) for end in ("", _OLD, _LOCK)))


@contextmanager
def _names(target: Path) -> Iterator[_Names]:
    """Names that are this process's own until the end of the block."""
    while True:
        names = _Names.of(target, uuid.uuid4().hex)
        try:
            file = names.lock.open("xb")
        except OSError as error:
            raise Unavailable(f"{target.parent} cannot be written to: {error.strerror}") from error
        with file:
            # Before it was held somebody may have taken it for one that the dead have left.
            if not _is_held(file) or not names.lock.exists():
                continue
            try:
                yield names
            finally:
                names.lock.unlink(missing_ok=True)
            return


def _sweep(target: Path) -> None:
    """Remove what jobs have left that died; bring back what they had put aside."""
    form = re.compile(re.escape(f".{target.name}.") + "([0-9a-f]{32})" + re.escape(_LOCK))
    found = target.parent.iterdir() if target.parent.is_dir() else ()
    for number in [match[1] for path in found if (match := form.fullmatch(path.name))]:
        names = _Names.of(target, number)
        try:
            file = names.lock.open("r+b")
        except OSError:
            continue  # It is gone by now, or somebody else's.
        with file:
            if not _is_held(file):
                continue
            if names.old.exists() and not target.exists():
                names.old.rename(target)
            for left in (names.work, names.old):
                shutil.rmtree(left, ignore_errors=True)
            names.lock.unlink(missing_ok=True)


def _is_held(file: IO[bytes]) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unavailable(
            f"{file.name} cannot be locked: {error.strerror}; results are written to a file system "
            "that has locks",
            field="output",
        ) from error
    return True

"""Directories that are there whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from naksha.model.errors import Conflict, InvalidArgument, Unavailable


def check_output(output: str, *, overwrite: bool) -> Path:
    """The place of a directory to be written; what is there already is refused."""
    if not output:
        raise InvalidArgument("It has no name", field="output")
    target = Path(output).absolute()
    if target.exists() and not overwrite:
        raise Conflict(f"{target} is there already", field="output")
    if target.exists() and not target.is_dir():
        raise Conflict(f"{target} is no directory, and is not overwritten", field="output")
    if not target.parent.is_dir():
        raise InvalidArgument(f"There is no directory {target.parent}", field="output")
    return target


@contextmanager
def published(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new directory beside the target, which takes its place at the end of the block; when the
    block fails nothing is left of it."""
    work = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        work.mkdir()
    except OSError as error:
        raise Unavailable(f"{work.parent} cannot be written to: {error.strerror}") from error
    try:
        yield work
        _rename(work, target, overwrite=overwrite)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _rename(work: Path, target: Path, *, overwrite: bool) -> None:
    if not target.exists():
        # Not over what somebody else made meanwhile: a directory that is not empty is not replaced.
        _move(work, target)
        return
    check_output(str(target), overwrite=overwrite)
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    target.rename(old)
    try:
        _move(work, target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _move(work: Path, target: Path) -> None:
    try:
        work.rename(target)
    except OSError as error:
        raise Conflict(f"{target} is there already", field="output") from error

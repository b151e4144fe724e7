"""Diagnosis of a SQLite file: whether it can be read and written, and is not damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from naksha.model.errors import Forbidden, NakshaError, StorageCorrupt
from naksha.spi.diagnosis import DiagnosisLoad, DiagnosisResult, absent, failed, ok
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.sql import queries

_RESTORE: Final = "naksha restore DIRECTORY   # from the last backup, after moving the file away"


def diagnose_file(path: Path, application_id: int, load: DiagnosisLoad) -> list[DiagnosisResult]:
    """Check a file; nothing is changed."""
    folder = path.parent
    if not path.exists():
        if load.is_expected or os.access(folder, os.W_OK):
            return [absent("file", str(path), load)]
        closed = Forbidden(f"The directory {str(folder)!r} cannot be written")
        return [failed("file", closed, f"chown $USER {folder}")]
    if not os.access(path, os.R_OK | os.W_OK):
        closed = Forbidden(f"The file {str(path)!r} cannot be read and written")
        return [failed("file", closed, f"chown $USER {path}")]
    try:
        with translated(), contextlib.closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute(queries()["application_id"]).fetchone()
            (problem,) = connection.execute(queries()["quick_check"]).fetchone()
    except NakshaError as error:
        return [failed("file", error, _RESTORE)]
    if found not in (0, application_id):
        other = StorageCorrupt(f"The file {str(path)!r} is of another program")
        return [failed("file", other, "Name the right location")]
    if problem != "ok":
        damage = StorageCorrupt(f"The file {str(path)!r} is damaged: {problem}")
        return [failed("file", damage, _RESTORE)]
    return [ok("file", f"{path.stat().st_size:,} bytes, not damaged")]

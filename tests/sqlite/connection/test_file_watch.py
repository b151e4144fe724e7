"""Values that are valid until the next commit to the file, by whichever connection."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from naksha.sqlite.connection.file_watch import FileWatch
from naksha.sqlite.schema.file import connect
from naksha.sqlite.storage import SqliteStorage
from tests.sqlite.support import shell


@pytest.fixture
def watch(storage: SqliteStorage, path: Path) -> FileWatch[str]:
    return FileWatch(lambda: connect(path, 0))


def test_a_value_is_valid_until_a_commit(watch: FileWatch[str], path: Path) -> None:
    assert watch.get(watch.version()) is None
    watch.keep(watch.version(), "old")
    shell(path, "SELECT count(*) FROM naksha_head")
    assert watch.get(watch.version()) == "old"
    before = watch.version()
    shell(path, "UPDATE naksha_storage SET app_id = 'desk'")
    assert watch.get(watch.version()) is None
    watch.keep(before, "read before or after the commit")
    assert watch.get(watch.version()) is None
    watch.close()
    assert watch.get(watch.version()) is None
    watch.close()


def test_a_file_that_cannot_be_read_has_no_version(
    watch: FileWatch[str], path: Path, tmp_path: Path
) -> None:
    version = watch.version()
    watch.keep(version, "old")
    missing = FileWatch[str](lambda: sqlite3.connect(tmp_path / "no folder" / "file"))
    assert missing.version() is None
    missing.keep(missing.version(), "unknown")
    assert missing.get(missing.version()) is None
    assert watch.get(version) == "old"
    watch.close()


def test_a_value_that_was_read_before_another_connection_was_opened_is_old(
    watch: FileWatch[str], path: Path
) -> None:
    before = watch.version()
    watch.close()
    shell(path, "UPDATE naksha_storage SET app_id = 'desk'")
    watch.version()
    watch.keep(before, "read before the commit")
    assert watch.get(watch.version()) is None
    watch.close()

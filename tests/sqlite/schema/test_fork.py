"""Forks of copied files: required rights, and former ids in plain SQL."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from naksha.model.errors import Conflict, InvalidArgument, NotFound
from naksha.model.identity.guid import Guid
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, point
from tests.sqlite.schema.test_upgrade import old  # noqa: F401
from tests.sqlite.support import ShellError, opened, rows, shell

WRITE = """UPDATE roads SET jsondata = json_set(jsondata, '$.properties.n', {n},
    '$.properties."@ns:com:here:xyz".uuid', '{uuid}') WHERE id = 'x'"""


@pytest.fixture
async def uuids(path: Path) -> list[str]:
    """The ids of the two states of a feature, in a closed file."""
    async with opened(path) as storage:
        roads, found = Handle(storage, "roads"), []
        for n in (1, 2):
            await roads.upsert(point("x", n=n))
            found.append((await roads.get("x")).uuid)
    return found


async def test_a_file_that_is_open_is_not_forked(storage: SqliteStorage, path: Path) -> None:
    with pytest.raises(Conflict, match="close it everywhere"):
        await SqliteStorage.fork(path, "copy", busy_s=0.1)
    await Handle(storage, "roads").create(point("x"))
    assert rows(path, "SELECT id, number, former FROM naksha_storage") == [("test", 7, "[]")]


@pytest.mark.usefixtures("uuids")
async def test_an_id_is_never_given_again(path: Path) -> None:
    for id in ("test", None):  # by default that of the file, `test.naksha`
        with pytest.raises(Conflict, match="never had"):
            await SqliteStorage.fork(path, id)
    await SqliteStorage.fork(path, "copy")
    with pytest.raises(Conflict, match="never had"):
        await SqliteStorage.fork(path, "test")
    with pytest.raises(InvalidArgument):
        await SqliteStorage.fork(path, "a:b")
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


async def test_nothing_is_made_by_a_fork(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await SqliteStorage.fork(tmp_path / "none.naksha", "copy")
    assert list(tmp_path.iterdir()) == []


async def test_plain_sql_locks_by_former_ids(path: Path, tmp_path: Path, uuids: list[str]) -> None:
    copy = tmp_path / "copy.naksha"
    shutil.copy(path, copy)
    made = await SqliteStorage.fork(copy)
    assert (made.id, made.former_ids) == ("copy", ["test"])
    with pytest.raises(ShellError, match="changed since it was read"):
        shell(copy, WRITE.format(n=3, uuid=uuids[0]))
    shell(copy, WRITE.format(n=3, uuid=uuids[1]))
    storage = await SqliteStorage.open(copy)
    head = await Handle(storage, "roads").get("x")
    await storage.close()
    assert head.feature["properties"]["n"] == 3
    assert Guid.parse(head.uuid).storage_id == "copy"
    with pytest.raises(ShellError, match="changed since it was read"):
        shell(copy, WRITE.format(n=4, uuid=uuids[1]))
    # What the original wrote since is of another storage, and does not lock.
    later = uuids[1].rsplit(":", 1)[0] + f":{Guid.parse(uuids[1]).i + 5}"
    shell(copy, WRITE.format(n=4, uuid=later))


async def test_an_older_file_is_upgraded_and_forked(old: Path) -> None:  # noqa: F811
    before = rows(old, "SELECT id FROM naksha_storage")[0][0]
    made = await SqliteStorage.fork(old, "copy")
    assert made.former_ids == [before]
    (uuid,) = rows(
        old, """SELECT jsondata ->> '$.properties."@ns:com:here:xyz".uuid' FROM roads LIMIT 1"""
    )[0]
    stale = uuid.rsplit(":", 1)[0] + ":0"
    with pytest.raises(ShellError, match="changed since it was read"):
        shell(old, WRITE.format(n=3, uuid=stale).replace("WHERE id = 'x'", ""))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("town.naksha", "town"),
        ("My Town.naksha", "my-town"),
        ("2026.naksha", "s2026"),
        ("a" * 40 + ".naksha", "a" * 23 + "-"),
        ("道路.naksha", "naksha-"),
    ],
)
async def test_a_new_storage_is_called_like_its_file(
    tmp_path: Path, name: str, expected: str
) -> None:
    storage = await SqliteStorage.open(tmp_path / name)
    await storage.close()
    if expected.endswith("-"):  # told apart by a hash of the name
        digest = hashlib.sha256(name.removesuffix(".naksha").encode()).hexdigest()
        expected += digest[:8]
    assert storage.id == expected


async def test_a_new_id_is_for_new_files_only(tmp_path: Path) -> None:
    for new_id in ("first", "second"):
        storage = await SqliteStorage.open(tmp_path / "town.naksha", new_id=new_id)
        await storage.close()
        assert storage.id == "first"

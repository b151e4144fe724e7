"""Open storages: each opened once, and closed when no configuration names it any more."""

import asyncio
from pathlib import Path

import pytest

from naksha.hub.config.objects import StorageObject
from naksha.hub.storages.locations import check_location, location_of, with_location, with_secrets
from naksha.hub.storages.open_storages import OpenStorages
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError, NotSupported, Unavailable
from tests.catalog.cluster.manual_clock import until


def a_file(path: Path, id: str = "maps", **more: object) -> StorageObject:
    return StorageObject(id=id, properties={"location": f"file:{path}", **more})


async def test_concurrent_users_share_one_open_storage(tmp_path: Path) -> None:
    storages = OpenStorages()
    thing = a_file(tmp_path / "a.naksha")
    first, *others = await asyncio.gather(*(storages.get(f"r{n}", thing) for n in range(10)))
    assert all(other is first for other in others)
    assert len(storages) == 1
    await storages.close()
    with pytest.raises(Unavailable):
        await storages.get("r", thing)


async def test_a_cancelled_user_does_not_cancel_the_opening(tmp_path: Path) -> None:
    storages = OpenStorages()
    thing = a_file(tmp_path / "a.naksha")
    impatient = asyncio.create_task(storages.get("a", thing))
    patient = asyncio.create_task(storages.get("b", thing))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).id == "a"
    await storages.close()


async def test_an_opening_that_failed_is_tried_again(tmp_path: Path) -> None:
    storages = OpenStorages()
    thing = a_file(tmp_path / "folder" / "a.naksha")
    results = await asyncio.gather(
        *(storages.get("r", thing) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(result, NakshaError) for result in results)
    assert len(storages) == 0
    (tmp_path / "folder").mkdir()
    assert (await storages.get("r", thing)).id == "a"
    await storages.close()


async def test_an_unused_storage_is_closed(tmp_path: Path) -> None:
    storages = OpenStorages(release_seconds=0.5)
    old, new = a_file(tmp_path / "a.naksha"), a_file(tmp_path / "b.naksha")
    opened = await storages.get("r", old)
    await storages.get("other", old)
    await storages.get("r", new)
    await asyncio.sleep(1)
    assert len(storages) == 2, "the other realm has it still"
    storages.keep_only("other", [])
    assert await opened.collections() == []
    await until(lambda: len(storages) == 1)
    with pytest.raises(NakshaError):
        async with asyncio.timeout(60):
            while True:
                await opened.collections()
    await storages.close()


async def test_a_storage_that_is_named_again_in_time_stays_open(tmp_path: Path) -> None:
    storages = OpenStorages(release_seconds=0.1)
    thing = a_file(tmp_path / "a.naksha")
    opened = await storages.get("r", thing)
    storages.keep_only("r", [])
    assert await storages.get("r", thing) is opened
    await asyncio.sleep(0.2)
    assert await opened.collections() == []
    await storages.close()


async def test_an_inactive_storage_is_not_opened(tmp_path: Path) -> None:
    storages = OpenStorages()
    thing = StorageObject(id="a", active=False, properties={"location": f"file:{tmp_path}/a"})
    with pytest.raises(Unavailable):
        await storages.get("r", thing)
    assert len(storages) == 0


def test_the_form_of_earlier_versions_becomes_a_location() -> None:
    master = {
        "host": "db",
        "db": "maps",
        "user": "me@here",
        "password": "a/b@c",
        "schema": "roads",
        "port": 5433,
    }
    readers = [{"host": "r1", "db": "maps", "user": "me"}]
    thing = StorageObject(
        id="maps", properties={"master": master, "readers": readers, "stmtTimeout": 5, "poolMax": 3}
    )
    assert location_of(with_location(thing)) == (
        "postgresql://me%40here:a%2Fb%40c@db:5433/maps",
        {"schema": "roads", "readers": ["postgresql://me@r1:5432/maps"], "pool_max": 3},
    )


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({}, "properties.location"),
        ({"location": 7}, "properties.location"),
        ({"location": "gopher://x"}, "properties.location"),
        ({"location": "file:a", "schema": "x"}, "properties.schema"),
        ({"location": "file:a", "clock": "x"}, "properties.clock"),
        ({"master": 7}, "properties.master"),
        ({"master": {"host": "a", "db": "b"}}, "properties.master.user"),
        ({"master": {"host": "a", "db": "b", "user": "c", "port": "7"}}, "properties.master.port"),
    ],
)
def test_errors_name_the_invalid_field(properties: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_location(with_location(StorageObject(id="a", properties=properties)))
    assert refused.value.field == field


def test_a_read_only_server_is_not_a_storage() -> None:
    master = {"host": "a", "db": "b", "user": "c", "readOnly": True}
    with pytest.raises(NotSupported):
        with_location(StorageObject(id="a", properties={"master": master}))


def test_secrets_are_hidden_and_survive_a_round_trip() -> None:
    location = "postgresql://me:secret@db/maps?options=-csecret"
    old = StorageObject(id="a", properties={"location": location, "schema": "s", "poolMax": 3})
    shown = old.to_json()
    assert "secret" not in str(shown)
    assert shown["properties"] == {"location": "postgresql://me@db/maps"}
    same = with_secrets(old, StorageObject.from_json({**shown, "title": "New"}))
    assert (same.properties, same.title) == (old.properties, "New")
    given = {"location": "postgresql://me@db/maps", "schema": "t", "poolMax": None}
    changed = with_secrets(old, StorageObject(id="a", properties=given))
    assert changed.properties == {"location": location, "schema": "t"}
    elsewhere = {"location": "postgresql://me@evil/maps"}
    moved = with_secrets(old, StorageObject(id="a", properties=elsewhere))
    assert moved.properties == elsewhere


async def test_a_trial_opening_keeps_the_configured_storage_open(tmp_path: Path) -> None:
    storages = OpenStorages(tmp_path, release_seconds=0.05)
    kept = StorageObject(id="town", properties={"location": "file:town.naksha"})
    other = StorageObject(id="town", properties={"location": "file:other.naksha"})
    opened = await storages.get("default", kept)
    await storages.try_out("default", other)
    await until(lambda: len(storages) == 1)
    assert await opened.collections() == []
    await storages.close()


async def test_a_file_that_is_missing_is_not_created_for_a_borrower(tmp_path: Path) -> None:
    storages = OpenStorages()
    thing = a_file(tmp_path / "a.naksha")
    with pytest.raises(Unavailable, match="is missing"):
        async with storages.borrowed("r", thing):
            pass
    assert not (tmp_path / "a.naksha").exists()
    await storages.close()


async def test_a_borrower_that_is_cancelled_releases_the_storage(tmp_path: Path) -> None:
    storages = OpenStorages(release_seconds=0.05)
    thing = a_file(tmp_path / "a.naksha")
    await storages.get("r", thing)
    storages.keep_only("r", [])
    await until(lambda: len(storages) == 0)

    async def borrow() -> None:
        async with storages.borrowed("r", thing):
            raise AssertionError("the storage was opened in spite of the cancellation")

    borrower = asyncio.create_task(borrow())
    await until(lambda: len(storages) == 1)
    borrower.cancel()
    with pytest.raises(asyncio.CancelledError):
        await borrower
    await until(lambda: len(storages) == 0)
    await storages.close()


async def test_a_borrower_does_not_wait_long_for_a_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that accepts connections but does not respond."""
    monkeypatch.setattr(limits, "MAINTENANCE_OPEN_SECONDS_MAX", 0.2)
    writers: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    thing = StorageObject(id="a", properties={"location": f"postgresql://127.0.0.1:{port}/none"})
    storages = OpenStorages(release_seconds=0.05)
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="could not be opened within"):
            async with storages.borrowed("r", thing):
                pass
    server.close()
    for writer in writers:
        writer.close()
    await storages.close()

"""The cache of open storages in a Spark process: current, and bounded in size."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

import asyncpg
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import NotFound
from naksha.model.query import Query
from naksha.spark.runtime.storage_cache import close, close_all, existing_storage, shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import point
from tests.psql.support import until

COLLECTION = "places"
MORE = limits.SPARK_IDLE_STORAGES_MAX + 3


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Other tests have storages open."""
    close_all()
    yield
    close_all()


def file_in(directory: Path, name: str = "town") -> StorageRef:
    return StorageRef(f"file:{directory / name}.naksha")


def path_of(place: StorageRef) -> Path:
    return Path(place.location.removeprefix("file:"))


def fill(place: StorageRef, *ids: str) -> None:
    """Make a collection with features."""

    async def do(storage: Storage) -> None:
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id=COLLECTION))
            await session.create(COLLECTION, [point(id_) for id_ in ids])

    shared_storage(place).call(do)


def add(place: StorageRef, id_: str) -> None:
    async def do(storage: Storage) -> None:
        async with storage.write("test") as session:
            await session.create(COLLECTION, [point(id_)])

    shared_storage(place).call(do)


async def ids(storage: Storage) -> AsyncIterator[str]:
    async for state in storage.states(COLLECTION, Query()):
        yield state.id


def held(place: StorageRef) -> list[str]:
    return sorted(existing_storage(place).iterate(ids))


def remove(place: StorageRef) -> None:
    path = path_of(place)
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def threads() -> int:
    """How many storages are open: each has a thread."""
    return sum(each.name == "naksha-background" for each in threading.enumerate())


# ---- Files that are replaced ---------------------------------------------------------------------


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    place = file_in(tmp_path)
    fill(place, "a")
    storage = existing_storage(place)
    remove(place)
    with pytest.raises(NotFound):
        existing_storage(place)
    with pytest.raises(NotFound):
        storage.call(lambda s: s.collections())
    assert not path_of(place).exists()


def test_a_recreated_file_is_read_and_written(tmp_path: Path) -> None:
    place, elsewhere = file_in(tmp_path), file_in(tmp_path, "elsewhere")
    fill(place, "old")
    assert held(place) == ["old"]
    remove(place)
    fill(elsewhere, "new")
    close(elsewhere)
    path_of(elsewhere).rename(path_of(place))
    assert held(place) == ["new"]
    add(place, "newer")
    close(place)
    assert held(place) == ["new", "newer"]


def test_closing_the_old_file_does_not_affect_the_new_one(tmp_path: Path) -> None:
    """SQLite keeps what is not in the file yet in one beside it, which goes by the same name."""
    place = file_in(tmp_path)
    fill(place, "old")
    with existing_storage(place).using():
        remove(place)
        fill(place, "new")
        add(place, "newer")
    assert (path_of(place).parent / f"{path_of(place).name}-wal").exists()
    with existing_storage(place).using():  # unused storages are closed now
        assert threads() == 1
        assert held(place) == ["new", "newer"]
    close(place)
    assert held(place) == ["new", "newer"]


def test_a_reader_of_a_replaced_file_reads_it_to_the_end(tmp_path: Path) -> None:
    place = file_in(tmp_path)
    fill(place, "a", "b", "c")
    reading = existing_storage(place).iterate(ids)
    first = next(reading)
    path_of(place).unlink()
    assert sorted([first, *reading]) == ["a", "b", "c"]


# ---- How many are open ---------------------------------------------------------------------------


def test_few_unused_storages_stay_open(tmp_path: Path) -> None:
    places = [file_in(tmp_path, f"town{n}") for n in range(MORE)]
    for place in places:
        fill(place, "a")
    assert threads() <= limits.SPARK_IDLE_STORAGES_MAX + 1
    # They are opened again, those that were used last without.
    for place in places:
        assert held(place) == ["a"]
    assert threads() <= limits.SPARK_IDLE_STORAGES_MAX + 1


def test_storages_in_use_stay_open(tmp_path: Path) -> None:
    place, info = file_in(tmp_path), CollectionInfo(id=COLLECTION)
    fill(place, "a", "b", "c")
    reading = existing_storage(place).iterate(ids)
    first = next(reading)
    with shared_storage(place).using() as storage:
        stage = storage.call(lambda s: s.stage("job", info))
        for n in range(MORE):
            fill(file_in(tmp_path, f"town{n}"), "a")
        storage.wait(stage.add(given_batch([point("d")])))
        assert storage.wait(stage.close()).features == 1
        close(place)
        assert storage.call(lambda s: s.count(COLLECTION, Query())) == 3
    assert sorted([first, *reading]) == ["a", "b", "c"]
    fill(file_in(tmp_path, "last"), "a")
    assert threads() <= limits.SPARK_IDLE_STORAGES_MAX + 1


async def connected_databases(dsns: list[str]) -> int:
    """Number of these databases that a client is connected to."""
    connection = await asyncpg.connect(dsns[0])
    names = [urlsplit(dsn).path.removeprefix("/") for dsn in dsns]
    try:
        found: int = await connection.fetchval(
            "SELECT count(DISTINCT datname) FROM pg_stat_activity WHERE datname = ANY($1)"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
            names,
        )
    finally:
        await connection.close()
    return found


async def until_connected_to_at_most(number: int, dsns: list[str]) -> None:
    async def is_so() -> bool:
        return await connected_databases(dsns) <= number

    await until(is_so)


async def test_a_process_stays_connected_to_few_storages(database_factory: DatabaseFactory) -> None:
    """Each storage has a database of its own: how many connections a storage has at a given moment
    depends on the load, but not which databases are connected to."""

    async def read(storage: Storage) -> None:
        for split in await storage.plan(COLLECTION, Query()):
            async for _ in storage.read(split, ["id"]):
                pass

    with ExitStack() as databases:
        dsns = [databases.enter_context(database_factory.fresh()) for _ in range(MORE)]
        for dsn in dsns:
            fill(StorageRef(dsn), "a")
            existing_storage(StorageRef(dsn)).call(read)
        # The server ends the session of a closed connection in its own time.
        await until_connected_to_at_most(limits.SPARK_IDLE_STORAGES_MAX + 1, dsns)
        close_all()
        await until_connected_to_at_most(0, dsns)


# ---- The end of a process ------------------------------------------------------------------------

PROGRAM = dedent(
    """
    import sys
    from naksha.model.collection import CollectionInfo
    from naksha.model.query import Query
    from naksha.spark.runtime.storage_cache import existing_storage, shared_storage
    from naksha.spark.source.options import StorageRef

    place = StorageRef(sys.argv[1])

    async def fill(storage):
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id="places"))
            await session.create("places", [{"type": "Feature", "id": "a", "properties": {}}])

    async def read(storage):
        for split in await storage.plan("places", Query()):
            async for batch in storage.read(split, ["id"]):
                yield batch

    shared_storage(place).call(fill)
    print(len(list(existing_storage(place).iterate(read))))
    left = existing_storage(place).iterate(read)
    print(next(left).num_rows)
    """
)


def check_end(location: str) -> None:
    """A process that has read something to its end, and something else not, ends in peace."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, location], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n1\n", "", 0)


def test_a_process_that_used_a_file_ends_in_peace(tmp_path: Path) -> None:
    check_end(file_in(tmp_path).location)


def test_a_process_that_used_a_server_ends_in_peace(database: str) -> None:
    check_end(database)

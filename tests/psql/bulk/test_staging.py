"""Staging on PostgreSQL: killed processes, waits, writers, and code paths of large jobs only."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.psql.bulk import apply_staged, fill, staged_rows
from naksha.psql.bulk import stage as stages
from naksha.psql.connection.driver import Direct
from naksha.psql.write.session import PsqlSession
from naksha.spi.staging import StagedPart, StagedWrite, WriteMode
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.bulk.suite_staging import StagingJob, counts, values, written
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import (
    Handle,
    feature,
    ids_of,
    new_collection,
    point,
    published,
    with_xyz,
)
from tests.psql.bulk.staging_process import JOB
from tests.psql.bulk.tables import catalog_of, staging_tables
from tests.psql.proxy import Proxy, proxy_to
from tests.psql.support import Connect, begin, by_force, until

PROGRAM = Path(__file__).with_name("staging_process.py")
LEASE_MS = limits.STAGING_LEASE_SECONDS * 1000
MODES = (WriteMode.UPSERT, WriteMode.MIRROR)


async def parts_left(connection: Direct) -> int:
    """Tables of parts, each of which is known."""
    tables: int = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'naksha\\_staged\\_%' AND relkind = 'r'"
    )
    assert await connection.fetchval("SELECT count(*) FROM naksha_staged") == tables
    return tables


@contextlib.asynccontextmanager
async def working(
    dsn: str, collection: str, mode: str, count: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that has staged its features and waits, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), dsn, collection, mode, str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# ---- Kills and sweeps ----------------------------------------------------------------------------


async def test_a_killed_attempt_never_was_and_is_swept(
    storage: PsqlStorage, bare: str, connect: Connect
) -> None:
    connection = await connect()
    async with working(bare, "places", "stage", 12_000) as (process, said):
        assert said == "in the middle\n"
        process.kill()
        await process.wait()
    assert await parts_left(connection) == 2
    assert await Handle(storage, "places").live() == []
    await storage.maintain()
    assert await parts_left(connection) == 2
    await storage.maintain(int(time.time() * 1000) + LEASE_MS + 60_000)
    assert await parts_left(connection) == 0


async def kill_in_the_middle(
    dsn: str, connect: Connect, collection: str, mode: WriteMode
) -> list[StagedPart]:
    """Kills a process that applies its parts: one of them is held until then."""
    connection, holder = await connect(), await connect()
    async with working(dsn, collection, mode, 300) as (process, said):
        parts = msgspec.json.decode(said, type=list[StagedPart])
        await holder.execute("BEGIN")
        await holder.execute(f"LOCK TABLE {parts[1].table} IN ACCESS EXCLUSIVE MODE")
        assert process.stdin is not None
        process.stdin.write(b"go\n")

        async def is_waiting() -> bool:
            found: bool = await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass "
                "AND NOT granted)",
                parts[1].table,
            )
            return found

        await until(is_waiting)
        process.kill()
        await process.wait()
    await holder.execute("COMMIT")
    return parts


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_killed_apply_never_was_and_the_next_one_does_it_once(
    storage: PsqlStorage, bare: str, connect: Connect, is_new: bool
) -> None:
    connection = await connect()
    collection = "loaded" if is_new else "places"
    if not is_new:
        await Handle(storage, collection).create(point("old"), point("f7", n="old"))
    before = await published(storage)
    parts = await kill_in_the_middle(bare, connect, collection, WriteMode.MIRROR)
    if is_new:
        with pytest.raises(CollectionNotFound):
            await storage.collection(collection)
    else:
        assert values(await Handle(storage, collection).live()) == {"f7": "old", "old": None}
    assert await published(storage) == before
    write = StagedWrite(
        job=JOB, info=CollectionInfo(id=collection), mode=WriteMode.MIRROR, app_id="app"
    )
    applied = await storage.apply_staged(write, parts)
    assert counts(applied) == ((600, 0, 0, 0) if is_new else (599, 1, 1, 0))
    again = await storage.apply_staged(write, parts)
    assert again == msgspec.structs.replace(applied, repeated=True)
    assert len(ids_of(await Handle(storage, collection).live())) == 600
    assert (await published(storage)).txn == applied.txn
    assert await parts_left(connection) == 0

    async def nothing_is_left() -> bool:
        await storage.maintain()
        return await staging_tables(connection) == 0

    # A backend in the middle of its work finds out late that its client is gone.
    await until(nothing_is_left)


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_cancelled_apply_never_was(
    storage: PsqlStorage, connect: Connect, is_new: bool
) -> None:
    connection, holder = await connect(), await connect()
    job = StagingJob(storage, "loaded" if is_new else "places")
    if not is_new:
        await job.handle.create(point("old"))
    part = await job.stage([point(f"f{n}") for n in range(100)])
    await holder.execute("BEGIN")
    await holder.execute(f"LOCK TABLE {part.table} IN ACCESS EXCLUSIVE MODE")
    task = asyncio.create_task(job.apply())
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await holder.execute("COMMIT")
    assert await staging_tables(connection) == 0
    assert counts(await job.apply()) == (100, 0, 0, 0)
    assert await parts_left(connection) == 0


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_part_that_lost_features_is_not_applied(
    storage: PsqlStorage, connect: Connect, is_new: bool
) -> None:
    job = StagingJob(storage, "loaded" if is_new else "places")
    if not is_new:
        await job.handle.create(point("old"))
    part = await job.stage([point(f"f{n}") for n in range(100)])
    await by_force(await connect(), f"DELETE FROM {part.table} WHERE id = 'f17'")
    with pytest.raises(NotFound, match="Only 99 of the 100 features staged by job"):
        await job.apply(WriteMode.MIRROR)
    if not is_new:
        assert ids_of(await job.handle.live()) == ["old"]


async def test_an_abandoned_table_does_no_harm(storage: PsqlStorage, connect: Connect) -> None:
    connection = await connect()
    job = StagingJob(storage, "places")
    part = await job.stage([point("x")])
    await connection.execute(f"DROP TABLE {part.table}")
    await storage.drop_staged(job.id)
    assert await connection.fetchval("SELECT count(*) FROM naksha_staged") == 0


async def test_parts_in_use_are_not_swept(storage: PsqlStorage, connect: Connect) -> None:
    connection, holder = await connect(), await connect()
    job = StagingJob(storage, "places")
    part = await job.stage([point("x")])
    await holder.execute("BEGIN")
    await holder.execute("SELECT FROM naksha_staged WHERE name = $1 FOR UPDATE", part.table)
    later = "SELECT naksha_sweep_staged(now() + interval '10 days')"
    assert await connection.fetchval(later) == 0
    await holder.execute("ROLLBACK")
    await holder.execute("BEGIN")
    await holder.execute(f"LOCK TABLE {part.table} IN ACCESS SHARE MODE")
    assert await connection.fetchval(later) == 0
    assert await parts_left(connection) == 1
    await holder.execute("ROLLBACK")
    assert await connection.fetchval(later) == 1
    assert await parts_left(connection) == 0


# ---- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("points_only", [False, True])
async def test_tables_are_those_of_a_normal_collection(
    storage: PsqlStorage, connect: Connect, points_only: bool
) -> None:
    features = [point(f"f{n}") for n in range(100)]
    normal = await new_collection(storage, id="normal", points_only=points_only, partitions=16)
    await normal.create(*features)
    wanted_16 = CollectionInfo(id="bulk", points_only=points_only, partitions=16)
    await written(storage, wanted_16, features)
    await new_collection(storage, id="empty", points_only=points_only, partitions=16)
    await written(storage, "empty", features)
    connection = await connect()
    wanted = await catalog_of(connection, "normal")
    assert len(wanted) > 300
    assert await catalog_of(connection, "bulk") == wanted
    assert await catalog_of(connection, "empty") == wanted
    assert await staging_tables(connection) == 0
    assert await parts_left(connection) == 0


async def test_plain_sql_and_guards_work_afterwards(storage: PsqlStorage, connect: Connect) -> None:
    info = CollectionInfo(id="bulk", partitions=16)
    await written(storage, info, [point(f"f{n}") for n in range(50)])
    connection = await connect()
    await begin(connection)
    leaf = f"bulk_p{staged_rows.leaves_of(['f1'])[0]:x}"
    await connection.execute(f"DELETE FROM {leaf} WHERE jsondata->>'id' = 'f1'")
    await connection.execute("""INSERT INTO bulk (jsondata) VALUES ('{"id": "new"}')""")
    await connection.execute("COMMIT")
    handle = Handle(storage, "bulk")
    assert [state.id for state in await handle.deleted()] == ["f1"]
    new = await handle.get("new")
    assert int(new.uuid.rpartition(":")[2]) > 50
    with pytest.raises(Exception, match="not allowed"):
        await connection.execute(f"TRUNCATE {leaf}")


@pytest.mark.usefixtures("sixteen")
async def test_attaching_scans_nothing(connect: Connect) -> None:
    connection = await connect()
    said: list[str] = []
    connection.add_log_listener(lambda _, message: said.append(str(message)))
    job = await connection.fetchval("SELECT naksha_stage_open()")
    for leaf in "0f":
        await connection.execute("SELECT naksha_stage_create_leaf($1, $2)", job, leaf)
        await connection.execute(f"DROP TABLE roads_p{leaf}")
        await connection.execute("SET client_min_messages = debug1")
        values = "'0', NULL" if leaf == "0" else f"'{leaf}'"
        table = f"naksha_stage_{job}_p{leaf}"
        await connection.execute(
            f"ALTER TABLE roads ATTACH PARTITION {table} FOR VALUES IN ({values})"
        )
        await connection.execute("RESET client_min_messages")
    assert len([text for text in said if "is implied by existing constraints" in text]) == 2


async def test_tombstones_are_followed(storage: PsqlStorage) -> None:
    """The bulk path numbers versions from 1, so it is not taken."""
    handle = await new_collection(storage, partitions=16)
    await handle.create(point("x"))
    await handle.delete("x")
    await written(storage, handle.name, [point("x"), point("y")])
    found = {state.id: state.xyz["version"] for state in await handle.live()}
    assert found == {"x": 3, "y": 1}


async def test_parts_survive_a_crash_of_the_server(storage: PsqlStorage, connect: Connect) -> None:
    part = await StagingJob(storage, "places").stage([point("x")])
    kinds = "SELECT relpersistence FROM pg_class WHERE relname = ANY($1)"
    names = [part.table, "naksha_staged"]
    found = await (await connect()).fetch(kinds, names)
    assert [row[0] for row in found] == [b"p", b"p"]


# ---- Large jobs ----------------------------------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is done some at a time is done few at a time."""
    monkeypatch.setattr(apply_staged, "AT_ONCE", 10)
    monkeypatch.setattr(apply_staged, "CHUNK", 3)
    for module in (apply_staged, fill):
        monkeypatch.setattr(module, "TABLES_AT_ONCE", 2)
    monkeypatch.setattr(fill, "FEATURES_PER_LANE", 20)
    monkeypatch.setattr(staged_rows, "CHUNK_FEATURES", 7)
    monkeypatch.setattr(stages, "CHUNK_BYTES", 10_000)


@pytest.mark.usefixtures("small_steps")
async def test_large_jobs_are_like_small_ones(storage: PsqlStorage, connect: Connect) -> None:
    """New, changed, and mirrored, each time in many parts."""
    job = StagingJob(storage, "bulk")
    wanted: dict[str, Any] = {}
    for step, (first, last) in enumerate([(0, 200), (100, 300), (150, 250)]):
        given = {f"f{n}": n * step for n in range(first, last)}
        job.id, job.parts = f"job {step}", []
        features = [with_xyz(point(i, n=n), tags=[f"t{n}"]) for i, n in given.items()]
        for part in range(5):
            await job.stage(features[part::5])
        mode = WriteMode.MIRROR if step == 2 else WriteMode.UPSERT
        applied = await job.apply(mode)
        new = len(given.keys() - wanted.keys())
        same = sum(wanted.get(i) == n for i, n in given.items())
        gone = len(wanted.keys() - given.keys()) if step == 2 else 0
        assert counts(applied) == (new, len(given) - new - same, gone, same)
        wanted = given if step == 2 else wanted | given
        live = await job.handle.live()
        assert values(live) == wanted
        assert {s.id: s.xyz["tags"] for s in live} == {i: [f"t{n}"] for i, n in wanted.items()}
    assert await parts_left(await connect()) == 0


async def test_large_features_are_written_some_at_a_time(
    storage: PsqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would be arrays of more than 1 GiB, which PostgreSQL does not make."""
    most, size = 100_000, 20_000
    monkeypatch.setattr(limits, "STAGED_CHUNK_BYTES", most)
    monkeypatch.setattr(apply_staged, "_LEAVES", [list(range(16))])  # all leaves at once
    seen: list[int] = []
    call_features = PsqlSession.call_features

    async def watched(self: PsqlSession, query: str, *values: Any) -> list[Any]:
        rows = await call_features(self, query, *values)
        seen.extend(row["features"] for row in rows if query == "staged_put")
        return rows

    monkeypatch.setattr(PsqlSession, "call_features", watched)
    job = StagingJob(storage, "places")
    await job.handle.create(point("old"))
    line = {"type": "LineString", "coordinates": [[n / 100, 1.0] for n in range(size // 16)]}
    features = [point(f"text {n}", text="x" * size) for n in range(20)]
    features += [feature(f"line {n}", line) for n in range(20)]
    features += [point(f"small {n}") for n in range(20)]
    await job.stage(features[::2])
    await job.stage(features[1::2])
    assert counts(await job.apply()) == (len(features), 0, 0, 0)
    assert len(await job.handle.live()) == len(features) + 1
    assert sum(seen) == len(features)
    assert len(seen) in (8, 9)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("twice", range(0, 40, 13))
async def test_duplicates_are_found_across_staging_tables(
    storage: PsqlStorage, is_new: bool, twice: int
) -> None:
    job = StagingJob(storage, "bulk" if is_new else "places")
    if not is_new:
        await job.handle.create(point("old"))
    for part in range(3):
        await job.stage([point(f"f{n}") for n in range(part, 40, 3)])
    await job.stage([point(f"f{twice}")])
    error = await job.refused(InvalidArgument)
    assert error.feature_id == f"f{twice}"


# ---- Writers at the same time --------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_deleting_waits_for_writers(storage: PsqlStorage, mode: WriteMode) -> None:
    handle = Handle(storage, "places")
    await handle.create(point("old"))
    async with storage.write("app") as session:
        await session.create("places", [point("new")])
        applying_ = asyncio.create_task(written(storage, "places", [point("x")], mode))
        await asyncio.wait([applying_], timeout=30 if mode is WriteMode.UPSERT else 0.5)
        assert applying_.done() == (mode is WriteMode.UPSERT)
    applied = await applying_
    assert ids_of(await handle.live()) == (
        ["x"] if mode is WriteMode.MIRROR else ["new", "old", "x"]
    )
    assert applied.deleted == (2 if mode is WriteMode.MIRROR else 0)


async def test_an_overtaken_apply_is_retried(storage: PsqlStorage, connect: Connect) -> None:
    """A transaction with a greater number has written the feature that is staged."""
    handle = Handle(storage, "places")
    await handle.create(point("x", n=0), point("y", n=0))
    job = StagingJob(storage, "places")
    await job.stage([point("x", n=1), point("z", n=1)])
    holder = await connect()
    await holder.execute("BEGIN")
    await holder.execute("SELECT FROM places WHERE jsondata->>'id' = 'x' FOR UPDATE")
    task = asyncio.create_task(job.apply())
    await asyncio.sleep(0.3)
    # It has no number yet, since it waits for the row.
    await handle.update(point("y", n=2))
    await holder.execute("COMMIT")
    applied = await task
    assert applied.txn is not None
    assert applied.txn > (await handle.get("y")).txn
    assert values(await handle.live()) == {"x": 1, "y": 2, "z": 1}


async def test_others_read_while_it_goes_on(storage: PsqlStorage, connect: Connect) -> None:
    handle = Handle(storage, "places")
    await handle.create(point("x", n=0))
    job = StagingJob(storage, "places")
    part = await job.stage([point("x", n=1)])
    holder = await connect()
    await holder.execute("BEGIN")
    await holder.execute(f"LOCK TABLE {part.table} IN ACCESS EXCLUSIVE MODE")
    task = asyncio.create_task(job.apply(WriteMode.MIRROR))
    await asyncio.sleep(0.2)
    assert values(await handle.live()) == {"x": 0}
    assert await storage.count("places", Query()) == 1
    await holder.execute("COMMIT")
    await task
    assert values(await handle.live()) == {"x": 1}


async def test_an_attempt_copies_while_it_checks(storage: PsqlStorage) -> None:
    """Nothing is lost or doubled between what waits, what is on its way, and what is there."""
    stage = await storage.stage("many", CollectionInfo(id="bulk"))
    for first in range(0, 30_000, 4_000):
        ids = range(first, min(first + 4_000, 30_000))
        await stage.add(given_batch([point(f"f{n}", n=n) for n in ids]))
    part = await stage.close()
    assert part.features == 30_000
    write = StagedWrite(
        job="many", info=CollectionInfo(id="bulk"), mode=WriteMode.CREATE, app_id="app"
    )
    assert (await storage.apply_staged(write, [part])).created == 30_000
    found = values(await Handle(storage, "bulk").live())
    assert found == {f"f{n}": n for n in range(30_000)}


async def test_deletions_on_a_branch_are_found_in_chunks(
    storage: PsqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Handle(storage, "places")
    await places.create(*(point(f"f{n}") for n in range(400)))
    branch = await branch_of(storage)
    call, sizes = PsqlSession.call, [0]

    async def measured(session: PsqlSession, *given: Any) -> list[Any]:
        rows = await call(session, *given)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(apply_staged, "CHUNK", 10)
    monkeypatch.setattr(PsqlSession, "call", measured)
    job = StagingJob(branch.storage, "places")
    await job.stage([point(f"f{n}") for n in range(300)])
    assert counts(await job.apply(WriteMode.MIRROR)) == (0, 0, 100, 300)
    assert max(sizes) == 10


# ---- Commits whose answer is lost ----------------------------------------------------------------


@contextlib.asynccontextmanager
async def losing(
    cluster: PostgresCluster, dsn: str, *, loses_request: bool
) -> AsyncIterator[tuple[PsqlStorage, Proxy]]:
    """A storage behind a proxy that loses commits, or their answers."""
    name = dsn.split("@/")[1].split("?", maxsplit=1)[0]
    socket = cluster.directory / f".s.PGSQL.{cluster.port}"
    async with proxy_to(socket) as proxy:
        proxy.loses_request = loses_request
        where = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
        storage = await PsqlStorage.open(where, "test")
        try:
            yield storage, proxy
        finally:
            await storage.close()


async def test_a_commit_without_response_returns_its_outcome(
    postgres_cluster: PostgresCluster, bare: str, connect: Connect
) -> None:
    async with losing(postgres_cluster, bare, loses_request=False) as (storage, proxy):
        job = StagingJob(storage, "places")
        await job.stage([point("x")])
        proxy.is_armed = True
        applied = await job.apply()
        assert (counts(applied), applied.repeated, proxy.lost) == ((1, 0, 0, 0), False, 1)
        assert ids_of(await job.handle.live()) == ["x"]
        assert (await job.apply()).repeated
    assert await parts_left(await connect()) == 0


async def test_a_commit_that_was_lost_can_be_repeated(
    postgres_cluster: PostgresCluster, bare: str
) -> None:
    async with losing(postgres_cluster, bare, loses_request=True) as (storage, proxy):
        job = StagingJob(storage, "places")
        await job.stage([point("x")])
        proxy.is_armed = True
        with pytest.raises(Unavailable):
            await job.apply()
        assert (await job.handle.live(), proxy.lost) == ([], 1)
        assert counts(await job.apply()) == (1, 0, 0, 0)


async def test_an_unreadable_outcome_raises_outcome_unknown(
    postgres_cluster: PostgresCluster, bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_OUTCOME_SECONDS_MAX", 1.0)
    async with losing(postgres_cluster, bare, loses_request=False) as (storage, proxy):
        job = StagingJob(storage, "places")
        await job.stage([point("x")])

        async def refuse(*_: object, **__: object) -> None:
            raise Unavailable("no response")

        settled = PsqlStorage._determine_outcome

        async def unanswered(self: PsqlStorage, *given: Any) -> Any:
            monkeypatch.setattr(PsqlSession, "store_object", refuse)
            return await settled(self, *given)

        monkeypatch.setattr(PsqlStorage, "_determine_outcome", unanswered)
        proxy.is_armed = True
        with pytest.raises(OutcomeUnknown) as caught:
            await job.apply()
        assert caught.value.field == "job"
    assert proxy.lost == 1

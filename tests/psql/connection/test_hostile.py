"""Hostile input, cancelled callers, exhausted pools, broken connections and restarted servers."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
    Unavailable,
)
from naksha.model.query import And, Not, Op, Or, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection import driver
from naksha.spi.storage import WriteSession
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.proxy import proxy_to
from tests.psql.support import (
    Connect,
    advisory_locks,
    begin,
    check_log,
    connect_to,
    insert,
    publish,
    published,
    until,
)

NASTY = [
    "'; DROP TABLE roads; --",
    '"; DROP TABLE roads; --',
    "\\'; SELECT 1; --",
    "$1",
    "$$ x $$",
    "%s %I %L %1$I",
    "{{table}}",
    "{a,b}",
    '{"id": "other"}',
    "NULL",
    "a%_b",
    "new\nline\ttab",
    "\u202eright-to-left",
    "ü" * 100,
    "🦄",
    "naksha:3d",
    "@ns:com:here:xyz",
]
RESERVED = ["", "roads_hst", "roads_del", "roads_p0", "roads_p0_id", "naksha_tx", "ROADS"]
SHADOWS = ["pg_class", "geometry", "geography", "spatial_ref_sys"]
NASTY_COLLECTIONS = [text for text in NASTY if text != "naksha:3d"] + RESERVED + SHADOWS
UNSAYABLE = ["a\0b", "\ud800"]
IS_ASLEEP = """SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND classid = naksha_lock_class()::bit(32)::int8::oid AND objid = 3 AND objsubid = 2)"""


def feature(key: str, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": key, "geometry": None, "properties": properties}


def tag_of(text: str) -> str:
    """A tag that is kept as it is; only a comma always separates."""
    return "@" + text.replace(",", ";")


async def roads_of(storage: PsqlStorage, query: Query) -> list[str]:
    return sorted([state.id async for state in storage.states("roads", query)])


# ---- Injection -----------------------------------------------------------------------------------


async def test_hostile_texts_are_stored_and_found_verbatim(
    storage: PsqlStorage, connect: Connect
) -> None:
    def made(key: str) -> dict[str, Any]:
        xyz = {"tags": [tag_of(key)], "crid": key}
        return feature(key, **{key: key, "@ns:com:here:xyz": xyz})

    texts = [text for text in NASTY if text != "@ns:com:here:xyz"]
    for text in texts:
        async with storage.write(text, text) as session:
            await session.create("roads", [made(text)])
            await session.message(text, text, json={text: text})
    assert await roads_of(storage, Query()) == sorted(texts)
    for text in texts:
        same = PropertyTest(("properties", text), Op.EQ, text)
        starts = PropertyTest(("properties", text), Op.STARTS_WITH, text)
        at_least = PropertyTest(("properties", text), Op.GTE, text)
        for query in (
            Query(ids=(text,)),
            Query(tags=((tag_of(text),),)),
            Query(mrid_prefix=text),
            Query(authors=(text,)),
            Query(app_ids=(text,)),
            Query(where=same),
            Query(where=starts),
            Query(where=at_least),
            Query(where=PropertyTest(("properties", text), Op.EXISTS)),
            Query(where=And((same, Not(PropertyTest(("properties", text), Op.NE, text))))),
            Query(ids=(text,), limit=5),
        ):
            assert await roads_of(storage, query) == [text], query
    await storage.run(lambda s: s.delete("roads", texts), "app")
    assert await roads_of(storage, Query(states=States.DELETED)) == sorted(texts)
    await storage.run(lambda s: s.restore("roads", texts), "app")
    assert await roads_of(storage, Query()) == sorted(texts)
    watcher = await connect()
    await publish(watcher)
    await check_log(watcher)


async def test_the_namespace_is_nobodys_property(storage: PsqlStorage) -> None:
    async with storage.write("app") as session:
        await session.create("roads", [feature("@ns:com:here:xyz", **{"naksha:3d": 5})])
    (key,) = await roads_of(storage, Query())
    assert key == "@ns:com:here:xyz"


async def test_hostile_collection_ids_are_not_found_or_refused(storage: PsqlStorage) -> None:
    for name in [*NASTY_COLLECTIONS, *UNSAYABLE]:
        with pytest.raises((CollectionNotFound, InvalidArgument)):
            await storage.page(name, Query())
        with pytest.raises((CollectionNotFound, InvalidArgument)):
            async with storage.write("app") as session:
                await session.upsert(name, [feature("a")])
        with pytest.raises(InvalidArgument):
            async with storage.write("app") as session:
                await session.create_collection(CollectionInfo(id=name))
        with pytest.raises((NotFound, InvalidArgument)):
            await storage.state(f"test:{name}:2026:1:1:5")
    assert {info.id for info in await storage.collections()} == {"roads", "places"}


async def test_texts_that_the_database_cannot_store_are_refused(storage: PsqlStorage) -> None:
    for text in UNSAYABLE:
        for query in (
            Query(ids=(text,)),
            Query(ids=(text, "b")),
            Query(tags=((text,),)),
            Query(authors=(text,)),
            Query(mrid_prefix=text),
            Query(where=PropertyTest(("properties", text), Op.EXISTS)),
            Query(where=PropertyTest(("properties", "a"), Op.EQ, text)),
            Query(where=PropertyTest(("properties", "a"), Op.LT, text)),
        ):
            try:
                assert await roads_of(storage, query) == []
            except InvalidArgument:
                continue
    for query in (Query(txn_from=2**70), Query(updated_to=-(2**70))):
        with contextlib.suppress(InvalidArgument):
            await roads_of(storage, query)
    for cursor in ("x", "AAAA", "W10=", "WzEsMiwzXQ==", "🦄"):
        with pytest.raises(InvalidArgument):
            await storage.page("roads", Query(limit=1, cursor=cursor))


# ---- Huge input ----------------------------------------------------------------------------------


async def test_huge_queries_are_answered_or_refused_by_name(storage: PsqlStorage) -> None:
    await storage.run(lambda s: s.create("roads", [feature("a", n=1)]), "app")
    many = tuple(PropertyTest(("properties", "n"), Op.EQ, n) for n in range(40_000))
    deep: Any = many[1]
    for _ in range(50_000):
        deep = Not(deep)
    for query in (Query(where=Or(many)), Query(where=deep), Query(tags=(("x",),) * 40_000)):
        with pytest.raises((LimitExceeded, InvalidArgument)):
            await roads_of(storage, query)
    ids = tuple(f"k{n}" for n in range(50_000))
    assert await roads_of(storage, Query(ids=(*ids, "a"))) == ["a"]
    long_path = ("properties", *("n",) * 5_000)
    assert await roads_of(storage, Query(where=PropertyTest(long_path, Op.EXISTS))) == []


# ---- The caller's own errors ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [FileNotFoundError, TimeoutError, ConnectionError, KeyError])
async def test_the_callers_own_errors_pass_as_they_are(
    storage: PsqlStorage, error: type[Exception]
) -> None:
    calls = 0

    async def work(session: WriteSession) -> None:
        nonlocal calls
        calls += 1
        await session.create("roads", [feature("a")])
        raise error("mine")

    with pytest.raises(error, match="mine"):
        await storage.run(work, "app")
    assert calls == 1
    with pytest.raises(error, match="mine"):
        async with storage.write("app") as session:
            await work(session)
    assert await roads_of(storage, Query()) == []


async def test_a_cancelled_session_leaves_nothing_behind(bare: str, connect: Connect) -> None:
    """Cancelled in the caller's code, while it waits for a row, and while it waits for a gate."""
    storage = await PsqlStorage.open(bare, "test", pool_max=2)
    try:
        holder, watcher = await connect(), await connect()
        await storage.run(lambda s: s.create("roads", [feature("a")]), "app")
        await begin(holder)
        await holder.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{n}', '1')")

        async def update(pause: bool) -> None:
            async with storage.write("app") as session:
                await session.create("places", [feature("lost")])
                if pause:
                    await asyncio.Event().wait()
                await session.update("roads", [feature("a", by="lost")])

        for pause in (True, False, True, False):
            task = asyncio.create_task(update(pause))
            await until(lambda: _has_drawn(watcher))
            if not pause:
                await until(lambda: _waits(watcher))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: _has_not_drawn(watcher))
        await holder.execute("COMMIT")
        async with storage.write("app") as session:
            await session.update("roads", [feature("a", by="kept")])
        assert session.txn is not None
        assert await storage.wait_published(session.txn, 60) is not None
        assert await watcher.fetchval("SELECT count(*) FROM places") == 0
        await until(lambda: _only_the_sequencer_locks(watcher))
        await check_log(watcher)
    finally:
        await storage.close()


async def _only_the_sequencer_locks(watcher: Any) -> bool:
    return all(lock["objid"] in (3, 5) for lock in await advisory_locks(watcher))


async def _has_drawn(watcher: Any) -> bool:
    found: int = await watcher.fetchval("SELECT count(*) FROM naksha_open_draws")
    return found == 2


async def _has_not_drawn(watcher: Any) -> bool:
    found: int = await watcher.fetchval("SELECT count(*) FROM naksha_open_draws")
    return found == 1


async def _waits(watcher: Any) -> bool:
    found: bool = await watcher.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    return found


# ---- Connections ---------------------------------------------------------------------------------


async def test_callers_queue_for_connections(bare: str) -> None:
    storage = await PsqlStorage.open(bare, "test", pool_max=2)
    try:

        async def one(n: int) -> None:
            await storage.run(lambda s: s.create("roads", [feature(f"k{n}")]), "app")

        await asyncio.gather(*(one(n) for n in range(40)))
        assert len(await roads_of(storage, Query())) == 40
    finally:
        await storage.close()


async def test_sessions_that_each_need_one_more_connection_do_not_wait_for_ever(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "POOL_WAIT_S", 0.3)
    storage = await PsqlStorage.open(bare, "test", pool_max=2)
    try:
        inside = asyncio.Barrier(2)

        async def greedy() -> None:
            async with storage.write("app") as session:
                await session.message("m", "text")
                await inside.wait()
                await storage.page("roads", Query(), AtSeq(1))

        found = await asyncio.gather(greedy(), greedy(), return_exceptions=True)
        refused = [error for error in found if error is not None]
        assert refused
        assert all(isinstance(error, Unavailable) for error in refused)
        assert all("in use" in str(error) for error in refused)
        await storage.run(lambda s: s.create("roads", [feature("after")]), "app")
    finally:
        await storage.close()


async def test_a_commit_without_an_answer_is_not_repeated(
    postgres_cluster: PostgresCluster, bare: str, connect: Connect
) -> None:
    name = bare.split("@/")[1].split("?", maxsplit=1)[0]
    socket = postgres_cluster.directory / f".s.PGSQL.{postgres_cluster.port}"
    async with proxy_to(socket) as proxy:
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
        storage = await PsqlStorage.open(dsn, "test")
        try:

            async def work(session: WriteSession) -> None:
                await session.create("roads", [feature("") | {"id": None}])

            proxy.is_armed = True
            with pytest.raises(Unavailable):
                await storage.run(work, "app")
            assert proxy.lost == 1
            watcher = await connect()
            assert await watcher.fetchval("SELECT count(*) FROM roads") == 1
            await storage.run(work, "app")
            assert await watcher.fetchval("SELECT count(*) FROM roads") == 2
        finally:
            await storage.close()


async def test_killed_connections_are_unavailable_and_replaced(
    storage: PsqlStorage, connect: Connect
) -> None:
    killer = await connect()
    kill = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for n in range(5):
        with contextlib.suppress(Unavailable):
            async with storage.write("app") as session:
                await session.create("roads", [feature(f"lost{n}")])
                await killer.execute(kill)
                await session.create("roads", [feature(f"too{n}")])
            pytest.fail("the connection was gone")
        kept = feature(f"kept{n}")
        await storage.run(partial(_create, kept), "app")
    assert await roads_of(storage, Query()) == [f"kept{n}" for n in range(5)]
    await until(lambda: _all_published(storage))
    await check_log(killer)


async def _create(made: dict[str, Any], session: WriteSession) -> None:
    await session.create("roads", [made])


async def _all_published(storage: PsqlStorage) -> bool:
    return (await storage.publication()).unpublished == 0


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restarted_server_loses_no_acknowledged_write(mode: Any) -> None:
    with PostgresCluster({"max_connections": 50}) as cluster:
        cluster.create_database("restarts")
        storage = await PsqlStorage.open(cluster.dsn("restarts"), "test")
        try:
            await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "app")
            acknowledged, failures = await _write_through_restarts(storage, cluster, mode)
            found = await roads_of(storage, Query())
            assert set(acknowledged) <= set(found)
            assert failures
            assert all(isinstance(failure, Unavailable) for failure in failures), failures
            await until(lambda: _all_published(storage))
            versions = await storage.transactions(0, 100_000)
            assert [v.seq_number for v in versions] == list(range(1, len(versions) + 1))
        finally:
            await storage.close()


async def test_a_storage_whose_server_is_gone_can_be_closed() -> None:
    """Its sequencer sleeps, and finds at its end that the server is gone."""
    with PostgresCluster({"fsync": False}) as cluster:
        dsn = cluster.create_database("gone")
        storage = await PsqlStorage.open(dsn, "test")
        watcher = await connect_to(dsn)
        await until(lambda: watcher.fetchval(IS_ASLEEP))
        await watcher.close()
        # Nothing is awaited until the storage is to close: that comes before all news of the end.
        cluster.kill()
        await storage.close()


async def _has(things: list[str], count: int) -> bool:
    return len(things) >= count


async def _write_through_restarts(
    storage: PsqlStorage, cluster: PostgresCluster, mode: Any
) -> tuple[list[str], list[BaseException]]:
    acknowledged: list[str] = []
    failures: list[BaseException] = []
    done = asyncio.Event()

    async def writer(number: int) -> None:
        n = 0
        while not done.is_set():
            n += 1
            key = f"{number}.{n}"
            try:
                async with storage.write("app") as session:
                    await session.create("roads", [feature(key)])
                acknowledged.append(key)
            except NakshaError as error:
                failures.append(error)
                await asyncio.sleep(0.01)

    writers = [asyncio.create_task(writer(n)) for n in range(3)]
    for _ in range(2):
        await until(partial(_has, acknowledged, len(acknowledged) + 20))
        await asyncio.to_thread(cluster.restart, mode)
        await until(partial(_has, acknowledged, len(acknowledged) + 20))
    done.set()
    await asyncio.gather(*writers)
    return acknowledged, failures


async def test_plain_writers_and_the_library_see_each_other_at_once(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    await begin(shell)
    await insert(shell, "roads", "a")
    await shell.execute("COMMIT")
    assert await roads_of(storage, Query()) == ["a"]
    await storage.run(lambda s: s.delete("roads", ["a"]), "app")
    assert await shell.fetchval("SELECT count(*) FROM roads") == 0
    assert len(await published(shell)) >= 1

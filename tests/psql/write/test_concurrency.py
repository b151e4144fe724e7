"""Many writers on the same features: nothing is lost, torn, doubled or read inconsistently."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionChange
from naksha.model.errors import Conflict, Expired, FeatureNotFound, Retryable
from naksha.model.query import Query, States
from naksha.model.state import WriteOutcome
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.changes import Change, Delete, Put
from naksha.spi.storage import WriteSession
from tests.psql.support import (
    Connect,
    begin,
    check_log,
    insert,
    published,
    until,
    until_blocked,
)
from tests.psql.write.replay import Deed, check_intervals, intervals, replay

HOT = [f"h{n}" for n in range(6)]
COLLECTIONS = ("roads", "places")
DAY_MS = 86_400_000
Seen = dict[tuple[str, int], list[list[bytes]]]
"""The results of reads, by collection and version."""


def point(key: str, **properties: Any) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [random.uniform(-9, 9), random.uniform(-9, 9)]}
    return {"type": "Feature", "id": key, "geometry": geometry, "properties": properties}


# ---- A storm of mixed writes ---------------------------------------------------------------------


class Storm:
    """Writers that mix everything, by `run` and by explicit sessions, and what they did."""

    def __init__(self, storage: PsqlStorage, seed: int) -> None:
        self.storage = storage
        self.dice = random.Random(seed)
        self.deeds: list[Deed] = []
        self.retries = 0

    async def work(self, session: WriteSession) -> list[tuple[str, WriteOutcome]]:
        done: list[tuple[str, WriteOutcome]] = []
        steps = self.dice.randrange(1, 4)
        commits = self.dice.random() < 0.6
        for left in reversed(range(steps)):
            collection = self.dice.choice(COLLECTIONS)
            ids = self.dice.sample(HOT, self.dice.randrange(1, 4))
            outcomes = await self.step(session, collection, ids, commits and left == 0)
            done += [(collection, outcome) for outcome in outcomes]
        return done

    async def step(
        self, session: WriteSession, collection: str, ids: list[str], commit: bool = False
    ) -> list[WriteOutcome]:
        features = [point(key, n=self.dice.random()) for key in ids]
        kinds = ["create", "update", "upsert", "upsert", "delete", "rest", "purge", "apply"]
        match self.dice.choice(kinds):
            case "apply":
                changes: list[Change] = [Delete(ids[:1]), Put("upsert", features[1:])]
                done = await session.apply(collection, changes, commit=commit)
                return [outcome for each in done for outcome in each]
            case "create":
                return await session.create(collection, features[:1], commit=commit)
            case "update":
                return await session.update(collection, features[:1], commit=commit)
            case "upsert":
                return await session.upsert(collection, features, commit=commit)
            case "delete":
                return await session.delete(collection, ids, commit=commit)
            case "purge":
                return await session.purge(collection, ids[:1], commit=commit)
            case _:
                return await session.restore(collection, ids[:1], commit=commit)

    async def one(self) -> None:
        """One transaction, whatever becomes of it."""
        txn: list[int | None] = []

        async def work(session: WriteSession) -> list[tuple[str, WriteOutcome]]:
            done = await self.work(session)
            txn.append(session.txn)
            return done

        try:
            if self.dice.random() < 0.5:
                done = await self.storage.run(work, "storm")
            else:
                async with self.storage.write("storm") as session:
                    done = await work(session)
        except (Conflict, FeatureNotFound):
            return
        except Retryable:
            self.retries += 1
            return
        number = txn[-1]
        if number is None:
            assert {outcome.action for _, outcome in done} == {"RETAINED"}
            return
        self.deeds += [(number, collection, outcome) for collection, outcome in done]

    async def blow(self, writers: int, rounds: int) -> None:
        async def writer() -> None:
            for _ in range(rounds):
                await self.one()

        await asyncio.gather(*(writer() for _ in range(writers)))


async def snapshot(storage: PsqlStorage, collection: str, version: int) -> list[list[bytes]]:
    """Everything visible at a version, as bytes."""
    found = []
    for states in (States.LIVE, States.DELETED):
        query = Query(states=states)
        found.append(
            sorted([s.raw async for s in storage.states(collection, query, AtSeq(version))])
        )
    return found


async def settled(storage: PsqlStorage) -> None:
    async def all_published() -> bool:
        return (await storage.publication()).unpublished == 0

    await until(all_published)


async def _storm(
    storage: PsqlStorage, connect: Connect, seed: int, writers: int, rounds: int
) -> Seen:
    storm = Storm(storage, seed)
    seen: Seen = {}
    blowing = asyncio.create_task(storm.blow(writers, rounds))
    dice = random.Random(seed)
    while not blowing.done():
        last = (await storage.publication()).last_seq_number
        key = (dice.choice(COLLECTIONS), dice.randint(1, last))
        found = await snapshot(storage, *key)
        assert seen.setdefault(key, found) == found
    await blowing
    await settled(storage)
    watcher = await connect()
    txns = await published(watcher)
    for collection in COLLECTIONS:
        await check_intervals(watcher, collection)
        worlds = replay(storm.deeds, txns, collection)
        for version, txn in enumerate(txns, 1):
            await check_version(storage, collection, version, worlds[txn])
            found = await snapshot(storage, collection, version)
            assert seen.setdefault((collection, version), found) == found
    await check_log(watcher, [deed[0] for deed in storm.deeds if deed[2].action != "RETAINED"])
    return seen


async def check_version(storage: PsqlStorage, collection: str, version: int, world: Any) -> None:
    for states, expected in ((States.LIVE, world.live), (States.DELETED, world.dead)):
        query = Query(states=states)
        found = [s async for s in storage.states(collection, query, AtSeq(version))]
        assert {state.id: state.uuid for state in found} == expected, (version, states)
        assert len(found) == len(expected)


async def _merged_reads_the_same(storage: PsqlStorage, seen: Seen) -> None:
    now = time.time_ns() // 1_000_000
    for days in (1, 40, 800):
        await storage.maintain(now + days * DAY_MS)
        for key, expected in random.sample(sorted(seen.items()), min(len(seen), 60)):
            assert await snapshot(storage, *key) == expected


async def test_a_storm_of_writers_is_a_sequence_of_transactions(
    storage: PsqlStorage, connect: Connect
) -> None:
    seen = await _storm(storage, connect, seed=1, writers=6, rounds=12)
    await _merged_reads_the_same(storage, seen)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
async def test_a_storm_of_writers_is_a_sequence_of_transactions_long(
    storage: PsqlStorage, connect: Connect, seed: int
) -> None:
    seen = await _storm(storage, connect, seed=seed, writers=12, rounds=80)
    await _merged_reads_the_same(storage, seen)


async def _switch(on: bool, session: WriteSession) -> None:
    await session.change_collection("places", CollectionChange(history_enabled=on))


async def test_history_switched_off_and_on_answers_rightly_or_not_at_all(
    storage: PsqlStorage, connect: Connect
) -> None:
    storm = Storm(storage, 5)
    blowing = asyncio.create_task(storm.blow(4, 15))
    for on in (False, True, False, True):
        last = (await storage.publication()).last_seq_number
        await storage.wait_published(0, 0.2)
        await storage.run(partial(_switch, on), "switch")
        assert last >= 1
    await blowing
    await settled(storage)
    watcher = await connect()
    txns = await published(watcher)
    worlds = replay(storm.deeds, txns, "places")
    expired = 0
    for version, txn in enumerate(txns, 1):
        try:
            await check_version(storage, "places", version, worlds[txn])
        except Expired:
            expired += 1
            assert expired == version, "what is expired comes first"
    assert expired < len(txns)
    await check_intervals(watcher, "roads")


# ---- Nothing is lost -----------------------------------------------------------------------------


async def test_no_increment_is_lost(storage: PsqlStorage, connect: Connect) -> None:
    """Counted by optimistic locks through the library and by row locks in plain SQL, at once."""
    await storage.run(lambda s: s.create("roads", [point("count", n=0)]), "app")
    plain = [await connect() for _ in range(3)]
    rounds = 12

    async def by_lock(session: WriteSession) -> None:
        page = await session.page("roads", Query(ids=("count",)))
        await session.update("roads", [_plus_one(page.states[0].feature)])

    async def library() -> None:
        for _ in range(rounds):
            await _until_done(lambda: storage.run(by_lock, "library"), (Conflict, Retryable))

    async def shell(connection: Direct) -> None:
        for _ in range(rounds):
            await _until_done(lambda: _increment(connection), (asyncpg.SerializationError,))

    await asyncio.gather(library(), library(), library(), *(shell(c) for c in plain))
    await settled(storage)
    page = await storage.page("roads", Query(ids=("count",)))
    assert page.states[0].feature["properties"]["n"] == 6 * rounds
    assert page.states[0].xyz["version"] == 6 * rounds + 1
    await check_intervals(plain[0], "roads")
    await check_log(plain[0])


def _plus_one(feature: dict[str, Any]) -> dict[str, Any]:
    properties = feature["properties"]
    return {**feature, "properties": {**properties, "n": properties["n"] + 1}}


async def _until_done(
    work: Callable[[], Awaitable[object]], again: tuple[type[Exception], ...]
) -> None:
    for _ in range(1000):
        try:
            await work()
        except again:
            continue
        return
    raise AssertionError("it never ended")


async def _increment(connection: Direct) -> None:
    await begin(connection, "plain")
    try:
        await connection.execute(
            "UPDATE roads SET jsondata = jsonb_set(jsondata, '{properties,n}', to_jsonb("
            "(jsondata->'properties'->>'n')::int + 1)) WHERE jsondata->>'id' = 'count' "
            "AND naksha_leaf(jsondata->>'id') = naksha_leaf('count')"
        )
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


# ---- Single races, forced ------------------------------------------------------------------------


async def _create_everywhere(session: WriteSession) -> None:
    for collection in COLLECTIONS:
        await session.create(collection, [point("a")])


async def test_opposite_orders_deadlock_and_one_may_try_again(
    storage: PsqlStorage, connect: Connect
) -> None:
    await storage.run(_create_everywhere, "app")
    ready = [asyncio.Event(), asyncio.Event()]

    async def cross(mine: int) -> str:
        try:
            async with storage.write("app") as session:
                await session.update(COLLECTIONS[mine], [point("a", by=mine)])
                ready[mine].set()
                await ready[1 - mine].wait()
                await session.update(COLLECTIONS[1 - mine], [point("a", by=mine)])
        except Retryable:
            return "retry"
        return "done"

    assert sorted(await asyncio.gather(cross(0), cross(1))) == ["done", "retry"]
    await settled(storage)
    watcher = await connect()
    await check_log(watcher)
    for collection in COLLECTIONS:
        await check_intervals(watcher, collection)


async def test_an_older_transaction_cannot_write_over_a_newer_state(
    storage: PsqlStorage, connect: Connect
) -> None:
    await storage.run(lambda s: s.create("roads", [point("a")]), "app")
    with pytest.raises(Retryable):
        async with storage.write("old") as session:
            await session.message("draws", "the number")
            await storage.run(lambda s: s.update("roads", [point("a", by="new")]), "new")
            await session.update("roads", [point("a", by="old")])
    page = await storage.page("roads", Query(ids=("a",)))
    assert page.states[0].feature["properties"]["by"] == "new"
    await check_intervals(await connect(), "roads")


@pytest.mark.parametrize("way", ["library", "shell"])
async def test_nothing_is_created_under_a_later_purge(
    storage: PsqlStorage, connect: Connect, way: str
) -> None:
    """The tombstone is gone, so only the log can tell that its end comes after the creation."""
    await storage.run(lambda s: s.create("roads", [point("a")]), "app")
    await storage.run(lambda s: s.delete("roads", ["a"]), "app")
    await settled(storage)
    shell = await connect()

    async def purge() -> None:
        (outcome,) = await storage.run(lambda s: s.purge("roads", ["a"]), "app")
        assert outcome.action == "PURGED"

    if way == "library":
        with pytest.raises(Retryable):
            async with storage.write("old") as session:
                await session.message("draws", "the number")
                await purge()
                await session.create("roads", [point("a")])
    else:
        await begin(shell)
        await shell.execute("SELECT naksha_txn()")
        await purge()
        with pytest.raises(asyncpg.SerializationError):
            await insert(shell, "roads", "a")
        await shell.execute("ROLLBACK")
    await storage.run(lambda s: s.create("roads", [point("a")]), "app")
    await check_intervals(shell, "roads")


async def test_a_starving_writer_takes_the_gate_and_ends(
    storage: PsqlStorage, connect: Connect
) -> None:
    """Whenever it has its number, a rival is faster; until the gate keeps the rival out."""
    await storage.run(lambda s: s.create("roads", [point("a")]), "app")
    watcher = await connect()
    rivals: list[asyncio.Task[Any]] = []
    attempts = 0

    async def rival_is_done_or_waits() -> bool:
        waits: bool = await watcher.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory')"
        )
        return rivals[-1].done() or waits

    async def starving(session: WriteSession) -> None:
        nonlocal attempts
        attempts += 1
        await session.message("draws", "the number")
        update = storage.run(lambda s: s.update("roads", [point("a", by=attempts)]), "rival")
        rivals.append(asyncio.create_task(update))
        await until(rival_is_done_or_waits)
        await session.update("roads", [point("a", by="starving")])

    await storage.run(starving, "starving")
    assert attempts == limits.RETRY_GATE_COUNT + 1
    await asyncio.gather(*rivals)
    await settled(storage)
    states = await intervals(watcher, "roads")
    assert len([s for s in states["a"] if s.visible]) == 1 + attempts + 1
    await check_intervals(watcher, "roads")


@pytest.mark.parametrize("late", ["upsert", "delete"])
async def test_a_feature_created_between_lock_and_write_is_not_written_over(
    storage: PsqlStorage, connect: Connect, late: str
) -> None:
    """The late writer finds nothing to lock; before it has drawn its number, one writer creates
    the feature and another one is changing it."""
    creator, changer, gate, watcher = [await connect() for _ in range(4)]
    for connection in (creator, changer):
        await begin(connection)
        await connection.execute("SELECT naksha_txn()")
    # Draws wait for this one, which is exclusive.
    gate_key = "naksha_lock_class(), 0"
    await creator.execute("SELECT naksha_tx_message('m', 't')")
    await gate.execute("SELECT 1")
    holders = asyncio.create_task(gate.execute(f"SELECT pg_advisory_lock({gate_key})"))
    await until_blocked(watcher, gate)

    async def write() -> list[WriteOutcome]:
        async with storage.write("late") as session:
            if late == "upsert":
                return await session.upsert("roads", [point("a", by="late")])
            return await session.delete("roads", ["a"])

    writing = asyncio.create_task(write())

    async def both_wait() -> bool:
        count: int = await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return count == 2

    await until(both_wait)
    await insert(creator, "roads", "a", by="creator")
    await creator.execute("COMMIT")
    await changer.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{by}', '1')")
    await watcher.execute("SELECT pg_cancel_backend($1)", gate.get_server_pid())
    await asyncio.gather(holders, return_exceptions=True)

    async def late_one_waits_or_is_done() -> bool:
        count: int = await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return count == 1 or writing.done()

    await until(late_one_waits_or_is_done)
    await changer.execute("COMMIT")
    with pytest.raises(Retryable):
        await writing
    await settled(storage)
    await check_intervals(watcher, "roads")
    assert await watcher.fetchval("SELECT count(*) FROM roads_del") == 0


async def test_a_tombstone_replaced_before_the_write_is_not_continued(
    storage: PsqlStorage, connect: Connect
) -> None:
    """The late writer locks the feature, which is deleted meanwhile, and waits for another one.
    Before it has drawn its number, the feature is restored and deleted again."""
    await storage.run(lambda s: s.create("roads", [point("k"), point("z")]), "app")
    holder, watcher = await connect(), await connect()

    async def waiting() -> int:
        count: int = await watcher.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        )
        return count

    async def late_one_waits() -> bool:
        return await waiting() == 1

    async with storage.write("remover") as remover:
        await remover.delete("roads", ["k"])
        await begin(holder)
        await holder.execute("SELECT FROM roads WHERE jsondata->>'id' = 'z' FOR UPDATE")
        late = asyncio.create_task(
            storage.run(lambda s: s.upsert("roads", [point("k", by=1), point("z", by=1)]), "late")
        )
        await until(late_one_waits)
    await until(late_one_waits)
    async with storage.write("again") as again:
        await again.restore("roads", ["k"])
        await again.delete("roads", ["k"])
        await holder.execute("COMMIT")
        await until(late_one_waits)
    await late
    await settled(storage)
    await check_intervals(watcher, "roads")
    versions = [state.version for state in (await intervals(watcher, "roads"))["k"]]
    assert max(versions) == 5

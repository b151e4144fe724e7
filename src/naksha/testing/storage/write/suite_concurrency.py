"""Conformance: concurrent writers lose nothing, and history never overlaps."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from itertools import pairwise

from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionExists,
    CollectionNotFound,
    Conflict,
    Expired,
    FeatureExists,
    FeatureNotFound,
    NakshaError,
)
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import HEAD, AtSeq, AtTxn, Version
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    fresh_name,
    ids_of,
    new_collection,
    point,
    published,
    seq,
    with_xyz,
)
from naksha.testing.storage.versions.suite_versions import snapshot

WRITERS = 8
ROUNDS = 12


async def settled(calls: Sequence[Awaitable[object]]) -> list[str]:
    """Await all calls; return the name of each one's result or error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NakshaError):
            raise result
    return [type(result).__name__ for result in results]


def check_chain(states: Sequence[State]) -> None:
    """Check that one feature's states follow each other in txn order, without gaps or overlaps."""
    for old, new in pairwise(states):
        assert old.txn < new.txn
        assert int(old.xyz["txn_next"]) == new.txn
        assert old.xyz["version"] < new.xyz["version"]
        if new.xyz["action"] == "CREATE":
            assert new.xyz["puuid"] is None
            assert old.xyz["action"] == "DELETE"
        else:
            assert new.xyz["puuid"] == old.uuid
            assert new.xyz["version"] == old.xyz["version"] + 1
    assert states[-1].xyz["txn_next"] == "0"


async def check_history(handle: Handle) -> dict[str, list[State]]:
    """Check that the states of every feature form a chain."""
    chains: dict[str, list[State]] = defaultdict(list)
    for state in await handle.all():
        chains[state.id].append(state)
    for chain in chains.values():
        check_chain(chain)
    return chains


async def check_log(storage: Storage) -> None:
    """Check that sequence numbers are dense, in the order of txn and publication time."""
    await published(storage)
    log = await storage.transactions(0, 100_000)
    assert [t.seq_number for t in log] == list(range(1, len(log) + 1))
    assert [t.txn for t in log] == sorted({t.txn for t in log})
    times = [t.published_ms or 0 for t in log]
    assert times == sorted(times)


async def increment(handle: Handle, feature_id: str) -> int:
    """Increment a feature under its lock; return the number of attempts."""
    for attempt in range(1, 500):
        head = await handle.get(feature_id)
        counted = point(feature_id, n=head.feature["properties"]["n"] + 1)
        try:
            await handle.update(with_xyz(counted, uuid=head.uuid))
        except Conflict:
            await asyncio.sleep(random.random() * 0.01)
        else:
            return attempt
    raise AssertionError("starved")


class TestWritersAtOnce:
    async def test_no_update_is_lost(self, places: Handle) -> None:
        keys = ["a", "b", "c"]
        await places.create(*(point(key, n=0) for key in keys))

        async def writer(number: int) -> None:
            for round_ in range(ROUNDS):
                await increment(places, keys[(number + round_) % len(keys)])

        await asyncio.gather(*map(writer, range(WRITERS)))
        counts = [s.feature["properties"]["n"] for s in await places.live()]
        assert sum(counts) == WRITERS * ROUNDS
        chains = await check_history(places)
        for chain in chains.values():
            assert [s.feature["properties"]["n"] for s in chain] == list(range(len(chain)))

    async def test_random_writes_leave_a_proper_history(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        keys = [f"k{n}" for n in range(6)]

        async def writer(number: int) -> None:
            dice = random.Random(number)
            for round_ in range(ROUNDS):
                some = dice.sample(keys, dice.randint(1, 4))
                try:
                    if dice.random() < 0.3:
                        await handle.delete(*some)
                    elif dice.random() < 0.2:
                        await handle.restore(some[0])
                    else:
                        made = [point(key, n=f"{number}/{round_}") for key in some]
                        await handle.upsert(*made, author=f"w{number}")
                except FeatureNotFound:
                    continue

        await asyncio.gather(*map(writer, range(WRITERS)))
        await check_history(handle)
        await check_log(empty_storage)

    async def test_two_instances_are_as_safe_as_one(
        self, empty_storage: Storage, make_storage: StorageMaker
    ) -> None:
        handle = await new_collection(empty_storage)
        other = Handle(await make_storage(beside=empty_storage), handle.name)
        await handle.create(point("a", n=0))
        await asyncio.gather(*(increment((handle, other)[n % 2], "a") for n in range(WRITERS * 3)))
        assert (await handle.get("a")).feature["properties"]["n"] == WRITERS * 3
        await check_history(handle)
        await check_log(empty_storage)
        await published(other.storage)
        assert await other.storage.transactions() == await empty_storage.transactions()

    async def test_collections_in_any_order_do_not_lock_each_other_out(
        self, storage: Storage
    ) -> None:
        handles = [await new_collection(storage) for _ in range(3)]

        async def writer(number: int) -> None:
            dice = random.Random(number)
            for round_ in range(ROUNDS // 6):
                order = dice.sample(handles, 3)
                keys = dice.sample(["x", "y", "z"], 3)

                async def work(
                    session: WriteSession,
                    order: list[Handle] = order,
                    keys: list[str] = keys,
                    n: str = f"{number}/{round_}",
                ) -> None:
                    for handle in order:
                        for key in keys:
                            await session.upsert(handle.name, [point(key, n=n)])

                await storage.run(work, APP)

        await asyncio.gather(*map(writer, range(WRITERS // 2)))
        ends = set()
        for handle in handles:
            await check_history(handle)
            ends |= {s.feature["properties"]["n"] for s in await handle.live()}
        assert len(ends) == 1

    async def test_a_version_is_the_same_while_writers_go_on(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        seen: list[tuple[Version, list[list[bytes]]]] = []
        done = asyncio.Event()

        async def writer(number: int) -> None:
            dice = random.Random(number)
            for n in range(ROUNDS):
                await handle.upsert(*(point(f"k{dice.randrange(9)}", n=n) for _ in range(3)))
                await handle.delete(f"k{dice.randrange(9)}")

        async def reader() -> None:
            while not done.is_set():
                version = await empty_storage.resolve(HEAD)
                seen.append((version, await snapshot(handle, seq(version))))

        reading = [asyncio.create_task(reader()) for _ in range(2)]
        try:
            await asyncio.gather(*map(writer, range(WRITERS // 2)))
        finally:
            done.set()
        await asyncio.gather(*reading)
        assert len({version for version, _ in seen}) > 1
        for version, before in seen:
            assert await snapshot(handle, AtTxn(version.txn)) == before

    async def test_one_transaction_is_seen_whole_or_not_at_all(self, storage: Storage) -> None:
        """The reads are at a version: HEAD may move between two reads, a version cannot."""
        handles = [await new_collection(storage) for _ in range(2)]
        done = asyncio.Event()

        async def writer() -> None:
            for n in range(ROUNDS * 2):

                async def work(session: WriteSession, n: int = n) -> None:
                    for handle in handles:
                        await session.upsert(handle.name, [point(k, n=n) for k in "ab"])

                await storage.run(work, APP)
            done.set()

        async def reader() -> None:
            while not done.is_set():
                at = seq(await storage.resolve(HEAD))
                states = [s for h in handles for s in await h.live(at)]
                assert len({s.feature["properties"]["n"] for s in states}) <= 1
                assert len(states) in (0, 4)

        await asyncio.gather(writer(), reader())


class TestOneWinner:
    async def test_of_many_creates(self, places: Handle) -> None:
        names = await settled([places.create(point("x", n=n)) for n in range(WRITERS)])
        assert sorted(names) == [FeatureExists.__name__] * (WRITERS - 1) + ["list"]
        assert (await places.get("x")).xyz["version"] == 1

    async def test_of_many_collections(self, storage: Storage) -> None:
        info = CollectionInfo(id=fresh_name())
        names = await settled(
            [storage.run(lambda s: s.create_collection(info), APP) for _ in range(4)]
        )
        assert sorted(names) == [CollectionExists.__name__] * 3 + ["CollectionInfo"]

    async def test_of_many_deletes(self, places: Handle) -> None:
        await places.create(point("x"))
        results = await asyncio.gather(*(places.delete("x") for _ in range(WRITERS)))
        actions = sorted(outcome.action for (outcome,) in results)
        assert actions == ["DELETED"] + ["RETAINED"] * (WRITERS - 1)

    async def test_of_many_locked_updates(self, places: Handle) -> None:
        await places.create(point("x"))
        lock = (await places.get("x")).uuid
        names = await settled(
            [places.update(with_xyz(point("x", n=n), uuid=lock)) for n in range(WRITERS)]
        )
        assert sorted(names) == [Conflict.__name__] * (WRITERS - 1) + ["list"]

    async def test_equal_updates_are_written_once(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        results = await asyncio.gather(*(places.update(point("x", n=2)) for _ in range(WRITERS)))
        actions = sorted(outcome.action for (outcome,) in results)
        assert actions == ["RETAINED"] * (WRITERS - 1) + ["UPDATED"]


class TestInterruptions:
    async def test_a_cancelled_transaction_leaves_nothing_open(self, places: Handle) -> None:
        started = asyncio.Event()

        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x")])
            started.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(places.write(work))
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await places.create(point("x"))
        await places.published()
        assert (await places.get("x")).xyz["version"] == 1

    async def test_cancelled_in_the_middle_of_calls(self, places: Handle) -> None:
        for n in range(15):
            task = asyncio.create_task(places.upsert(*(point(f"x{k}", n=n) for k in range(20))))
            await asyncio.sleep(n * 0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await places.upsert(*(point(f"x{k}", n="end") for k in range(20)))
        await places.published()
        chains = await check_history(places)
        assert len({len(chain) for chain in chains.values()}) == 1


class TestCollectionsUnderWriters:
    async def test_a_collection_dropped_under_its_writers(self, places: Handle) -> None:
        async def writer(number: int) -> None:
            for n in range(ROUNDS):
                await places.upsert(point(f"k{n % 4}", n=f"{number}/{n}"))

        async def dropper() -> None:
            await asyncio.sleep(0.02)
            await places.write(lambda s: s.drop_collection(places.name))

        names = await settled([*map(writer, range(4)), dropper()])
        assert set(names) <= {"NoneType", CollectionNotFound.__name__}
        await places.write(lambda s: s.restore_collection(places.name))
        await check_history(places)

    async def test_history_switched_under_writers(self, places: Handle) -> None:
        """For every interleaving, each readable version is right and the others are Expired."""
        await places.create(point("x"))
        created = await places.published()

        async def writer(number: int) -> None:
            for n in range(ROUNDS):
                await places.upsert(point("x", n=f"{number}/{n}"))

        async def switcher() -> None:
            for n in range(6):
                await asyncio.sleep(0.01)
                await places.change(history_enabled=bool(n % 2))

        await asyncio.gather(*map(writer, range(4)), switcher())
        last = await places.published()
        readable = []
        for number in range(created.seq_number, last.seq_number + 1):
            with contextlib.suppress(Expired):
                assert ids_of(await places.live(AtSeq(number))) == ["x"]
                readable.append(number)
        assert readable == list(range(readable[0], last.seq_number + 1))

    async def test_a_session_that_reads_while_it_writes(self, places: Handle) -> None:
        await places.create(*(point(f"k{n:02}", n=0) for n in range(30)))
        async with places.storage.write(APP) as session:
            async for state in session.states(places.name, Query()):
                if state.id.endswith("0"):
                    break
            await session.update(places.name, [point("k01", n=1)])
        assert (await places.get("k01")).feature["properties"]["n"] == 1

    async def test_a_stream_that_is_given_up_takes_nothing_with_it(self, places: Handle) -> None:
        """It may be closed at once, between two writes, or by the garbage collector."""
        await places.create(*(point(f"k{n:02}", n=0) for n in range(30)))
        async with places.storage.write(APP) as session:
            streams = [aiter(session.states(places.name, Query())) for _ in range(3)]
            for number, stream in enumerate(streams):
                await anext(stream)
                await session.update(places.name, [point(f"k{number:02}", n=1)])
            for stream in reversed(streams):
                await stream.aclose()  # type: ignore[attr-defined]
                await session.update(places.name, [point("k09", n=2)])
        found = {state.id: state.feature["properties"]["n"] for state in await places.live()}
        changed = {id_: n for id_, n in found.items() if n}
        assert changed == {"k00": 1, "k01": 1, "k02": 1, "k09": 2}

"""Conformance: exclusive write gates, reads of other branches in a session, and frozen overlays.

Also sessions that create a branch, and branches of some collections.
"""

from __future__ import annotations

import asyncio

import pytest

from naksha.model.errors import Conflict, NakshaError, NotFound, NotSupported
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import MAIN, LogFilter
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import BranchLayer, Storage, StorageReader, WriteSession
from naksha.testing.storage.branch_case import BranchCase, branch_of
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    content,
    ids_of,
    in_order,
    new_collection,
    point,
    published,
    rolled_back,
    seq,
)

PATIENCE_S = 60
WRITERS = 4


async def live(reader: StorageReader, name: str) -> list[State]:
    return in_order([state async for state in reader.states(name, Query())])


class TestGates:
    async def test_closed_gates_exclude_other_writers(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        async with asyncio.timeout(PATIENCE_S):
            async with places.storage.write(APP) as session:
                await session.close_gates([places.name])
                other = asyncio.create_task(places.upsert(point("x", n="other"), point("y")))
                (seen,) = await live(session, places.name)
                for _ in range(10):
                    await asyncio.sleep(0.01)
                    assert [s.raw for s in await live(session, places.name)] == [seen.raw]
                await session.update(places.name, [point("x", n=1)])
            await other
        states = [s for s in await places.all() if s.id == "x"]
        assert [s.feature["properties"]["n"] for s in states] == [0, 1, "other"]

    async def test_on_a_branch_they_are_those_of_the_branch(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        there = (await branch_of(places.storage)).on(places)
        async with asyncio.timeout(PATIENCE_S):
            async with there.storage.write(APP) as session:
                await session.close_gates([places.name])
                other = asyncio.create_task(there.upsert(point("x", n="other")))
                await asyncio.sleep(0.05)
                (seen,) = await live(session, there.name)
                assert content(seen)["properties"] == {"n": 0}
                await session.update(there.name, [point("x", n=1)])
            await other
        assert [s.feature["properties"]["n"] for s in await there.all()] == [0, 1, "other"]

    async def test_sessions_that_read_and_write_behind_a_gate_terminate(
        self, places: Handle
    ) -> None:
        """A writer that must see the current state succeeds while others change it all the time."""
        await places.create(point("x", n=0))
        is_done = False

        async def disturb(number: int) -> None:
            n = 0
            while not is_done:
                n += 1
                await places.upsert(point("x", n=f"{number}-{n}"))

        writers = [asyncio.create_task(disturb(number)) for number in range(WRITERS)]
        try:
            async with asyncio.timeout(PATIENCE_S), places.storage.write(APP) as session:
                await session.close_gates([places.name])
                (seen,) = await live(session, places.name)
                await asyncio.sleep(0.02)
                (outcome,) = await session.delete(places.name, ["x"], uuids=[seen.uuid])
                assert outcome.action == "DELETED"
        finally:
            is_done = True
            await asyncio.gather(*writers)


class TestVersionsUnderWriters:
    async def test_one_is_found_while_others_write_without_pause(self, storage: Storage) -> None:
        """The reader waits neither for later commits nor for their writers.

        There are more writers than a storage has connections.
        """
        places = await new_collection(storage)
        is_done = False

        async def disturb(number: int) -> None:
            n = 0
            while not is_done:
                n += 1
                await places.upsert(point(f"x{number}", n=n))

        writers = [asyncio.create_task(disturb(number)) for number in range(24)]
        try:
            async with asyncio.timeout(PATIENCE_S / 3):
                found = [await storage.resolve(HEAD) for _ in range(10)]
        finally:
            is_done = True
            await asyncio.gather(*writers)
        assert found == sorted(found)


class TestOtherBranchesInASession:
    async def test_are_read_as_they_are_outside(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        one, two = await branch_of(places.storage), await branch_of(places.storage)
        await one.on(places).update(point("x", n=1))
        await places.update(point("x", n="main"))
        version = await published(places.storage)
        async with two.storage.write(APP) as session:
            await session.upsert(places.name, [point("x", n=2)])
            for layers, n in (
                (one.layers, 1),
                (two.layers, 2),
                ((BranchLayer(MAIN, None),), "main"),
            ):
                seen = session.on_branch(layers)
                (state,) = await live(seen, places.name)
                assert content(state)["properties"] == {"n": n}
                assert await seen.resolve(HEAD) == version
                assert (await seen.resolve(AtSeq(version.seq_number), places.name)) == version
                assert await seen.count(places.name, Query()) == 1
                assert (await seen.collection(places.name)).id == places.name
                page = await seen.page(places.name, Query(limit=5), seq(one.base))
                assert content(page.states[0])["properties"] == {"n": 0}


class TestBranchingOff:
    async def test_a_session_goes_on_as_one_of_a_new_branch(self, places: Handle) -> None:
        await places.create(point("x", n=0), point("y", n=0))
        base = await published(places.storage)
        await places.update(point("x", n="later"))
        below = (BranchLayer(MAIN, base.txn),)
        async with places.storage.write(APP) as session:
            overlay = await session.branch_off(below)
            await session.update(places.name, [point("x", n=1)])
            await session.delete(places.name, ["y"])
            assert ids_of(await live(session, places.name)) == ["x"]
            layers = (BranchLayer(overlay, None), *below)
            with pytest.raises(NotFound):
                await Handle(places.storage.on_branch(layers), places.name).live()
        there = Handle(places.storage.on_branch(layers), places.name)
        assert [content(s)["properties"] for s in await there.live()] == [{"n": 1}]
        assert (await there.get("x")).xyz["version"] == 2
        assert ids_of(await places.live()) == ["x", "y"]
        await there.update(point("x", n=2))
        log = await places.storage.transactions(
            base.seq_number, where=LogFilter(overlays=(overlay,))
        )
        assert [t.txn for t in log][:1] == [session.txn]

    async def test_rolled_back_nothing_is_left(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        base = await published(places.storage)
        made: list[int] = []

        async def work(session: WriteSession) -> None:
            made.append(await session.branch_off((BranchLayer(MAIN, base.txn),)))
            await session.update(places.name, [point("x", n=1)])

        await rolled_back(places.storage, work)
        (overlay,) = made
        layers = (BranchLayer(overlay, None), BranchLayer(MAIN, base.txn))
        with pytest.raises(NotFound, match=r"deleted while it was in use"):
            await Handle(places.storage.on_branch(layers), places.name).live()
        assert [content(s)["properties"] for s in await places.live()] == [{"n": 0}]

    async def test_only_from_main_and_at_first(self, places: Handle) -> None:
        base = await published(places.storage)
        below = (BranchLayer(MAIN, base.txn),)
        branch = await branch_of(places.storage)
        with pytest.raises(NotSupported, match="branch can only be created"):
            async with branch.storage.write(APP) as session:
                await session.branch_off(below)
        with pytest.raises(NotSupported, match="branch can only be created"):
            async with places.storage.write(APP) as session:
                await session.create(places.name, [point("x")])
                await session.branch_off(below)


async def freeze(branch: BranchCase) -> None:
    await branch.main.run(lambda s: s.freeze_overlay(branch.overlay), APP)


class TestFrozenOverlays:
    async def test_are_read_and_not_written_to(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        branch = await branch_of(places.storage)
        there = branch.on(places)
        await there.update(point("x", n=1))
        child = (await branch.branch()).on(places)
        await freeze(branch)
        for attempt in (there.update(point("x", n=2)), there.create(point("y")), there.delete("x")):
            with pytest.raises(Conflict, match="The branch was rebased"):
                await attempt
        assert [content(s)["properties"] for s in await there.live()] == [{"n": 1}]
        assert len(await there.states(Query(states=States.ALL))) == 2
        # Branches of the frozen branch can still be written to, and so can main.
        await child.update(point("x", n=3))
        await places.update(point("x", n=4))
        await freeze(branch)
        await branch.main.run(lambda s: s.drop_overlay(branch.overlay), APP)

    async def test_not_before_the_commit(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        branch = await branch_of(places.storage)

        async def work(session: WriteSession) -> None:
            await session.freeze_overlay(branch.overlay)

        await rolled_back(places.storage, work)
        await branch.on(places).update(point("x", n=1))

    async def test_concurrent_writes_are_included_or_fail(self, places: Handle) -> None:
        await places.create(point("x", n=0))
        branch = await branch_of(places.storage)
        there, is_written = branch.on(places), True
        await there.create(point("y"))
        begin = asyncio.Event()

        async def freeze_then() -> None:
            await begin.wait()
            await freeze(branch)

        freezing = asyncio.create_task(freeze_then())
        async with asyncio.timeout(PATIENCE_S):
            try:
                async with there.storage.write("slow") as session:
                    await session.update(there.name, [point("x", n=1)])
                    begin.set()
                    await asyncio.sleep(0.3)
                    await session.update(there.name, [point("y", n=1)])
            except NakshaError:
                is_written = False
            await freezing
        wanted = {"x": {"n": 1}, "y": {"n": 1}} if is_written else {"x": {"n": 0}, "y": {}}
        assert {s.id: content(s)["properties"] for s in await there.live()} == wanted
        with pytest.raises(Conflict):
            await there.update(point("x", n=2))

    async def test_however_many_write_it_ends(self, storage: Storage) -> None:
        places = await new_collection(storage)
        await places.create(*(point(f"x{n}") for n in range(WRITERS)))
        branch = await branch_of(storage)
        there = branch.on(places)
        written = [0] * WRITERS
        begun = [asyncio.Event() for _ in range(WRITERS)]

        async def write(number: int) -> None:
            """Write until refused; sessions of several writers overlap all the time."""
            while True:
                async with there.storage.write(APP) as session:
                    feature = point(f"x{number}", n=written[number] + 1)
                    await session.update(there.name, [feature])
                    await asyncio.sleep(0.002)
                written[number] += 1
                begun[number].set()

        writers = [asyncio.create_task(write(number)) for number in range(WRITERS)]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(first.wait() for first in begun))
            await freeze(branch)
            results = await asyncio.gather(*writers, return_exceptions=True)
        assert all(isinstance(each, NakshaError) for each in results)
        for number in range(WRITERS):
            state = await there.get(f"x{number}")
            assert state.feature["properties"].get("n", 0) == written[number] > 0


class TestBranchesOfSomeCollections:
    async def test_refuse_writes_to_others(self, storage: Storage) -> None:
        mine, other = await new_collection(storage), await new_collection(storage)
        await other.create(point("x", n=0))
        branch = await branch_of(storage)
        limited = storage.on_branch(branch.layers, [mine.name])
        await Handle(limited, mine.name).create(point("x"))
        there = Handle(limited, other.name)
        for attempt in (
            there.create(point("y")),
            there.update(point("x", n=1)),
            there.upsert(point("x", n=1)),
            there.delete("x"),
            there.restore("x"),
            there.purge("x"),
        ):
            with pytest.raises(NotSupported, match="scope") as caught:
                await attempt
            assert caught.value.collection_id == other.name
        assert [content(s)["properties"] for s in await there.live()] == [{"n": 0}]

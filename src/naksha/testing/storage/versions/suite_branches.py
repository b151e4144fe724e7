"""Conformance: branches of branches, their log, and the life of overlays."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Expired,
    FeatureExists,
    FeatureNotFound,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
    NotSupported,
)
from naksha.model.query import Bbox, Op, Query, States, Test
from naksha.model.state import State, WriteOutcome
from naksha.model.transaction import MAIN, LogFilter
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import BranchLayer, Storage, WriteSession
from naksha.testing.storage.branch_case import SEEDS, BranchCase, branch_of, new_overlay, raw_states
from naksha.testing.storage.bulk.suite_bulk import check_rows, filled, read_all, stir
from naksha.testing.storage.read.suite_paging import pages
from naksha.testing.storage.suite_support import (
    APP,
    DAY_MS,
    Handle,
    content,
    fresh_name,
    ids_of,
    log_after,
    new_collection,
    point,
    published,
    seq,
    with_xyz,
)
from naksha.testing.storage.write.suite_concurrency import check_history, increment

__all__ = [
    "TestBranchesAtOnce",
    "TestBranchesOfBranches",
    "TestCollectionsOnABranch",
    "TestLifeOfOverlays",
    "TestLikeACopy",
    "TestLogOfABranch",
    "TestSplitsOfABranch",
    "filled",
]

DEPTH = 8


async def values(handle: Handle) -> dict[str, Any]:
    """Return the value of every live feature."""
    return {s.id: s.feature["properties"].get("n") for s in await handle.live()}


class TestBranchesOfBranches:
    async def test_each_sees_those_below_as_they_were(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(*(point(key, n="main") for key in "abcde"))
        one = await branch_of(storage)
        await one.on(main).update(point("b", n="one"), point("c", n="one"))
        await one.on(main).delete("e")
        two = await one.branch()
        await two.on(main).update(point("c", n="two"), point("d", n="two"))
        three = await two.branch()
        await three.on(main).restore("e")
        wanted = {"a": "main", "b": "one", "c": "two", "d": "two"}
        assert await values(two.on(main)) == wanted
        assert await values(three.on(main)) == wanted | {"e": "main"}
        for branch in (one, two):
            await branch.on(main).upsert(*(point(key, n="late") for key in "abcdx"))
            await branch.on(main).delete("a", "b")
        await main.upsert(*(point(key, n="late") for key in "abcdey"))
        await main.delete("c")
        assert await values(three.on(main)) == wanted | {"e": "main"}
        assert await values(two.on(main)) == {"c": "late", "d": "late", "x": "late"}

    async def test_versions_go_on_through_all_layers(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(point("x", n=0))
        branch = await branch_of(storage)
        for n in range(1, 5):
            await branch.on(main).update(point("x", n=n))
            below = await branch.on(main).get("x")
            branch = await branch.branch()
            assert (await branch.on(main).get("x")).raw == below.raw
        there = branch.on(main)
        await there.delete("x")
        chain = (await check_history(there))["x"]
        assert [s.xyz["version"] for s in chain] == [1, 2, 3, 4, 5, 6]
        assert [s.feature["properties"]["n"] for s in chain] == [0, 1, 2, 3, 4, 4]
        assert len({s.xyz["createdAt"] for s in chain}) == 1

    async def test_a_feature_that_the_middle_never_had(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(point("x", n=0))
        await main.update(point("x", n=1))
        two = await (await branch_of(storage)).branch()
        await two.on(main).update(point("x", n=2))
        chain = (await check_history(two.on(main)))["x"]
        assert [s.feature["properties"]["n"] for s in chain] == [0, 1, 2]

    async def test_the_middle_touches_a_feature_after_it_was_branched(
        self, storage: Storage
    ) -> None:
        main = await new_collection(storage)
        await main.create(point("x", n=0), point("gone"), point("dead"))
        await main.delete("dead")
        one = await branch_of(storage)
        await one.on(main).create(point("own", n="one"))
        two = await one.branch()
        before = await raw_states(two.on(main))
        await one.on(main).update(point("x", n="late"), point("own", n="late"))
        await one.on(main).delete("gone")
        await one.on(main).purge("dead")
        await one.on(main).create(point("dead", n="late"))
        assert await raw_states(two.on(main)) == before
        await two.on(main).update(point("x", n="two"))
        await two.on(main).restore("dead")
        chains = await check_history(two.on(main))
        assert [s.feature["properties"]["n"] for s in chains["x"]] == [0, "two"]
        assert [s.xyz["version"] for s in chains["dead"]] == [1, 2, 3]

    async def test_purged_in_the_middle(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(point("x"))
        await main.delete("x")
        one = await branch_of(storage)
        await one.on(main).purge("x")
        two = await one.branch()
        there = two.on(main)
        assert await there.deleted() == []
        with pytest.raises(FeatureNotFound):
            await there.restore("x")
        await there.create(point("x"))
        assert (await there.get("x")).xyz["version"] == 1

    async def test_versions_of_the_layers_below(self, storage: Storage) -> None:
        main = await new_collection(storage)
        wanted = []
        branch: BranchCase | None = None
        handle = main
        for n in range(4):
            for key in "xy":
                await handle.upsert(point(key, n=n), point(f"{key}{n}"))
                wanted.append((await published(storage), await raw_states(handle)))
            branch = await (branch_of(storage) if branch is None else branch.branch())
            handle = branch.on(main)
            await main.upsert(point("x", n=f"main {n}"))
        for version, states in wanted:
            assert await raw_states(handle, seq(version)) == states

    async def test_as_deep_as_can_be(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(*(point(f"k{n}", n=-1) for n in range(DEPTH + 1)))
        branch = await branch_of(storage)
        for n in range(DEPTH - 1):
            await branch.on(main).update(point(f"k{n}", n=n))
            branch = await branch.branch()
        there = branch.on(main)
        await there.update(point(f"k{DEPTH - 1}", n=DEPTH - 1))
        wanted = {f"k{n}": n for n in range(DEPTH)} | {f"k{DEPTH}": -1}
        assert await values(there) == wanted
        await there.published()
        assert ids_of(await pages(there, Query(limit=2))) == sorted(wanted)
        box = Query(spatial=Bbox(8, 50, 9, 51), states=States.ALL)
        assert len(await there.states(box)) == 2 * DEPTH + 1
        with pytest.raises(LimitExceeded):
            await branch.branch()

    @pytest.mark.parametrize(
        ("layers", "error"),
        [
            ((), InvalidArgument),
            ((BranchLayer(1, None),), InvalidArgument),
            ((BranchLayer(1, None), BranchLayer(MAIN, None)), InvalidArgument),
            ((BranchLayer(1, None), BranchLayer(1, 1), BranchLayer(MAIN, 1)), InvalidArgument),
            ((BranchLayer(1, None), BranchLayer(2, 1), BranchLayer(MAIN, 2)), InvalidArgument),
            ((*(BranchLayer(n, 1) for n in range(1, 10)), BranchLayer(MAIN, 1)), LimitExceeded),
        ],
    )
    def test_invalid_branches_are_refused(
        self, storage: Storage, layers: Sequence[BranchLayer], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            storage.on_branch(layers)


class TestCollectionsOnABranch:
    async def test_are_those_of_the_version(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        branch = await branch_of(storage)
        later = await new_collection(storage)
        await later.create(point("x"))
        names = {info.id for info in await branch.storage.collections()}
        assert handle.name in names
        assert later.name not in names
        for call in (
            lambda: branch.storage.collection(later.name),
            lambda: branch.on(later).live(),
            lambda: branch.on(later).create(point("y")),
            lambda: branch.storage.resolve(HEAD, later.name),
        ):
            with pytest.raises(CollectionNotFound):
                await call()

    async def test_overlays_are_not_listed(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        branch = await branch_of(storage)
        before = await storage.collections(dropped=True)
        await branch.on(handle).create(point("x"))
        assert await storage.collections(dropped=True) == before
        assert {c.id for c in await branch.storage.collections()} == {
            c.id for c in await storage.collections()
        }

    async def test_cannot_be_changed(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        view = (await branch_of(storage)).storage
        info = CollectionInfo(id=fresh_name())
        works: list[Callable[[WriteSession], Awaitable[object]]] = [
            lambda s: s.create_collection(info),
            lambda s: s.change_collection(handle.name, CollectionChange(author="me")),
            lambda s: s.drop_collection(handle.name),
            lambda s: s.restore_collection(handle.name),
        ]
        for work in works:
            with pytest.raises(NotSupported):
                await view.run(work, APP)
        await storage.collection(handle.name)


class TestLogOfABranch:
    async def test_entries_have_overlay_author_and_changes(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", 1, 2))
        branch = await branch_of(storage)
        there = branch.on(handle)
        await there.update(point("x", 5, 6), author="ann")
        await there.create(point("y"), point("z"))
        await handle.create(point("y"))
        await there.write(lambda session: session.message("note", "on the branch"))
        update, create, note = await log_after(branch.storage, branch.base)
        assert {t.overlay for t in (update, create, note)} == {branch.overlay}
        assert update.author == "ann"
        (signal,) = update.signals
        assert (signal.action, signal.id, signal.updated) == ("MODIFY_FEATURES", handle.name, 1)
        assert signal.bbox == (1.0, 2.0, 5.0, 6.0)
        assert create.signals[0].created == 2
        assert note.signals[0].text == "on the branch"
        assert await storage.transaction(update.txn) == update
        assert await branch.storage.transaction(update.txn) == update

    async def test_main_omits_branches_unless_requested(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        one, two = await branch_of(storage), await branch_of(storage)
        start = one.base.seq_number
        for n, place in enumerate((handle, one.on(handle), handle, two.on(handle), handle)):
            await place.create(point(f"x{n}"))
        await published(storage)
        numbers = [start + k for k in range(1, 6)]
        everywhere = await storage.transactions(start, where=LogFilter(overlays=None))
        assert [t.seq_number for t in everywhere] == numbers
        assert [t.overlay for t in everywhere] == [0, one.overlay, 0, two.overlay, 0]
        assert [t.seq_number for t in await storage.transactions(start)] == numbers[::2]
        chosen = LogFilter(overlays=(one.overlay, two.overlay))
        assert [t.seq_number for t in await storage.transactions(start, where=chosen)] == [
            *(numbers[1], numbers[3])
        ]
        assert [t.seq_number for t in await one.storage.transactions(start)] == [numbers[1]]
        newest = await storage.transactions(where=chosen, newest_first=True, limit=1)
        assert [t.seq_number for t in newest] == [numbers[3]]

    async def test_pages_are_full_whatever_lies_between(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        branch = await branch_of(storage)
        for n in range(6):
            await branch.on(handle).create(point(f"b{n}"))
            await branch.on(handle).update(point(f"b{n}", n=1))
            await handle.create(point(f"m{n}"))
        await published(storage)
        after, found = branch.base.seq_number, []
        while page := await storage.transactions(after, 4):
            found += page
            after = page[-1].seq_number or 0
            assert len(page) == 4 or len(found) == 6
        assert len(found) == 6


class TestLifeOfOverlays:
    async def test_numbers_are_never_given_out_again(self, storage: Storage) -> None:
        first = await new_overlay(storage)
        await storage.run(lambda s: s.drop_overlay(first), APP)
        await storage.maintain()

        async def two(session: WriteSession) -> tuple[int, int]:
            return await session.new_overlay(), await session.new_overlay()

        second, third = await storage.run(two, APP)
        assert len({MAIN, first, second, third}) == 4

    async def test_a_new_overlay_is_not_in_the_log(self, storage: Storage) -> None:
        before = await published(storage)
        await new_overlay(storage)
        assert await published(storage) == before

    async def test_dropped(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", n=1))
        gone, stays = await branch_of(storage), await branch_of(storage)
        for branch in (gone, stays):
            await branch.on(handle).update(point("x", n=branch.overlay))
        await storage.run(lambda s: s.drop_overlay(gone.overlay), APP)
        for _ in range(2):
            for call in (
                lambda: gone.on(handle).live(),
                lambda: gone.on(handle).create(point("y")),
            ):
                with pytest.raises(NotFound):
                    await call()
            assert await values(stays.on(handle)) == {"x": stays.overlay}
            assert await values(handle) == {"x": 1}
            await storage.maintain()
            # Dropping a missing overlay is not an error.
            await storage.run(lambda s: s.drop_overlay(gone.overlay), APP)
        log = await storage.transactions(
            gone.base.seq_number, where=LogFilter(overlays=(gone.overlay,))
        )
        assert len(log) == 1

    async def test_closing_a_branch_does_nothing(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        branch = await branch_of(storage)
        await branch.storage.close()
        await branch.on(handle).create(point("x"))
        assert (branch.storage.id, branch.storage.number) == (storage.id, storage.number)

    async def test_pins_keep_what_a_branch_needs(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage, max_age=1)
        await handle.create(point("x", n=0), point("y", n=0), point("dead"))
        await handle.delete("dead")
        branch = await branch_of(empty_storage)
        await empty_storage.pin("branch", branch.base)
        there = branch.on(handle)
        seen = []
        for n in range(1, 4):
            await there.update(point("x", n=n))
            await handle.update(point("x", n=-n), point("y", n=-n))
            seen.append((await handle.published(), await raw_states(there)))
        await there.purge("dead")
        head = await raw_states(there)
        later = (await handle.published()).published_ms + 3 * DAY_MS
        await empty_storage.maintain(later)
        for version, wanted in seen:
            assert (await raw_states(there, seq(version)))[:2] == wanted[:2]
        assert (await raw_states(there))[:2] == head[:2]

    async def test_without_pins_nothing_wrong_is_read(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage, max_age=1)
        await handle.create(point("x", n=0), point("y", n=0))
        branch = await branch_of(empty_storage)
        await branch.on(handle).update(point("x", n=1))
        await handle.update(point("y", n=2))
        later = (await handle.published()).published_ms + 3 * DAY_MS
        await empty_storage.maintain(later)
        for call in (
            lambda: branch.on(handle).live(),
            lambda: branch.on(handle).states(Query(ids=("y",))),
            lambda: branch.on(handle).update(point("y", n=3)),
            lambda: branch.storage.resolve(HEAD, handle.name),
        ):
            with pytest.raises(Expired):
                await call()
        assert await values(handle) == {"x": 0, "y": 2}

    async def test_the_past_of_an_overlay_grows_old_as_well(self, empty_storage: Storage) -> None:
        """Only the overlay has history to lose; its purged tombstone must stay hidden below."""
        handle = await new_collection(empty_storage, max_age=1)
        await handle.create(point("x", n=0), point("dead"))
        await handle.delete("dead")
        branch = await branch_of(empty_storage)
        there = branch.on(handle)
        await there.update(point("x", n=1))
        old = await there.published()
        await there.update(point("x", n=2))
        await there.purge("dead")
        last = await there.published()
        wanted = [*(await raw_states(there))[:2]]
        # Main's own tombstone stays in the deletion table: there is no later state in its history.
        await empty_storage.maintain(last.published_ms + 3 * DAY_MS)
        with pytest.raises(Expired):
            await there.live(seq(old))
        assert (await raw_states(there))[:2] == wanted
        assert (await raw_states(there, seq(last)))[:2] == wanted
        assert await there.deleted() == []
        with pytest.raises(FeatureNotFound):
            await there.restore("dead")
        await there.update(point("x", n=3))
        assert (await there.get("x")).xyz["version"] == 4

    async def test_maintenance_from_a_branch(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        branch = await branch_of(storage)
        await branch.on(handle).create(point("x", n=1))
        await branch.storage.maintain()
        assert await values(branch.on(handle)) == {"x": 1}


class TestBranchesAtOnce:
    async def test_many_first_writes(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(*(point(f"k{n}", n=0) for n in range(4)))
        branch = await branch_of(storage)
        there = branch.on(handle)

        async def writer(number: int) -> None:
            for key in range(4):
                await there.update(point(f"k{key}", n=number * 10 + key, by=number))
                await handle.update(point(f"k{key}", n=-number * 10 - key - 1))

        await asyncio.gather(*map(writer, range(1, 7)))
        for place in (there, handle):
            chains = await check_history(place)
            assert {len(chain) for chain in chains.values()} == {7}
            assert {chain[-1].xyz["version"] for chain in chains.values()} == {7}

    async def test_no_update_is_lost(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", n=0))
        one = await branch_of(storage)
        two = await one.branch()
        places = [handle, one.on(handle), two.on(handle)]
        await asyncio.gather(*(increment(places[n % 3], "x") for n in range(18)))
        for place in places:
            assert await values(place) == {"x": 6}
            await check_history(place)

    async def test_one_of_many_creates(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        there = (await branch_of(storage)).on(handle)
        results = await asyncio.gather(
            *(there.create(point("x", n=n)) for n in range(6)), return_exceptions=True
        )
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert all(isinstance(r, FeatureExists) for r in results if isinstance(r, Exception))

    async def test_a_session_that_others_overtake(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", n=0), point("y", n=0))
        branch = await branch_of(storage)
        there = branch.on(handle)
        # The first write creates the tables, which may block others.
        await there.update(point("y", n=1))
        async with branch.storage.write(APP) as session:
            await session.update(there.name, [point("x", n=1)])
            await handle.update(point("x", n=2))
            await there.update(point("y", n=3))
            await asyncio.sleep(0.05)
            await session.create(there.name, [point("z", n=4)])
        assert await values(there) == {"x": 1, "y": 3, "z": 4}
        assert await values(handle) == {"x": 2, "y": 0}
        await check_history(there)


class TestSplitsOfABranch:
    @pytest.mark.parametrize("kind", States)
    async def test_splits_together_are_the_answer(self, filled: Handle, kind: States) -> None:
        branch = await branch_of(filled.storage)
        there = branch.on(filled)
        await stir(there, "branch")
        version = await there.published()
        await stir(filled, "main")
        await stir(there, "later")
        await there.published()
        query = Query(states=kind)
        selectors: list[VersionSelector] = [seq(version), seq(branch.base), HEAD]
        for at in selectors:
            wanted = await there.storage.resolve(at)
            splits = await there.storage.plan(there.name, query, at)
            await stir(there, f"after the plan of {wanted.seq_number}")
            states = await there.states(query, seq(wanted))
            check_rows(await read_all(there.storage, splits), states)
            check_rows(await read_all(filled.storage, splits), states)

    async def test_filters(self, filled: Handle) -> None:
        there = (await branch_of(filled.storage)).on(filled)
        await stir(there, "branch")
        last = await there.published()
        for query in (
            Query(where=Test(("properties", "value"), Op.EQ, "branch")),
            Query(tags=(("t1",), ("t2",))),
            Query(spatial=Bbox(-10, -10, 20, 20)),
            Query(ids=("k001", "k002", "k061", "nobody")),
        ):
            splits = await there.storage.plan(there.name, query)
            check_rows(await read_all(there.storage, splits), await there.states(query, seq(last)))


def told(states: Sequence[State]) -> dict[str, list[Any]]:
    """Return the states without the numbers that differ between storages and branches."""
    found: dict[str, list[Any]] = defaultdict(list)
    for state in states:
        xyz = state.xyz
        found[state.id].append(
            (
                content(state),
                *(xyz[name] for name in ("action", "version", "author", "tags", "crid")),
                xyz["puuid"] is None,
                xyz["txn_next"] == "0",
            )
        )
    return found


class TestLikeACopy:
    """A branch and a full copy behave alike under the same random writes, while main changes."""

    KEYS = tuple(f"k{n}" for n in range(9))

    async def step(self, dice: random.Random, places: Sequence[Handle]) -> None:
        """Run the same random write in several places."""
        keys = dice.sample(self.KEYS, dice.randint(1, 3))
        kind = dice.choice(("upsert", "upsert", "upsert", "delete", "restore", "purge"))
        lon, lat, n = dice.uniform(0, 10), dice.uniform(0, 10), dice.randint(0, 3)
        tags = dice.choice((["a"], ["b", "a"], [], None))
        author = dice.choice((None, "ann", "bob"))
        features = [point(key, lon, lat, n=n) for key in keys]
        if tags is not None:
            features = [with_xyz(f, tags=tags) for f in features]
        calls: dict[str, Callable[[Handle], Awaitable[list[WriteOutcome]]]] = {
            "upsert": lambda place: place.upsert(*features, author=author),
            "delete": lambda place: place.delete(*keys, author=author),
            "restore": lambda place: place.restore(*keys, author=author),
            "purge": lambda place: place.purge(*keys),
        }
        outcomes = []
        for place in places:
            try:
                outcomes.append([(o.id, o.action, o.version) for o in await calls[kind](place)])
            except NakshaError as error:
                outcomes.append([(type(error).__name__, "", None)])
        assert all(outcome == outcomes[0] for outcome in outcomes)

    async def compare(self, dice: random.Random, places: Sequence[Handle]) -> None:
        west, south = dice.uniform(0, 8), dice.uniform(0, 8)
        for query in (
            Query(),
            Query(spatial=Bbox(west, south, west + 4, south + 4)),
            Query(tags=(("a",),)),
            Query(where=Test(("properties", "n"), Op.GTE, 2)),
            Query(ids=self.KEYS[2:5]),
            Query(authors=("ann",)),
            Query(actions=("UPDATE", "DELETE")),
        ):
            for kind in States:
                requested = msgspec.structs.replace(query, states=kind)
                found = [told(await place.states(requested)) for place in places]
                assert all(each == found[0] for each in found), requested
                counts = [await place.storage.count(place.name, requested) for place in places]
                assert counts == [sum(map(len, each.values())) for each in found]

    @pytest.mark.parametrize("seed", SEEDS)
    async def test_random_writes(self, storage: Storage, seed: int) -> None:
        dice = random.Random(seed)
        main, copy = await new_collection(storage), await new_collection(storage)
        places = [main, copy]
        branch: BranchCase | None = None
        past = []
        for _ in range(3):
            for _ in range(8):
                await self.step(dice, places)
                version = await published(storage)
                past.append((version, [await raw_states(place) for place in places[-2:]]))
            branch = await (branch_of(storage) if branch is None else branch.branch())
            places = [copy, branch.on(main)]
            await self.compare(dice, places)
            await self.step(dice, [main])
        for _ in range(15):
            await self.step(dice, places)
            await self.step(dice, [main])
            await self.compare(dice, places)
        for version, (_, seen) in past[-8:]:
            assert await raw_states(places[1], seq(version)) == seen

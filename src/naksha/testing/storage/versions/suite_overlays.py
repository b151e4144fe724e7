"""Conformance: a branch reads and writes like main, and each is isolated from the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
import shapely

from naksha.model.errors import Conflict, FeatureExists, FeatureNotFound, NotFound
from naksha.model.query import Bbox, Intersects, Op, Query, States, Test, Tile
from naksha.model.version import AtSeq, AtTime
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.branch_case import BranchCase, branch_of, raw_states
from naksha.testing.storage.read.suite_paging import pages
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    content,
    ids_of,
    in_order,
    new_collection,
    point,
    raw_of,
    rolled_back,
    seq,
    with_xyz,
)
from naksha.testing.storage.versions.suite_versions import check_replaced
from naksha.testing.storage.write.suite_concurrency import check_history

HERE, THERE = (8.5, 50.25), (-100.0, -20.0)


async def stirred(main: Handle) -> None:
    """Change main in every way that a branch might notice."""
    await main.upsert(*(point(key, *THERE, n="later") for key in ("a", "b", "c", "dead", "young")))
    await main.delete("a", "b", "d")
    await main.purge("b")


@pytest.fixture
async def main(storage: Storage) -> Handle:
    """A collection on main with `a` to `d`, of which `b` was updated, and the deleted `dead`."""
    handle = await new_collection(storage)
    await handle.create(*(point(key, *HERE, n=1) for key in ("a", "b", "c", "d", "dead")))
    await handle.update(point("b", *HERE, n=2), author="ann")
    await handle.delete("dead")
    return handle


@pytest.fixture
async def branch(main: Handle) -> BranchCase:
    """A branch of main with that collection."""
    return await branch_of(main.storage)


@pytest.fixture
def there(branch: BranchCase, main: Handle) -> Handle:
    """The collection on the branch."""
    return branch.on(main)


class TestReadingABranch:
    async def test_a_new_branch_is_what_it_was_made_from(self, main: Handle, there: Handle) -> None:
        assert await raw_states(there) == await raw_states(main)
        assert await there.storage.count(there.name, Query()) == 4
        assert (await there.get("b")).raw == (await main.get("b")).raw
        assert await there.storage.collection(there.name) == await main.storage.collection(
            main.name
        )

    async def test_main_goes_on_underneath(self, main: Handle, there: Handle) -> None:
        before = await raw_states(there)
        await stirred(main)
        assert await raw_states(there) == before
        await there.published()
        assert raw_of(await pages(there, Query(limit=2))) == before[0]

    async def test_main_does_not_see_the_branch(self, main: Handle, there: Handle) -> None:
        before = await raw_states(main)
        await there.upsert(point("a", n=5), point("new"))
        await there.delete("b")
        await there.restore("dead")
        assert await raw_states(main) == before
        assert await main.storage.count(main.name, Query()) == 4

    async def test_branches_do_not_see_each_other(self, main: Handle, there: Handle) -> None:
        other = (await branch_of(main.storage)).on(main)
        await there.update(point("a", n=5))
        await other.delete("a")
        await other.create(point("mine"))
        assert ids_of(await there.live()) == ["a", "b", "c", "d"]
        assert ids_of(await other.live()) == ["b", "c", "d", "mine"]
        assert content(await there.get("a"))["properties"] == {"n": 5}

    async def test_an_older_version_can_be_branched(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", n=1))
        old = await handle.published()
        await handle.update(point("x", n=2))
        await handle.delete("x")
        there = (await branch_of(storage, old)).on(handle)
        assert content(await there.get("x"))["properties"] == {"n": 1}
        assert await there.deleted() == []
        (outcome,) = await there.update(point("x", n=3))
        assert outcome.version == 2
        assert [s.feature["properties"]["n"] for s in await there.all()] == [1, 3]

    @pytest.mark.parametrize(
        "query",
        [
            Query(where=Test(("properties", "n"), Op.EQ, 1)),
            Query(tags=(("old",),)),
            Query(spatial=Bbox(8, 50, 9, 51)),
            Query(spatial=Tile("102")),
            Query(spatial=Intersects(shapely.Point(*HERE).wkb, 10)),
            Query(mrid_prefix="old"),
            Query(authors=("ann",)),
            Query(app_ids=("old",)),
            Query(actions=("CREATE",)),
            Query(qrid_prefix="1"),
        ],
        ids=lambda query: next(
            name
            for name in query.__struct_fields__
            if getattr(query, name) is not None and name != "states"
        ),
    )
    async def test_a_filter_holds_on_one_side_only(self, storage: Storage, query: Query) -> None:
        """A state below that matches is hidden by one above that does not.

        A state that matches only above is found.
        """
        handle = await new_collection(storage)
        old = with_xyz(point("x", *HERE, n=1), tags=["old"], crid="old")
        new = with_xyz(point("x", *THERE, n=2), tags=["new"], crid="new")
        await handle.create(old, with_xyz(old | {"id": "stays"}), app="old", author="ann")
        there = (await branch_of(storage)).on(handle)
        await there.update(new, app="new", author="bob")
        for limit in (None, 10):
            requested = msgspec.structs.replace(query, limit=limit)
            assert ids_of(in_order(await there.states(requested))) == ["stays"]
        assert await storage.count(handle.name, query) == 2
        assert await there.storage.count(there.name, query) == 1
        version = await there.published()
        assert ids_of(await there.states(query, seq(version))) == ["stays"]
        # A branch of the branch changes it back, so that only the upper overlay matches.
        if query.actions is None:
            again = await branch_of(storage)
            await again.on(handle).delete("x")
            await again.on(handle).create(old, app="old", author="ann")
            assert ids_of(await again.on(handle).states(query)) == ["stays", "x"]

    async def test_features_that_match_only_in_the_overlay_are_found(
        self, main: Handle, there: Handle
    ) -> None:
        await there.update(with_xyz(point("a", *THERE, n=77), tags=["new"]))
        for query in (
            Query(where=Test(("properties", "n"), Op.EQ, 77)),
            Query(tags=(("new",),)),
            Query(spatial=Bbox(-101, -21, -99, -19)),
            Query(spatial=Intersects(shapely.Point(*THERE).wkb)),
            Query(actions=("UPDATE",), where=Test(("properties", "n"), Op.GT, 2)),
        ):
            assert ids_of(await there.states(query)) == ["a"]
            assert await main.states(query) == []

    async def test_across_the_date_line(self, main: Handle, there: Handle) -> None:
        await there.update(point("a", 179.5, 1), point("b", -179.5, 1))
        await stirred(main)
        assert ids_of(await there.states(Query(spatial=Bbox(179, 0, -179, 2)))) == ["a", "b"]

    async def test_deleted_features(self, main: Handle, there: Handle) -> None:
        await there.delete("a", "b")
        assert ids_of(await there.live()) == ["c", "d"]
        assert ids_of(await there.deleted()) == ["a", "b", "dead"]
        box = Bbox(8, 50, 9, 51)
        assert ids_of(await there.states(Query(spatial=box))) == ["c", "d"]
        dead = Query(spatial=box, states=States.DELETED)
        assert ids_of(await there.states(dead)) == ["a", "b", "dead"]
        assert await there.storage.count(there.name, dead) == 3
        assert ids_of(await main.deleted()) == ["dead"]

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    @pytest.mark.parametrize("kind", States)
    async def test_pages_go_through_all_layers(
        self, main: Handle, there: Handle, limit: int, kind: States
    ) -> None:
        await there.upsert(point("b", n=9), point("bb"), point("0"))
        await there.delete("c")
        await stirred(main)
        await there.published()
        whole = await there.states(Query(states=kind))
        found = await pages(there, Query(states=kind, limit=limit))
        assert raw_of(found) == raw_of(whole)
        assert len(found) == await there.storage.count(there.name, Query(states=kind))

    async def test_pages_stay_at_their_version(self, main: Handle, there: Handle) -> None:
        await there.update(point("c", n=9))
        await there.published()
        wanted = raw_of(await there.live())

        async def disturb(number: int) -> None:
            await there.upsert(point("c", n=100 + number), point(f"x{number}"))
            await there.delete("d")
            await main.upsert(point("a", n=200 + number))

        assert raw_of(await pages(there, Query(limit=1), between=disturb)) == wanted


class TestWritingOnABranch:
    async def test_an_update_follows_the_state_below(self, main: Handle, there: Handle) -> None:
        below = await main.get("b")
        (outcome,) = await there.update(point("b", n=3))
        assert (outcome.action, outcome.version) == ("UPDATED", 3)
        state = await there.get("b")
        assert state.xyz["puuid"] == below.uuid
        assert state.xyz["version"] == below.xyz["version"] + 1
        assert state.xyz["createdAt"] == below.xyz["createdAt"]
        assert state.xyz["rtcts"] == below.xyz["rtcts"]
        assert state.xyz["author"] == "ann"
        assert (await main.get("b")).raw == below.raw

    async def test_all_states_are_one_chain(self, main: Handle, there: Handle) -> None:
        await there.update(point("b", n=3))
        await there.delete("b", "a")
        await there.restore("b")
        await there.update(point("b", n=4))
        await stirred(main)
        chains = await check_history(there)
        assert [s.xyz["action"] for s in chains["b"]] == [
            *("CREATE", "UPDATE", "UPDATE", "DELETE", "UPDATE", "UPDATE")
        ]
        assert [s.xyz["version"] for s in chains["b"]] == [1, 2, 3, 4, 5, 6]
        assert [s.xyz["action"] for s in chains["a"]] == ["CREATE", "DELETE"]

    async def test_features_below_the_overlay_exist(self, main: Handle, there: Handle) -> None:
        with pytest.raises(FeatureExists) as caught:
            await there.create(point("b"))
        assert caught.value.head == (await main.get("b")).feature
        with pytest.raises(FeatureNotFound):
            await there.update(point("nobody"))
        await main.create(point("later"))
        with pytest.raises(FeatureNotFound):
            await there.update(point("later"))
        await there.create(point("later", n="mine"))
        assert content(await main.get("later"))["properties"] == {}

    async def test_create_over_a_tombstone_below(self, main: Handle, there: Handle) -> None:
        await there.create(point("dead", n=9))
        state = await there.get("dead")
        assert (state.xyz["action"], state.xyz["version"], state.xyz["puuid"]) == (
            *("CREATE", 3, None),
        )
        assert await there.deleted() == []
        assert ids_of(await main.deleted()) == ["dead"]
        await check_history(there)

    async def test_restore_from_a_tombstone_below(self, main: Handle, there: Handle) -> None:
        (tombstone,) = await main.deleted()
        await there.restore("dead")
        state = await there.get("dead")
        assert (state.xyz["action"], state.xyz["version"]) == ("UPDATE", 3)
        assert state.xyz["puuid"] == tombstone.uuid
        assert state.xyz["createdAt"] == tombstone.xyz["createdAt"]
        with pytest.raises(FeatureNotFound):
            await there.restore("a")

    async def test_delete_leaves_a_tombstone(self, main: Handle, there: Handle) -> None:
        below = await main.get("a")
        (outcome,) = await there.delete("a")
        (tombstone,) = [s for s in await there.deleted() if s.id == "a"]
        assert (outcome.action, outcome.uuid) == ("DELETED", tombstone.uuid)
        assert tombstone.xyz["puuid"] == below.uuid
        assert tombstone.xyz["version"] == 2
        assert content(tombstone) == content(below)
        (again, nobody) = await there.delete("a", "nobody")
        assert (again.action, nobody.action) == ("RETAINED", "RETAINED")

    async def test_purge_of_a_tombstone_below(self, main: Handle, there: Handle) -> None:
        version = await there.published()
        (outcome,) = await there.purge("dead")
        assert outcome.action == "PURGED"
        assert await there.deleted() == []
        assert ids_of(await main.deleted()) == ["dead"]
        assert ids_of(await there.deleted(seq(version))) == ["dead"]
        with pytest.raises(FeatureNotFound):
            await there.restore("dead")
        with pytest.raises(Conflict):
            await there.purge("a")
        await there.create(point("dead"))
        assert (await there.get("dead")).xyz["version"] == 1

    async def test_equal_content_writes_nothing(self, main: Handle, there: Handle) -> None:
        before = await there.published()
        everywhere = await raw_states(there)
        (outcome,) = await there.update(point("b", *HERE, n=2))
        below = await main.get("b")
        assert (outcome.action, outcome.uuid) == ("RETAINED", below.uuid)
        assert outcome.state is not None
        assert outcome.state.raw == below.raw
        assert await there.published() == before
        await stirred(main)
        assert await raw_states(there) == everywhere

    async def test_locks(self, main: Handle, there: Handle) -> None:
        below = await main.get("b")
        await there.update(with_xyz(point("b", n=3), uuid=below.uuid))
        with pytest.raises(Conflict) as caught:
            await there.update(with_xyz(point("b", n=4), uuid=below.uuid))
        assert caught.value.head == (await there.get("b")).feature
        await main.update(point("c", n=4))
        with pytest.raises(Conflict):
            await there.update(with_xyz(point("c", n=5), uuid=(await main.get("c")).uuid))
        with pytest.raises(Conflict):
            await there.delete("c", uuids=[(await main.get("c")).uuid])
        await there.delete("c", uuids=[(await there.get("c")).uuid])
        with pytest.raises(Conflict):
            await main.update(with_xyz(point("b", n=5), uuid=(await there.get("b")).uuid))

    async def test_three_way_merge_with_a_base_below(self, main: Handle, there: Handle) -> None:
        base = await main.get("b")
        await there.update(point("b", *HERE, n=2, theirs=1))
        mine = with_xyz(point("b", *HERE, n=2, mine=1), uuid=base.uuid)
        await there.update(mine, merge=True)
        state = await there.get("b")
        assert content(state)["properties"] == {"n": 2, "theirs": 1, "mine": 1}
        assert state.xyz["muuid"] == base.uuid

    async def test_states_that_were_merged_are_named(self, main: Handle, there: Handle) -> None:
        await there.update(point("a", n=9))
        merged = await there.get("a")
        await main.storage.run(
            lambda s: s.upsert(main.name, [point("a", n=9)], muuids=[merged.uuid]), APP
        )
        assert (await main.get("a")).xyz["muuid"] == merged.uuid

    async def test_several_writes_in_one_transaction(self, main: Handle, there: Handle) -> None:
        below = await main.get("b")

        async def work(session: WriteSession) -> None:
            await session.update(there.name, [point("b", n=3)])
            await session.update(there.name, [point("b", n=4)])
            await session.delete(there.name, ["a"])
            await session.restore(there.name, ["a"])
            await session.create(there.name, [point("new")])
            await session.delete(there.name, ["new"])

        await there.write(work)
        state = await there.get("b")
        assert (state.xyz["version"], state.xyz["puuid"]) == (3, below.uuid)
        assert content(state)["properties"] == {"n": 4}
        assert len([s for s in await there.all() if s.id == "b"]) == 3
        assert ids_of(await there.deleted()) == ["dead", "new"]

    async def test_only_the_session_sees_its_uncommitted_writes(
        self, main: Handle, there: Handle
    ) -> None:
        async with there.storage.write(APP) as session:
            await session.update(there.name, [point("a", n=5)])
            await session.delete(there.name, ["b"])
            page = await session.page(there.name, Query(limit=10))
            assert ids_of(page.states) == ["a", "c", "d"]
            assert content(page.states[0])["properties"] == {"n": 5}
            assert await session.count(there.name, Query(states=States.DELETED)) == 2
            assert (await session.state(page.states[0].uuid)).raw == page.states[0].raw
            assert content(await there.get("a"))["properties"] == {"n": 1}
        assert ids_of(await there.live()) == ["a", "c", "d"]
        assert ids_of(await main.live()) == ["a", "b", "c", "d"]

    async def test_rolled_back_nothing_is_left(self, main: Handle, there: Handle) -> None:
        before = await raw_states(there)

        async def work(session: WriteSession) -> None:
            await session.upsert(there.name, [point("a", n=5), point("new")])
            await session.delete(there.name, ["b"])

        await rolled_back(there.storage, work)
        assert await raw_states(there) == before
        await stirred(main)
        assert await raw_states(there) == before

    async def test_several_collections_in_one_transaction(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        await one.create(point("x", n=1))
        branch = await branch_of(storage)
        async with branch.storage.write(APP) as session:
            await session.update(one.name, [point("x", n=2)])
            await session.create(two.name, [point("y")])
        x, y = await branch.on(one).get("x"), await branch.on(two).get("y")
        assert x.txn == y.txn
        assert await two.live() == []


class TestStateIdsOnABranch:
    async def test_unique_and_found_everywhere(self, main: Handle, there: Handle) -> None:
        other = (await branch_of(main.storage)).on(main)
        for round_ in range(3):
            for handle in (main, there, other):
                await handle.update(point("a", n=f"{round_}"), point("b", n=f"{round_}"))
        found: dict[str, bytes] = {}
        for handle in (main, there, other):
            for state in await handle.all():
                found.setdefault(state.uuid, state.raw)
        # Five states below (one updated, one deleted), then three rounds of two in three places.
        assert len(found) == 7 + 18
        for uuid, raw in found.items():
            assert uuid.split(":")[1:-4] == main.name.split(":")
            for handle in (main, there, other):
                state = await handle.storage.state(uuid)
                assert state.uuid == uuid
                assert content(state) == content(await main.storage.state(uuid))
            assert raw

    async def test_each_sees_the_end_that_it_made(self, main: Handle, there: Handle) -> None:
        shared = await main.get("a")
        await there.update(point("a", n="branch"))
        assert (await main.storage.state(shared.uuid)).raw == shared.raw
        ended = await there.storage.state(shared.uuid)
        assert int(ended.xyz["txn_next"]) == (await there.get("a")).txn
        await main.update(point("a", n="main"), point("c", n="main"))
        assert (await there.storage.state(shared.uuid)).raw == ended.raw
        untouched = await there.get("c")
        assert (await there.storage.state(untouched.uuid)).raw == untouched.raw
        assert (await main.storage.state(untouched.uuid)).xyz["txn_next"] != "0"

    async def test_of_a_dropped_overlay_they_are_gone(
        self, branch: BranchCase, there: Handle
    ) -> None:
        await there.update(point("a", n=5))
        state = await there.get("a")
        assert (await branch.main.state(state.uuid)).raw == state.raw
        await branch.main.run(lambda s: s.drop_overlay(branch.overlay), APP)
        with pytest.raises(NotFound):
            await branch.main.state(state.uuid)


class TestVersionsOfABranch:
    async def test_before_at_and_after_the_base(self, storage: Storage) -> None:
        main = await new_collection(storage)
        steps: list[tuple[Handle, Callable[[Handle], Awaitable[object]]]] = []
        wanted = []
        await main.create(point("x", n=1), point("y", n=1))
        wanted.append((await main.published(), await raw_states(main)))
        await main.update(point("x", n=2))
        await main.delete("y")
        wanted.append((await main.published(), await raw_states(main)))
        branch = await branch_of(storage)
        there = branch.on(main)
        steps = [
            (there, lambda h: h.update(point("x", n=3))),
            (main, lambda h: h.update(point("x", n="main"))),
            (there, lambda h: h.restore("y")),
            (main, lambda h: h.create(point("z"))),
            (there, lambda h: h.delete("x")),
            (there, lambda h: h.create(point("z", n="branch"))),
            (main, lambda h: h.delete("z")),
        ]
        for handle, step in steps:
            await step(handle)
            wanted.append((await main.published(), await raw_states(there)))
        for version, states in wanted:
            assert await raw_states(there, seq(version)) == states
            assert await raw_states(there, AtTime(version.published_ms)) is not None
        assert await raw_states(there, AtSeq(0)) == [[], [], []]
        await check_replaced(there, [version for version, _ in wanted])

    async def test_replaced_states_of_all_layers(self, storage: Storage) -> None:
        main = await new_collection(storage)
        await main.create(point("x", n=0), point("y"))
        await main.update(point("x", n=1))
        branch = await branch_of(storage)
        versions = [branch.base]
        for n in range(2, 5):
            await branch.on(main).update(point("x", n=n))
            await branch.on(main).delete("y")
            await branch.on(main).create(point("y", n=n))
            branch = await branch.branch()
            versions.append(branch.base)
        await stirred(main)
        there = branch.on(main)
        await there.delete("x")
        await check_replaced(there, [*versions, await there.published()])

    async def test_paged_at_versions(self, main: Handle, there: Handle) -> None:
        versions = []
        for n in range(3):
            await there.upsert(point("a", n=n), point(f"x{n}"))
            await there.delete("b")
            versions.append((await there.published(), raw_of(await there.live())))
            await there.restore("b")
        await stirred(main)
        for version, wanted in versions:
            assert raw_of(await pages(there, Query(limit=2), seq(version))) == wanted
            assert await there.storage.count(there.name, Query(), seq(version)) == len(wanted)

    async def test_inside_a_session(self, main: Handle, there: Handle) -> None:
        before = await there.published()
        async with there.storage.write(APP) as session:
            await session.update(there.name, [point("a", n=5)])
            page = await session.page(there.name, Query(ids=("a",)), seq(before))
            assert raw_of(page.states) == [(await main.get("a")).raw]

    async def test_boxes_and_tags_at_versions(self, main: Handle, there: Handle) -> None:
        await there.update(with_xyz(point("a", *THERE), tags=["t"]))
        marked = await there.published()
        await there.update(with_xyz(point("a", *HERE), tags=[]))
        await there.published()
        box = Query(spatial=Bbox(-101, -21, -99, -19))
        for query in (box, Query(tags=(("t",),))):
            assert await there.states(query) == []
            assert ids_of(await there.states(query, seq(marked))) == ["a"]

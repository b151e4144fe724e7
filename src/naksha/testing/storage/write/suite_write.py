"""Conformance: create, update, upsert, delete, restore and purge, feature by feature."""

from __future__ import annotations

import pytest

from naksha.model.errors import (
    Conflict,
    FeatureExists,
    FeatureNotFound,
    InvalidArgument,
    NakshaError,
)
from naksha.model.query import Query, States
from naksha.model.state import WriteOutcome
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.models.json_values import same
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    content,
    feature,
    ids_of,
    new_collection,
    point,
    published,
    rolled_back,
    seq,
    with_xyz,
)


def actions(outcomes: list[WriteOutcome]) -> list[tuple[str, str]]:
    return [(outcome.id, outcome.action) for outcome in outcomes]


class TestCreate:
    async def test_created_features_can_be_read(self, places: Handle) -> None:
        (outcome,) = await places.create(point("x", name="Hof"))
        assert (outcome.id, outcome.action, outcome.version) == ("x", "CREATED", 1)
        state = await places.get("x")
        assert same(content(state), point("x", name="Hof"))
        assert outcome.uuid == state.uuid
        assert outcome.state is not None
        assert outcome.state.feature == state.feature

    async def test_states_are_returned_only_on_request(self, places: Handle) -> None:
        (outcome,) = await places.write(lambda s: s.create(places.name, [point("x")]))
        assert outcome.state is None
        assert outcome.uuid == (await places.get("x")).uuid

    async def test_outcomes_come_in_the_order_of_the_input(self, places: Handle) -> None:
        names = ["z", "a", "ä", "M", "0"]
        outcomes = await places.create(*map(point, names))
        assert [outcome.id for outcome in outcomes] == names

    async def test_missing_ids_are_generated_and_returned(self, places: Handle) -> None:
        outcomes = await places.create(
            feature(None, n=1), feature(None, n=2), {"type": "Feature", "id": None}
        )
        assert len({outcome.id for outcome in outcomes}) == 3
        assert all(outcome.id for outcome in outcomes)
        for n in (1, 2):
            state = await places.get(outcomes[n - 1].id)
            assert state.feature["properties"]["n"] == n
            assert state.feature["id"] == state.id

    async def test_a_feature_needs_neither_geometry_nor_properties(self, places: Handle) -> None:
        await places.create({"type": "Feature", "id": "x"})
        state = await places.get("x")
        assert content(state)["properties"] == {}
        assert state.feature["geometry"] is None

    async def test_other_members_of_the_feature_are_kept(self, places: Handle) -> None:
        made = point("x") | {"momType": "Topology", "": [1], "customer's": {"a": None}}
        await places.create(made)
        assert same(content(await places.get("x")), made)

    async def test_a_live_feature_exists_already(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        with pytest.raises(FeatureExists) as caught:
            await places.create(point("y"), point("x", n=2))
        assert caught.value.feature_id == "x"
        assert caught.value.head is not None
        assert caught.value.head["properties"]["n"] == 1
        assert ids_of(await places.live()) == ["x"]

    async def test_of_one_id_twice_the_last_one_wins(self, places: Handle) -> None:
        outcomes = await places.create(point("x", n=1), point("y"), point("x", n=2))
        assert {outcome.id for outcome in outcomes} == {"x", "y"}
        assert content(await places.get("x"))["properties"] == {"n": 2}
        assert (await places.get("x")).xyz["version"] == 1
        assert len(await places.all()) == 2

    async def test_a_session_without_changes_is_not_a_transaction(self, places: Handle) -> None:
        before = await places.published()
        assert await places.create() == []
        assert await places.delete() == []
        assert await places.published() == before


class TestUpdate:
    async def test_the_content_is_replaced(self, places: Handle) -> None:
        await places.create(point("x", old=1, both=1))
        (outcome,) = await places.update(point("x", 1.0, 2.0, both=2))
        assert (outcome.action, outcome.version) == ("UPDATED", 2)
        assert same(content(await places.get("x")), point("x", 1.0, 2.0, both=2))

    async def test_absent_features_are_not_found(self, places: Handle) -> None:
        await places.create(point("x"), point("gone"))
        await places.delete("gone")
        for missing in ("nobody", "gone"):
            with pytest.raises(FeatureNotFound) as caught:
                await places.update(point("x", n=1), point(missing))
            assert caught.value.feature_id == missing
        assert content(await places.get("x"))["properties"] == {}

    async def test_an_update_needs_an_id(self, places: Handle) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await places.update(feature(None))
        assert (caught.value.field or "").endswith("id")

    async def test_of_one_id_twice_the_last_one_wins(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        await places.update(point("x", n=2), point("x", n=3))
        state = await places.get("x")
        assert content(state)["properties"] == {"n": 3}
        assert state.xyz["version"] == 2

    async def test_geometry_can_be_removed_and_given_back(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.update(feature("x"))
        assert (await places.get("x")).feature["geometry"] is None
        await places.update(point("x"))
        assert same(content(await places.get("x")), point("x"))


class TestEqualContent:
    @pytest.mark.parametrize("call", ["update", "upsert"])
    async def test_writes_no_state_and_no_transaction(self, places: Handle, call: str) -> None:
        made = with_xyz(point("x", a={"b": [1, 2.5, None]}, c="ü"), tags=["t"], crid="c")
        await places.create(made, author="first")
        before, version = await places.get("x"), await places.published()
        (outcome,) = await getattr(places, call)(made, author="second")
        assert (outcome.action, outcome.uuid) == ("RETAINED", before.uuid)
        assert outcome.version == 1
        assert (await places.get("x")).raw == before.raw
        assert await places.published() == version

    async def test_a_feature_as_it_was_read_is_equal(self, places: Handle) -> None:
        await places.create(with_xyz(point("x", a=1), tags=["t"], crid="c"))
        (outcome,) = await places.update((await places.get("x")).feature)
        assert outcome.action == "RETAINED"

    @pytest.mark.parametrize("xyz", [None, {}, {"tags": None}])
    async def test_without_tags_and_crid_they_are_not_compared(
        self, places: Handle, xyz: dict[str, None] | None
    ) -> None:
        """An update keeps what it omits, so omitting it changes nothing."""
        await places.create(with_xyz(point("x", a=1), tags=["t"], crid="c"))
        (outcome,) = await places.update(with_xyz(point("x", a=1), **(xyz or {})))
        assert outcome.action == "RETAINED"
        (outcome,) = await places.update(point("x", a=2))
        state = await places.get("x")
        assert (state.xyz["tags"], state.xyz["crid"]) == (["t"], "c")

    @pytest.mark.parametrize(
        "changed",
        [
            point("x", a=2),
            point("x", a=True),
            point("x", a="1"),
            point("x", a=1, b=None),
            point("x", lon=8.500000000000002, a=1),
            feature("x", {"type": "Point", "coordinates": [8.5, 50.25, 0.0]}, a=1),
            feature("x", {"type": "MultiPoint", "coordinates": [[8.5, 50.25]]}, a=1),
            feature("x", None, a=1),
            with_xyz(point("x", a=1), tags=[]),
            with_xyz(point("x", a=1), tags=["t", "u"]),
            with_xyz(point("x", a=1), crid="d"),
            point("x", a=1) | {"momType": "T"},
        ],
    )
    async def test_any_difference_is_a_new_state(self, places: Handle, changed: object) -> None:
        await places.create(with_xyz(point("x", a=1), tags=["t"], crid="c"))
        assert isinstance(changed, dict)
        (outcome,) = await places.update(changed)
        assert (outcome.action, outcome.version) == ("UPDATED", 2)

    async def test_equal_ones_do_not_keep_others_from_being_written(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("y", n=1))
        outcomes = await places.update(point("x", n=1), point("y", n=2))
        assert actions(outcomes) == [("x", "RETAINED"), ("y", "UPDATED")]


class TestUpsert:
    async def test_creates_and_updates_as_the_case_may_be(self, places: Handle) -> None:
        await places.create(point("old", n=1), point("same", n=1), point("gone"))
        await places.delete("gone")
        outcomes = await places.upsert(
            point("new"), point("old", n=2), point("same", n=1), point("gone")
        )
        assert actions(outcomes) == [
            ("new", "CREATED"),
            ("old", "UPDATED"),
            ("same", "RETAINED"),
            ("gone", "CREATED"),
        ]
        assert ids_of(await places.live()) == ["gone", "new", "old", "same"]

    async def test_missing_ids_are_generated(self, places: Handle) -> None:
        (outcome,) = await places.upsert(feature(None))
        assert outcome.action == "CREATED"
        assert ids_of(await places.live()) == [outcome.id]


class TestDelete:
    async def test_a_deleted_feature_is_gone_and_leaves_a_tombstone(self, places: Handle) -> None:
        await places.create(point("x", name="Hof"))
        (outcome,) = await places.delete("x")
        assert (outcome.id, outcome.action, outcome.version) == ("x", "DELETED", 2)
        assert await places.live() == []
        (tombstone,) = await places.deleted()
        assert tombstone.uuid == outcome.uuid
        assert same(content(tombstone), point("x", name="Hof"))
        assert outcome.state is not None
        assert outcome.state.feature == tombstone.feature

    async def test_absent_features_are_retained(self, places: Handle) -> None:
        await places.create(point("x"), point("gone"))
        await places.delete("gone")
        version = await places.published()
        outcomes = await places.delete("nobody", "gone")
        assert actions(outcomes) == [("nobody", "RETAINED"), ("gone", "RETAINED")]
        assert await places.published() == version

    async def test_the_same_id_twice_is_one_delete(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.delete("x", "x")
        (tombstone,) = await places.deleted()
        assert tombstone.xyz["version"] == 2

    async def test_states_of_a_deleted_feature_in_order(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        await places.update(point("x", n=2))
        await places.delete("x")
        states = await places.all()
        assert [s.xyz["action"] for s in states] == ["CREATE", "UPDATE", "DELETE"]
        assert [s.xyz["version"] for s in states] == [1, 2, 3]


class TestCreateAgain:
    async def test_counts_on_from_the_tombstone(self, places: Handle) -> None:
        await places.create(point("x", n=1), author="first")
        await places.delete("x")
        (outcome,) = await places.create(point("x", n=2))
        assert (outcome.action, outcome.version) == ("CREATED", 3)
        state = await places.get("x")
        assert (state.xyz["action"], state.xyz["puuid"]) == ("CREATE", None)
        assert state.xyz["createdAt"] == state.xyz["updatedAt"]
        assert state.xyz["author"] == APP

    async def test_forgets_tags_and_crid_of_the_old_life(self, places: Handle) -> None:
        await places.create(with_xyz(point("x"), tags=["t"], crid="c"))
        await places.delete("x")
        await places.create(point("x"))
        state = await places.get("x")
        assert (state.xyz.get("tags") or [], state.xyz.get("crid")) == ([], None)

    async def test_takes_the_tombstone_away_from_now_on(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.delete("x")
        dead = await places.published()
        await places.create(point("x"))
        alive = await places.published()
        assert await places.deleted() == []
        assert await places.deleted(seq(alive)) == []
        assert ids_of(await places.deleted(seq(dead))) == ["x"]
        assert await places.live(seq(dead)) == []
        assert [s.xyz["action"] for s in await places.all()] == ["CREATE", "DELETE", "CREATE"]


class TestRestore:
    async def test_brings_the_content_back(self, places: Handle) -> None:
        await places.create(with_xyz(point("x", n=1), tags=["t"], crid="c"), author="first")
        created = await places.get("x")
        (deleted,) = await places.delete("x", author="second")
        (outcome,) = await places.restore("x", app="other")
        assert (outcome.action, outcome.version) == ("RESTORED", 3)
        state = await places.get("x")
        assert same(content(state), point("x", n=1))
        xyz = state.xyz
        assert (xyz["action"], xyz["puuid"]) == ("UPDATE", deleted.uuid)
        assert (xyz["tags"], xyz["crid"]) == (["t"], "c")
        assert xyz["createdAt"] == created.xyz["createdAt"]
        assert (xyz["author"], xyz["appId"]) == ("second", "other")
        assert await places.deleted() == []

    async def test_needs_a_tombstone(self, places: Handle) -> None:
        await places.create(point("live"), point("dead"))
        await places.delete("dead")
        for missing in ("nobody", "live"):
            with pytest.raises(FeatureNotFound) as caught:
                await places.restore("dead", missing)
            assert caught.value.feature_id == missing
        assert ids_of(await places.live()) == ["live"]


class TestPurge:
    async def test_the_tombstone_is_gone_from_now_on_only(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.delete("x")
        dead = await places.published()
        assert actions(await places.purge("x")) == [("x", "PURGED")]
        purged = await places.published()
        assert await places.deleted() == []
        assert await places.deleted(seq(purged)) == []
        assert ids_of(await places.deleted(seq(dead))) == ["x"]
        with pytest.raises(FeatureNotFound):
            await places.restore("x")

    async def test_history_stays(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        first = await places.published()
        await places.delete("x")
        await places.purge("x")
        assert content((await places.live(seq(first)))[0])["properties"] == {"n": 1}
        assert [s.xyz["action"] for s in await places.all()] == ["CREATE", "DELETE"]

    async def test_a_live_feature_is_a_conflict(self, places: Handle) -> None:
        await places.create(point("live"), point("dead"))
        await places.delete("dead")
        with pytest.raises(Conflict) as caught:
            await places.purge("dead", "live")
        assert caught.value.feature_id == "live"
        assert ids_of(await places.deleted()) == ["dead"]

    async def test_absent_features_are_retained(self, places: Handle) -> None:
        version = await places.published()
        assert actions(await places.purge("nobody")) == [("nobody", "RETAINED")]
        assert await places.published() == version

    async def test_only_published_tombstones(self, places: Handle) -> None:
        """A tombstone of the same transaction stays, whether as an error or as RETAINED."""
        await places.create(point("x"))

        async def delete_and_purge(session: WriteSession) -> None:
            await session.delete(places.name, ["x"])
            (outcome,) = await session.purge(places.name, ["x"])
            assert outcome.action == "RETAINED"

        try:
            await places.write(delete_and_purge)
        except NakshaError:
            assert ids_of(await places.live()) == ["x"]
        else:
            assert ids_of(await places.deleted()) == ["x"]

    async def test_after_a_purge_a_feature_is_new(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.delete("x")
        await places.purge("x")
        (outcome,) = await places.create(point("x"))
        assert (outcome.action, outcome.version) == ("CREATED", 1)


class TestOneTransaction:
    async def test_all_of_it_or_nothing(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        await one.create(point("taken"))
        before = await published(storage)

        async def work(session: WriteSession) -> None:
            await session.create(two.name, [point("a"), point("b")])
            await session.message("note", "will never be")
            await session.create(one.name, [point("new"), point("taken")])

        with pytest.raises(FeatureExists):
            await storage.run(work, APP)
        assert (ids_of(await one.live()), await two.live()) == (["taken"], [])
        assert await published(storage) == before

    async def test_several_collections_share_one_txn(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        before = await published(storage)
        seen = []
        async with storage.write(APP) as session:
            seen.append(session.txn)
            await session.create(one.name, [point("x")])
            seen.append(session.txn)
            await session.create(two.name, [point("y")])
            seen.append(session.txn)
        txn = (await one.get("x")).txn
        assert seen == [None, txn, txn]
        assert (await two.get("y")).txn == txn
        assert (await published(storage)).seq_number == before.seq_number + 1

    async def test_only_the_session_reads_its_uncommitted_writes(self, places: Handle) -> None:
        await places.create(point("gone"), point("kept", n=1))
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("new")])
            await session.update(places.name, [point("kept", n=2)])
            await session.delete(places.name, ["gone"])
            page = await session.page(places.name, Query(limit=9))
            dead = await session.page(places.name, Query(states=States.DELETED))
            assert ids_of(page.states) == ["kept", "new"]
            assert page.states[0].feature["properties"]["n"] == 2
            assert ids_of(dead.states) == ["gone"]
            assert await session.count(places.name, Query()) == 2
            streamed = [state async for state in session.states(places.name, Query())]
            assert sorted(ids_of(streamed)) == ["kept", "new"]
            assert ids_of(await places.live()) == ["gone", "kept"]
            assert await places.deleted() == []

    async def test_a_rolled_back_session_leaves_no_trace(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        before, version = await places.all(), await places.published()

        async def work(session: WriteSession) -> None:
            await session.update(places.name, [point("x", n=2)])
            await session.create(places.name, [point("y")])
            await session.delete(places.name, ["x"])

        await rolled_back(places.storage, work)
        assert [s.raw for s in await places.all()] == [s.raw for s in before]
        assert await places.published() == version


class TestLayers:
    """Writes on behalf of views; see `Modification.after` and `Modification.unmasks`."""

    async def test_a_version_continues_after_that_of_a_lower_layer(self, places: Handle) -> None:
        made = [point("x", h=1), point("y"), feature("z")]
        outcomes = await places.write(lambda s: s.create(places.name, made, after=[6, 0, 2]))
        assert [outcome.version for outcome in outcomes] == [7, 1, 3]
        assert [s.xyz["version"] for s in await places.live()] == [7, 1, 3]
        assert same(content(await places.get("x")), made[0])
        await places.update(point("x", h=2))
        assert (await places.get("x")).xyz["version"] == 8
        await places.delete("x")
        (again,) = await places.write(lambda s: s.create(places.name, made[:1], after=[2]))
        assert again.version == 12

    @pytest.mark.parametrize("after", [[], [1, 1], [-1], [2**63]])
    async def test_versions_to_continue_after_are_checked(
        self, places: Handle, after: list[int]
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await places.write(lambda s: s.create(places.name, [point("x")], after=after))
        assert caught.value.field == "after"

    async def test_a_tombstone_records_that_it_does_not_mask(self, places: Handle) -> None:
        await places.create(point("x"), point("y"))
        (outcome, nothing) = await places.write(
            lambda s: s.delete(places.name, ["x", "none"], masks=False, returning=True)
        )
        assert (outcome.action, nothing.action) == ("DELETED", "RETAINED")
        await places.delete("y")
        marks = {s.id: s.xyz.get("masks") for s in await places.deleted()}
        assert marks == {"x": False, "y": None}
        await places.write(lambda s: s.restore(places.name, ["x"]))
        assert "masks" not in (await places.get("x")).xyz
        await places.delete("x")
        assert {s.id: s.xyz.get("masks") for s in await places.deleted()} == {"x": None, "y": None}

"""Rules of a write for existing and for missing features."""

import re

import pytest

from naksha.hub.config.space_collections import derived_collection_id
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    FeatureExists,
    FeatureNotFound,
    InvalidArgument,
)
from naksha.model.state import XYZ
from tests.hub.write.support import HERE, Desk, feature, modification


async def test_missing_features_are_created_and_returned(desk: Desk) -> None:
    written = await desk.write(feature("b", n=1), feature("a", n=2))
    assert (written.inserted, written.updated, written.retained) == (("b", "a"), (), ())
    assert [state.id for state in written.states] == ["b", "a"]
    assert written.version is not None
    state = written.states[0]
    assert state.xyz["space"] == desk.space_id
    assert state.xyz["action"] == "CREATE"
    assert state.feature["properties"]["n"] == 1


async def test_a_patch_merges_objects_removes_null_and_replaces_arrays(desk: Desk) -> None:
    await desk.write(
        feature("a", {"tags": ["x"]}, keep=1, gone=2, list=[1, 2], deep={"a": 1, "b": 2})
    )
    patch = {"id": "a", "properties": {"gone": None, "list": [3], "deep": {"b": None, "c": 3}}}
    written = await desk.write(patch, ne="retain")
    assert written.updated == ("a",)
    assert await desk.properties("a") == {"keep": 1, "list": [3], "deep": {"a": 1, "c": 3}}
    state = await desk.state("a")
    assert state.feature["geometry"] == HERE
    assert state.xyz["tags"] == ["x"]
    assert state.xyz["version"] == 2


async def test_a_patch_may_take_the_geometry_and_the_tags_away(desk: Desk) -> None:
    await desk.write(feature("a", {"tags": ["x"], "crid": "mine"}))
    await desk.write(
        {"id": "a", "geometry": None, "properties": {XYZ: {"tags": None, "crid": None}}}
    )
    state = await desk.state("a")
    assert state.feature["geometry"] is None
    assert (state.xyz["tags"], state.xyz["crid"]) == ([], None)


async def test_a_put_replaces_all_properties(desk: Desk) -> None:
    await desk.put(feature("a", old=1))
    written = await desk.put(feature("a", new=2))
    assert written.updated == ("a",)
    assert await desk.properties("a") == {"new": 2}


@pytest.mark.parametrize("e", ["patch", "replace"])
async def test_unchanged_features_are_returned_but_not_written(desk: Desk, e: str) -> None:
    first = await desk.write(feature("a", n=1))
    again = await desk.write(feature("a", n=1), e=e, message="nothing new")
    assert (again.updated, again.retained, again.txn) == ((), ("a",), None)
    assert again.states[0].uuid == first.states[0].uuid
    assert again.states[0].xyz["space"] == desk.space_id


@pytest.mark.parametrize("transactional", [True, False])
async def test_all_rules_for_existing_features(desk: Desk, transactional: bool) -> None:
    await desk.write(feature("a", n=1))
    kept = await desk.write(feature("a", n=2), e="retain", transactional=transactional)
    assert kept.retained == ("a",)
    assert kept.states[0].feature["properties"]["n"] == 1
    with pytest.raises(FeatureExists) as exists:
        await desk.write(feature("a", n=2), e="error", transactional=transactional)
    assert (exists.value.feature_id, exists.value.position, exists.value.field) == ("a", 0, "id")
    assert exists.value.head is not None
    assert exists.value.head["properties"]["n"] == 1
    gone = await desk.write(feature("a"), e="delete", transactional=transactional)
    assert (gone.deleted, gone.states) == (("a",), ())
    assert gone.tombstones[0].xyz["action"] == "DELETE"
    assert await desk.states() == {}


async def test_all_rules_for_missing_features(desk: Desk) -> None:
    kept = await desk.write(feature("a"), ne="retain")
    assert (kept.retained, kept.states, kept.txn) == (("a",), (), None)
    with pytest.raises(FeatureNotFound) as missing:
        await desk.write(feature("b"), feature("a"), ne="error")
    assert (missing.value.feature_id, missing.value.position) == ("b", 0)
    assert await desk.states() == {}


async def test_ids_are_deleted_and_missing_ones_are_retained_or_an_error(desk: Desk) -> None:
    await desk.write(feature("a"), feature("b"))
    gone = await desk.write(ids=("a", "nobody"), e="delete")
    assert (gone.deleted, gone.retained) == (("a",), ("nobody",))
    assert [state.id for state in gone.tombstones] == ["a"]
    with pytest.raises(FeatureNotFound) as missing:
        await desk.write(ids=("b", "nobody"), e="delete", ne="error")
    assert (missing.value.feature_id, missing.value.position) == ("nobody", 1)
    assert set(await desk.states()) == {"b"}
    partly = await desk.write(ids=("b", "nobody"), e="delete", ne="error", transactional=False)
    assert partly.deleted == ("b",)
    assert [(each.id, each.position, each.code) for each in partly.failed] == [
        ("nobody", 1, "feature_not_found")
    ]


async def test_an_id_alone_cannot_be_changed(desk: Desk) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await desk.write(ids=("a",), e="patch")
    assert (refused.value.feature_id, refused.value.position) == ("a", 0)


async def test_the_last_feature_with_an_id_counts(desk: Desk) -> None:
    for e in ("replace", "patch"):
        written = await desk.write(feature("a", n=1), feature("b"), feature("a", n=e), e=e)
        assert await desk.properties("a") == {"n": e}
        assert [state.id for state in written.states] == ["b", "a"]
        assert [(each.id, each.position) for each in written.notices] == [("a", 0)]


async def test_features_get_ids_prefixes_and_tags(desk: Desk) -> None:
    written = await desk.write(
        feature(None),
        feature(7, {"tags": ["Mine", "bad"]}),
        prefix_id="p:",
        add_tags=("Füße", "@Keep", "bad"),
        remove_tags=("BAD",),
    )
    made, numbered = written.states
    assert re.fullmatch(r"p:[A-Za-z0-9]{16}", made.id)
    assert numbered.id == "p:7"
    assert numbered.xyz["tags"] == ["mine", "fue", "@Keep"]
    assert made.xyz["tags"] == ["fue", "@Keep"]
    await desk.write({"id": "7", "properties": {"n": 1}}, prefix_id="p:", remove_tags=("mine",))
    assert (await desk.state("p:7")).xyz["tags"] == ["fue", "@Keep"]
    await desk.write(ids=("7",), e="delete", prefix_id="p:")
    assert set(await desk.states()) == {made.id}


async def test_tags_of_a_put_are_added_to_those_that_are_there(desk: Desk) -> None:
    await desk.write(feature("a", {"tags": ["old"]}), feature("b", {"tags": ["old"]}))
    await desk.put(feature("a"), feature("b", {"tags": ["own"]}), add_tags=("new",))
    found = await desk.states()
    assert (found["a"].xyz["tags"], found["b"].xyz["tags"]) == (["old", "new"], ["own", "new"])


async def test_later_modifications_see_earlier_ones(desk: Desk) -> None:
    await desk.write(feature("old"))
    written = await desk.modify(
        modification(feature("a", n=1), feature("b")),
        modification({"id": "a", "properties": {"m": 2}}, e="patch", ne="error"),
        modification(ids=("b", "old"), e="delete"),
        message="all at once",
    )
    assert (written.inserted, written.updated, written.deleted) == (("a",), (), ("b", "old"))
    assert await desk.properties("a") == {"n": 1, "m": 2}
    assert written.states[0].feature["properties"]["m"] == 2
    storage = await desk.storage()
    assert written.txn is not None
    transaction = await storage.transaction(written.txn)
    assert "all at once" in str(transaction)


async def test_nothing_is_left_of_earlier_modifications_when_a_later_one_fails(desk: Desk) -> None:
    with pytest.raises(FeatureNotFound) as missing:
        await desk.modify(
            modification(feature("a"), feature("b")),
            modification(feature("c"), ne="error"),
        )
    assert (missing.value.feature_id, missing.value.position) == ("c", 2)
    assert await desk.states() == {}


async def test_states_can_be_left_out(desk: Desk) -> None:
    assert (await desk.put(feature("a"), returning=False)).states == ()
    for e in ("patch", "retain", "delete"):
        answer = await desk.write(feature("a", n=e), e=e, returning=False)
        assert (answer.states, answer.tombstones) == ((), ())


async def test_a_namespace_inside_the_properties_does_not_get_the_space(desk: Desk) -> None:
    inner = {XYZ: {"mine": f'"{XYZ}": {{'}}
    written = await desk.write(feature("a", deep=inner))
    assert written.states[0].feature["properties"]["deep"] == inner
    assert written.states[0].xyz["space"] == desk.space_id
    assert (await desk.properties("a"))["deep"] == inner


async def test_a_geometry_over_the_date_line_is_split_with_a_notice(desk: Desk) -> None:
    line = {"type": "LineString", "coordinates": [[170.0, 0.0], [190.0, 0.0]]}
    point = {"type": "Point", "coordinates": [190.0, 0.0]}
    written = await desk.write(
        feature("a"), {**feature("b"), "geometry": line}, {**feature("c"), "geometry": point}
    )
    assert [(each.id, each.position) for each in written.notices] == [("b", 1), ("c", 2)]
    found = await desk.states()
    assert found["b"].feature["geometry"]["type"] == "MultiLineString"
    assert found["c"].feature["geometry"]["coordinates"] == [-170.0, 0.0]


async def test_a_uuid_must_be_the_one_that_is_there(desk: Desk) -> None:
    first = (await desk.write(feature("a", n=1))).states[0].uuid
    second = (await desk.write(feature("a", n=2))).states[0].uuid
    for e in ("patch", "replace", "delete"):
        for transactional in (True, False):
            with pytest.raises(Conflict) as refused:
                await desk.write(
                    feature("a", {"uuid": first}, n=3), e=e, transactional=transactional
                )
            error = refused.value
            assert (error.feature_id, error.position) == ("a", 0)
            assert error.field is not None
            assert error.field.endswith("uuid")
            assert error.head is not None
            assert error.head["properties"]["n"] == 2
    await desk.write(feature("a", {"uuid": second}, n=3))
    await desk.write(feature("a", {"uuid": "of:another:2020:1:1:1"}, n=4))
    assert await desk.properties("a") == {"n": 4}
    await desk.write(ids=("a",), e="delete")
    with pytest.raises(Conflict):
        await desk.write(feature("a", {"uuid": second}, n=5))


async def test_a_slow_publication_omits_the_version(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_WAIT_SECONDS", 0.1)
    await desk.put(feature("a"))
    storage = await desk.storage()
    async with storage.write("slow") as session:
        # While this one is open, later ones get no number in the log.
        await session.upsert(derived_collection_id(desk.space_id), [feature("slow")])
        written = await desk.put(feature("b"))
        assert written.txn is not None
        assert (written.inserted, written.version) == (("b",), None)
    assert await storage.wait_published(written.txn) is not None

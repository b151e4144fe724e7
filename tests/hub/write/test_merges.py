"""Base versions of a writer: conflict detection and three-way merges."""

import pytest

from naksha.model.errors import Conflict, InvalidArgument, NakshaError
from naksha.model.state import XYZ, State
from tests.hub.write.support import Desk, Feature, feature, properties_of


async def two_versions(desk: Desk) -> tuple[State, State]:
    """A feature as it was read, and the change of another writer."""
    first = (await desk.write(feature("a", {"tags": ["t"]}, mine=1, theirs=1, both=1))).states[0]
    second = (await desk.write({"id": "a", "properties": {"theirs": 2, "both": 2}})).states[0]
    return first, second


def edited(state: State, said: str, **properties: object) -> Feature:
    """The feature as a client sends it after an edit, with one part of its namespace."""
    kept = {"uuid": state.uuid, "version": state.xyz["version"]}
    return feature(state.id, {said: kept[said]}, **{**properties_of(state), **properties})


@pytest.mark.parametrize("said", ["uuid", "version"])
async def test_changes_of_both_sides_are_merged(desk: Desk, said: str) -> None:
    first, second = await two_versions(desk)
    written = await desk.write(edited(first, said, mine=5), e="merge")
    assert written.updated == ("a",)
    assert await desk.properties("a") == {"mine": 5, "theirs": 2, "both": 2}
    xyz = (await desk.state("a")).xyz
    assert (xyz["muuid"], xyz["puuid"], xyz["tags"]) == (first.uuid, second.uuid, ["t"])


@pytest.mark.parametrize("said", ["uuid", "version"])
@pytest.mark.parametrize("transactional", [True, False])
async def test_a_merge_conflict_is_settled_as_asked_for(
    desk: Desk, said: str, transactional: bool
) -> None:
    first, _ = await two_versions(desk)
    sent = edited(first, said, mine=5, both=5)
    with pytest.raises(Conflict) as refused:
        await desk.write(sent, e="merge", transactional=transactional)
    assert (refused.value.feature_id, refused.value.field) == ("a", "/properties/both")
    assert refused.value.head is not None
    assert refused.value.head["properties"]["both"] == 2
    assert await desk.properties("a") == {"mine": 1, "theirs": 2, "both": 2}
    await desk.write(sent, e="merge", cr="retain")
    assert await desk.properties("a") == {"mine": 5, "theirs": 2, "both": 2}
    await desk.write(edited(first, said, mine=1, both=7), e="merge", cr="replace")
    assert await desk.properties("a") == {"mine": 5, "theirs": 2, "both": 7}


async def test_a_merge_with_the_head_as_base_replaces(desk: Desk) -> None:
    _, second = await two_versions(desk)
    for said in ("uuid", "version"):
        state = await desk.state("a")
        await desk.write(feature("a", {said: state.xyz[said]}, only=said), e="merge")
        assert await desk.properties("a") == {"only": said}
    assert (await desk.state("a")).xyz.get("muuid") is None
    assert second.uuid != (await desk.state("a")).uuid


async def test_a_merge_needs_a_base_that_is_known(desk: Desk) -> None:
    await two_versions(desk)
    await desk.write(feature("b"))
    other = (await desk.state("b")).uuid
    await desk.write(feature("b", n=2))
    cases: list[tuple[Feature | None, type[NakshaError]]] = [
        ({"version": 77}, Conflict),
        ({"uuid": other}, InvalidArgument),
    ]
    for number, (xyz, kind) in enumerate(cases):
        with pytest.raises(kind) as refused:
            await desk.write(feature("a", xyz, mine=5), e="merge")
        assert (refused.value.feature_id, refused.value.position) == ("a", 0)
        partly = await desk.write(
            feature(f"new{number}"), feature("a", xyz, mine=5), e="merge", transactional=False
        )
        assert [(each.id, each.position) for each in partly.failed] == [("a", 1)]
    assert (await desk.properties("a"))["mine"] == 1


async def test_a_merge_with_what_is_gone_is_a_conflict_or_settled(desk: Desk) -> None:
    first, _ = await two_versions(desk)
    await desk.write(ids=("a",), e="delete")
    sent = edited(first, "uuid", mine=5)
    with pytest.raises(Conflict):
        await desk.write(sent, e="merge")
    kept = await desk.write(sent, e="merge", cr="retain")
    assert (kept.retained, kept.txn) == (("a",), None)
    made = await desk.write(sent, e="merge", cr="replace")
    assert made.inserted == ("a",)
    assert (await desk.properties("a"))["mine"] == 5


async def test_tags_are_merged_and_changed(desk: Desk) -> None:
    first, _ = await two_versions(desk)
    await desk.write(
        edited(first, "uuid", mine=5), e="merge", add_tags=("new",), remove_tags=("t",)
    )
    assert (await desk.state("a")).xyz["tags"] == ["new"]


@pytest.mark.parametrize("e", ["patch", "replace", "delete"])
async def test_conflict_detection_requires_the_version_of_head(desk: Desk, e: str) -> None:
    first, second = await two_versions(desk)
    for xyz in ({"version": first.xyz["version"]}, {"uuid": first.uuid}, {}):
        with pytest.raises(Conflict) as refused:
            await desk.write(feature("a", xyz, n=1), e=e, conflict_detection=True)
        assert refused.value.head is not None
        assert refused.value.head["properties"][XYZ]["uuid"] == second.uuid
    for said in ("version", "uuid"):
        state = (await desk.states()).get("a")
        xyz = {} if state is None else {said: state.xyz[said]}
        written = await desk.write(feature("a", xyz, n=said), e=e, conflict_detection=True)
        assert not written.failed
    absent = await desk.write(feature("gone", {"version": 3}), e=e, conflict_detection=True)
    assert absent.inserted == ("gone",)
    assert (await desk.write(feature("new"), e=e, conflict_detection=True)).inserted == ("new",)


async def test_a_version_that_was_not_read_any_more_is_a_conflict(desk: Desk) -> None:
    read_at = (await desk.write(feature("a", n=1), feature("b", n=1))).version
    await desk.write(feature("a", n=2))
    with pytest.raises(Conflict) as refused:
        await desk.write(feature("b", n=3), feature("a", n=3), ref=str(read_at))
    assert (refused.value.feature_id, refused.value.position) == ("a", 1)
    written = await desk.write(feature("b", n=3), feature("c"), ref=str(read_at))
    assert (written.inserted, written.updated) == (("c",), ("b",))
    with pytest.raises(Conflict):
        await desk.write(feature("c", n=1), ref=str(read_at))
    await desk.write(ids=("b",), e="delete")
    with pytest.raises(Conflict) as gone:
        await desk.write(feature("b", n=4), ref=str(read_at))
    assert (gone.value.feature_id, gone.value.head) == ("b", None)


async def test_a_merge_is_based_on_the_version_that_is_named(desk: Desk) -> None:
    first, _ = await two_versions(desk)
    storage = await desk.storage()
    version = await storage.wait_published(first.txn)
    assert version is not None
    sent = feature("a", **{**properties_of(first), "mine": 9})
    await desk.write(sent, e="merge", ref=str(version.seq_number))
    assert await desk.properties("a") == {"mine": 9, "theirs": 2, "both": 2}

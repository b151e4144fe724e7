"""Writes with some invalid features: nothing is written, or all but these."""

from typing import Any

import pytest

from naksha.hub.pipeline.responses import Written
from naksha.model.errors import Conflict, FeatureExists, InvalidArgument, NakshaError
from naksha.model.limits import INT8_MAX
from naksha.model.state import XYZ
from tests.hub.write.support import Desk, feature

BAD_GEOMETRY = {"type": "Point", "coordinates": ["east", 1]}
DEEP: Any = {}
for _ in range(5000):
    DEEP = {"d": DEEP}

BAD: dict[str, tuple[Any, str | None, str]] = {
    "no object": (7, None, "features[1]"),
    "bad id": ({**feature(""), "n": 1}, None, "id"),
    "boolean id": ({**feature("x"), "id": True}, None, "id"),
    "bad type": ({**feature("x"), "type": "Fish"}, "x", "type"),
    "no type": ({"id": "x", "properties": {}}, "x", "type"),
    "bad geometry": ({**feature("x"), "geometry": BAD_GEOMETRY}, "x", "geometry"),
    "bad properties": ({**feature("x"), "properties": 5}, "x", "properties"),
    "bad namespace": (feature("x", None, **{XYZ: []}), "x", f"properties.{XYZ}"),
    "bad tags": (feature("x", {"tags": "abc"}), "x", f"properties.{XYZ}.tags"),
    "bad uuid": (feature("x", {"uuid": 5}), "x", f"properties.{XYZ}.uuid"),
    "bad version": (feature("x", {"version": True}), "x", f"properties.{XYZ}.version"),
    "not finite": (feature("x", n=float("nan")), "x", "properties.n"),
}


@pytest.mark.parametrize("e", ["patch", "replace"])
async def test_an_error_names_feature_position_and_field(desk: Desk, e: str) -> None:
    await desk.write(feature("first"))
    for case, (bad, id, field) in BAD.items():
        with pytest.raises(InvalidArgument) as refused:
            await desk.write(feature("good"), bad, e=e)
        error = refused.value
        assert (error.feature_id, error.position) == (id, 1), case
        assert error.field is not None
        assert error.field.startswith(field), case
    assert set(await desk.states()) == {"first"}


@pytest.mark.parametrize("e", ["patch", "replace"])
async def test_valid_features_are_written_on_request(desk: Desk, e: str) -> None:
    for case, (bad, id, field) in BAD.items():
        good = [feature(f"good {case}"), feature(f"fine {case}", {"tags": ["t"]})]
        written = await desk.write(good[0], bad, good[1], e=e, transactional=False)
        ids = tuple(each["id"] for each in good)
        assert written.inserted == ids
        assert tuple(state.id for state in written.states) == ids
        (failed,) = written.failed
        assert (failed.id, failed.position, failed.code) == (id, 1, "invalid_argument"), case
        assert failed.message
        assert failed.field is not None
        assert failed.field.startswith(field), case
    assert len(await desk.states()) == 2 * len(BAD)


@pytest.mark.parametrize("transactional", [True, False])
async def test_deeply_nested_features_are_refused_also_in_patches(
    desk: Desk, transactional: bool
) -> None:
    await desk.write(feature("x", deep={}))
    for e in ("patch", "replace"):
        with pytest.raises(InvalidArgument) as refused:
            await desk.write(feature("x", deep=DEEP), e=e, transactional=transactional)
        assert (refused.value.feature_id, refused.value.position) == ("x", 0)


async def test_each_kind_of_failure_is_reported_and_the_rest_is_one_transaction(desk: Desk) -> None:
    first = (await desk.write(feature("old", n=1))).states[0].uuid
    await desk.write(feature("old", n=2), feature("other", n=1))
    written = await desk.write(
        feature("old", {"uuid": first}, n=3),
        {**feature("new"), "geometry": BAD_GEOMETRY},
        feature("made"),
        {"id": "other", "properties": {"n": 2}},
        transactional=False,
        message="what was right",
    )
    assert [(each.id, each.position, each.code) for each in written.failed] == [
        ("old", 0, "conflict"),
        ("new", 1, "invalid_argument"),
    ]
    assert (written.inserted, written.updated) == (("made",), ("other",))
    found = await desk.states()
    assert set(found) == {"old", "other", "made"}
    assert found["old"].feature["properties"]["n"] == 2
    assert {found["made"].txn, found["other"].txn} == {written.txn}


async def test_when_everything_fails_the_request_does(desk: Desk) -> None:
    await desk.write(feature("there"))
    fish = {**feature("x"), "type": "Fish"}
    cases: list[tuple[list[Any], type[NakshaError]]] = [
        ([feature("there"), fish], FeatureExists),
        ([fish, feature("there")], InvalidArgument),
        ([5, feature("there")], InvalidArgument),
    ]
    for features, kind in cases:
        with pytest.raises(kind) as failed:
            await desk.write(*features, e="error", transactional=False)
        assert [each.position for each in failed.value.failures] == [0, 1]
    assert set(await desk.states()) == {"there"}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ([], "A feature must be a JSON object, not an array"),
        (None, "A feature must be a JSON object, not null"),
        ({"properties": 7}, "properties must be a JSON object, not 7"),
        ({"properties": {XYZ: []}}, f"The namespace {XYZ} must be a JSON object, not an array"),
        (
            {"properties": {XYZ: {"uuid": {}}}},
            "uuid in @ns:com:here:xyz must be a string, not an object",
        ),
        ({"properties": {XYZ: {"version": True}}}, f"an integer in 0..{INT8_MAX}, not true"),
    ],
)
async def test_wrong_types_are_reported_as_json_types(desk: Desk, sent: Any, message: str) -> None:
    await desk.write(feature("a"))
    whole = {"id": "a", "type": "Feature", **sent} if isinstance(sent, dict) else sent
    with pytest.raises(InvalidArgument) as refused:
        await desk.write(whole, e="patch")
    assert message in refused.value.message


async def test_an_empty_request_succeeds(desk: Desk) -> None:
    assert await desk.write(transactional=False) == Written()
    assert await desk.write() == Written()
    assert await desk.modify() == Written()


async def test_tags_to_add_must_be_tags(desk: Desk) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await desk.write(feature("a"), add_tags=("x" * 1000,))
    assert refused.value.field == "addTags[0]"


async def test_a_conflict_carries_the_head_with_many_features_too(desk: Desk) -> None:
    first = {s.id: s.uuid for s in (await desk.write(*map(feature, "abc"))).states}
    await desk.write(feature("b", n=2))
    sent = [feature(id, {"uuid": uuid}, n=3) for id, uuid in first.items()]
    with pytest.raises(Conflict) as refused:
        await desk.put(*sent)
    assert (refused.value.feature_id, refused.value.position) == ("b", 1)
    partly = await desk.put(*sent, transactional=False)
    assert (partly.updated, [each.id for each in partly.failed]) == (("a", "c"), ["b"])

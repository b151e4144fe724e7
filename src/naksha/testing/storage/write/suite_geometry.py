"""Conformance: written doubles, dimensions, characters and types are returned exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from naksha.model.errors import InvalidArgument
from naksha.model.features import MARK_3D
from naksha.model.query import Query
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.models import strategies
from naksha.testing.models.brute_force import quad_key_of
from naksha.testing.models.json_values import same
from naksha.testing.storage.suite_support import (
    SUITE_CHECKS_OFF,
    Handle,
    content,
    feature,
    fresh_name,
    ids_of,
    new_collection,
    point,
    seq,
)

PROPERTY = settings(deadline=None, suppress_health_check=SUITE_CHECKS_OFF)
"""As many examples as the profile of the run specifies."""

EXTREMES = (
    0.1,
    1 / 3,
    5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    -8.000000000000002,
    123456.78900000001,
    0.30000000000000004,
)
LINE = [[0.1, 0.2], [1 / 3, 2 / 3], [-179.99999999999997, 89.99999999999999]]
RING = [[0.1, 0.1], [10.1, 0.1], [10.1, 10.1], [0.1, 0.1]]
HOLE = [[5.0, 2.0], [6.0, 2.0], [6.0, 3.0], [5.0, 2.0]]
FLAT: tuple[dict[str, Any], ...] = (
    {"type": "Point", "coordinates": [1 / 3, -2 / 3]},
    {"type": "MultiPoint", "coordinates": LINE},
    {"type": "MultiPoint", "coordinates": LINE[:1]},
    {"type": "LineString", "coordinates": LINE},
    {"type": "MultiLineString", "coordinates": [LINE, LINE[:2]]},
    {"type": "Polygon", "coordinates": [RING, HOLE]},
    {"type": "MultiPolygon", "coordinates": [[RING, HOLE], [HOLE]]},
    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]},
)


def raised(geometry: dict[str, Any], z: float) -> dict[str, Any]:
    """Return the geometry with a third dimension."""

    def up(coordinates: Any) -> Any:
        if isinstance(coordinates[0], int | float):
            return [*coordinates, z]
        return [up(member) for member in coordinates]

    if geometry["type"] == "GeometryCollection":
        return geometry | {"geometries": [raised(g, z) for g in geometry["geometries"]]}
    return geometry | {"coordinates": up(geometry["coordinates"])}


class TestGeometry:
    @pytest.mark.parametrize("geometry", FLAT, ids=lambda g: g["type"])
    async def test_two_dimensions_come_back_as_two(
        self, shared: Handle, geometry: dict[str, Any]
    ) -> None:
        await shared.upsert(feature("flat", geometry))
        assert same((await shared.get("flat")).feature["geometry"], geometry)

    @pytest.mark.parametrize("geometry", FLAT, ids=lambda g: g["type"])
    @pytest.mark.parametrize("z", [0.0, -0.1, 8848.860000000001])
    async def test_three_dimensions_come_back_as_three(
        self, shared: Handle, geometry: dict[str, Any], z: float
    ) -> None:
        await shared.upsert(feature("high", raised(geometry, z)))
        assert same((await shared.get("high")).feature["geometry"], raised(geometry, z))

    async def test_a_missing_geometry_is_read_as_none(self, places: Handle) -> None:
        await places.create(feature("x"))
        assert (await places.get("x")).feature["geometry"] is None

    async def test_dimensions_change_with_updates_and_come_back_from_history(
        self, places: Handle
    ) -> None:
        flat, high = FLAT[3], raised(FLAT[3], 7.25)
        versions = []
        for geometry in (flat, high, None, flat, high):
            await places.upsert(feature("x", geometry))
            versions.append((await places.published(), geometry))
        await places.delete("x")
        for version, geometry in versions:
            (state,) = await places.live(seq(version))
            assert same(state.feature["geometry"], geometry)
        assert same((await places.deleted())[0].feature["geometry"], high)
        await places.restore("x")
        assert same((await places.get("x")).feature["geometry"], high)

    async def test_an_altitude_may_be_any_double(self, places: Handle) -> None:
        await places.create(
            *(
                feature(str(n), {"type": "Point", "coordinates": [0.0, 0.0, z]})
                for n, z in enumerate(EXTREMES)
            )
        )
        for n, z in enumerate(EXTREMES):
            geometry = (await places.get(str(n))).feature["geometry"]
            assert geometry["coordinates"][2] == z

    async def test_points_only_refuses_other_geometries(self, storage: Storage) -> None:
        """A collection of points accepts only points and features without geometry."""
        handle = await new_collection(storage, points_only=True)
        await handle.create(point("x"), feature("y"), feature("z", raised(FLAT[0], 3.0)))
        for n, geometry in enumerate(FLAT[1:]):
            for call, name in ((handle.create, f"n{n}"), (handle.upsert, "x")):
                with pytest.raises(InvalidArgument) as caught:
                    await call(point("w"), feature(name, geometry))
                assert caught.value.feature_id == name
                assert (caught.value.field or "").startswith("geometry")
        assert ids_of(await handle.live()) == ["x", "y", "z"]


class TestRoundTrip:
    """Any drawn feature reads back equal: at HEAD, at its version, in the session and by its id."""

    @PROPERTY
    @given(made=strategies.features())
    async def test_any_feature(self, round_trips: Handle, made: dict[str, Any]) -> None:
        async def work(session: WriteSession) -> None:
            await session.upsert(round_trips.name, [made])
            page = await session.page(round_trips.name, Query(ids=(made["id"],)))
            assert same(content(page.states[0]), content(made))

        await round_trips.write(work)
        version = await round_trips.published()
        for at in (HEAD, AtSeq(version.seq_number)):
            state = await round_trips.get(made["id"], at)
            assert same(content(state), content(made))
            assert state.xyz["qrid"] == quad_key_of(made["geometry"])
        state = await round_trips.storage.state(state.uuid)
        assert same(content(state), content(made))

    @PROPERTY
    @given(geometry=strategies.geometries())
    async def test_any_geometry(self, round_trips: Handle, geometry: dict[str, Any]) -> None:
        await round_trips.upsert(feature("geometry", geometry))
        (outcome,) = await round_trips.upsert(feature("geometry", geometry))
        assert outcome.action == "RETAINED"
        assert same((await round_trips.get("geometry")).feature["geometry"], geometry)

    @PROPERTY
    @given(value=strategies.json_values(), key=strategies.texts())
    async def test_any_json(self, round_trips: Handle, key: str, value: Any) -> None:
        made = feature("json")
        made["properties"] = {key: value, "nested": {key: [value]}}
        await round_trips.upsert(made)
        (outcome,) = await round_trips.upsert(made)
        assert outcome.action == "RETAINED"
        assert same(content(await round_trips.get("json")), made)

    async def test_ids_that_look_alike_are_different(self, places: Handle) -> None:
        alike = ["é", "e\u0301", "E", "e", "ｅ", " e", "e ", "ß", "ss", "ẞ", "İ", "i", "I", "ı"]
        await places.create(*map(feature, alike))
        assert ids_of(await places.live()) == sorted(alike)
        await places.delete("é", "e ", "ss")
        left = sorted(set(alike) - {"é", "e ", "ss"})
        assert ids_of(await places.live()) == left

    async def test_hostile_ids_are_stored_and_found_verbatim(self, places: Handle) -> None:
        nasty = sorted(strategies.NASTY_TEXTS)
        await places.create(*(feature(key, key=key) for key in nasty))
        found = await places.live()
        assert [(s.id, s.feature["properties"]["key"]) for s in found] == [(k, k) for k in nasty]
        for key in nasty:
            assert (await places.get(key)).feature["id"] == key
        await places.update(*(feature(key, key="changed") for key in nasty))
        await places.delete(*nasty)
        assert ids_of(await places.deleted()) == nasty

    async def test_numbers_keep_their_value(self, places: Handle) -> None:
        numbers = [*EXTREMES, 2**53 + 1, -(2**63), 2**64, 10**30, 1e22, 1.0, 100]
        await places.create(feature("x", n=numbers))
        assert same((await places.get("x")).feature["properties"]["n"], numbers)


@pytest.fixture(scope="class")
async def round_trips(storage: Storage) -> Handle:
    """A collection for all examples of a property; each overwrites the previous state."""
    return await new_collection(storage, id=fresh_name("rt"))


class TestMark:
    """A storage may mark 3D features with a member; clients can neither set nor see it."""

    @pytest.mark.parametrize("value", [True, False, None, {"a": 1}])
    async def test_computed_members_sent_by_a_client_are_dropped(
        self, places: Handle, value: Any
    ) -> None:
        flat = point("flat", 1.5, 2.5)
        high = feature("high", {"type": "Point", "coordinates": [1.5, 2.5, 3.5]})
        marked = [{MARK_3D: value, **flat}, {**high, MARK_3D: value}]
        await places.create(*marked)
        assert [content(s) for s in await places.live()] == [flat, high]
        for write in (places.update, places.upsert):
            assert {outcome.action for outcome in await write(*marked)} == {"RETAINED"}
        await places.update(*({**each, "properties": {"n": 1}} for each in marked))
        wanted = [{**each, "properties": {"n": 1}} for each in (flat, high)]
        assert [content(s) for s in await places.live()] == wanted

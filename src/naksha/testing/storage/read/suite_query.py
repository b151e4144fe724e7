"""Conformance: queries of every kind, at HEAD and at versions, compared with brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import Point, Polygon

from naksha.model import query as q
from naksha.model.errors import NotSupported
from naksha.model.query import Query, States
from naksha.model.state import XYZ
from naksha.model.version import HEAD, AtTxn, VersionSelector
from naksha.spi.storage import Storage
from naksha.testing.models import strategies
from naksha.testing.models.brute_force import cell, distance_m, select
from naksha.testing.storage.suite_support import (
    APP,
    SUITE_CHECKS_OFF,
    Handle,
    MovableClock,
    StorageMaker,
    feature,
    ids_of,
    in_order,
    new_collection,
    point,
    raw_of,
    seq,
    with_xyz,
)

ZOO_IDS = [f"f{n:02}" for n in range(24)]
NAMES = ("app-1", "app-2", "ann", "bob")
PROPERTY = settings(deadline=None, suppress_health_check=SUITE_CHECKS_OFF)
"""As many examples as the profile of the run specifies."""

VALUES: Sequence[Any] = strategies.SMALL_VALUES
KEY = ("properties", "v")
MIDNIGHT = 1_930_348_800_000
"""The beginning of 2031-03-04."""


def asking(op: q.Op, value: Any = None, path: tuple[str, ...] = KEY) -> Query:
    return Query(where=q.Test(path, op, value))


async def agree(handle: Handle, query: Query, at: VersionSelector = HEAD) -> list[str]:
    """Check that storage and brute force return the same states in order; return their ids."""
    everything = await handle.states(Query(states=query.states), at)
    wanted = select(everything, query)
    found = await handle.states(query, at)
    assert raw_of(found) == raw_of(wanted)
    assert await handle.storage.count(handle.name, query, at) == len(wanted)
    page = await handle.storage.page(handle.name, query, at)
    assert (raw_of(in_order(page.states)), page.cursor) == (raw_of(wanted), None)
    return ids_of(found)


@pytest.fixture(scope="class")
async def valued(storage: Storage) -> Handle:
    """A collection with one feature per value, named after it, and one without the property."""
    handle = await new_collection(storage)
    await handle.create(*(feature(f"{n}", v=value) for n, value in enumerate(VALUES)))
    await handle.create(feature("absent"))
    return handle


class TestPredicates:
    @pytest.mark.parametrize("op", list(q.Op))
    async def test_every_operator_with_every_type_on_both_sides(
        self, valued: Handle, op: q.Op
    ) -> None:
        for value in VALUES:
            await agree(valued, asking(op, value))
            await agree(valued, Query(where=q.Not(q.Test(KEY, op, value))))

    async def test_operators_select_the_documented_values(self, places: Handle) -> None:
        values: dict[str, Any] = {"null": None, "one": 1, "two": 2.0, "text": "b", "true": True}
        await places.create(*(feature(key, v=value) for key, value in values.items()))
        await places.create(feature("absent"), feature("list", v=[1, "b"]))
        cases: list[tuple[q.Op, Any, list[str]]] = [
            (q.Op.EQ, 1, ["one"]),
            (q.Op.EQ, 1.0, ["one"]),
            (q.Op.EQ, None, ["null"]),
            (q.Op.EQ, True, ["true"]),
            (q.Op.NE, 1, ["list", "null", "text", "true", "two"]),
            (q.Op.LT, 2, ["one"]),
            (q.Op.LTE, 2, ["one", "two"]),
            (q.Op.GT, 1, ["two"]),
            (q.Op.GTE, "a", ["text"]),
            (q.Op.LT, "b", []),
            (q.Op.LT, True, []),
            (q.Op.EXISTS, None, ["list", "null", "one", "text", "true", "two"]),
            (q.Op.IS_NULL, None, ["null"]),
            (q.Op.STARTS_WITH, "", ["text"]),
            (q.Op.ANY_STARTS_WITH, "", ["list"]),
            (q.Op.ANY_STARTS_WITH, "b", ["list"]),
            (q.Op.ANY_STARTS_WITH, "1", []),
            (q.Op.CONTAINS, "b", ["list", "text"]),
            (q.Op.CONTAINS, [1], ["list"]),
        ]
        for op, value, wanted in cases:
            assert await agree(places, asking(op, value)) == wanted, (op, value)

    async def test_not_includes_what_lacks_the_property(self, places: Handle) -> None:
        await places.create(feature("absent"), feature("one", v=1), feature("two", v=2))
        found = await agree(places, Query(where=q.Not(q.Test(KEY, q.Op.EQ, 1))))
        assert found == ["absent", "two"]

    async def test_empty_and_is_true_and_empty_or_is_false(self, places: Handle) -> None:
        await places.create(feature("x"))
        assert await agree(places, Query(where=q.And(()))) == ["x"]
        assert await agree(places, Query(where=q.Or(()))) == []
        assert await agree(places, Query(where=q.Not(q.Or(())))) == ["x"]

    @pytest.mark.parametrize("count", [9, 1_000])
    async def test_predicates_have_many_parts(self, places: Handle, count: int) -> None:
        await places.create(*(point(f"x{n}", v=n) for n in (0, 7, count - 1, count)))
        tests = [q.Test(KEY, q.Op.EQ, n) for n in range(count)]
        found = await places.states(Query(where=q.Or(tuple(tests))))
        assert ids_of(found) == sorted(["x0", "x7", f"x{count - 1}"])
        found = await places.states(Query(where=q.And(tuple(map(q.Not, tests)))))
        assert ids_of(found) == [f"x{count}"]

    async def test_strings_are_ordered_by_code_point(self, places: Handle) -> None:
        words = ["Z", "a", "z", "ä", "é", "e\u0301", "ｚ", "𐀀", "\uffff", "", "10", "9"]
        await places.create(*(feature(str(n), v=word) for n, word in enumerate(words)))
        for word in words:
            for op in (q.Op.LT, q.Op.LTE, q.Op.GT, q.Op.GTE):
                await agree(places, asking(op, word))

    async def test_numbers_are_compared_exactly(self, places: Handle) -> None:
        numbers = [0.1, 0.30000000000000004, 0.3, 2**53, 2**53 + 1, 1e22, 5e-324, 1e308, -1e308]
        await places.create(*(feature(str(n), v=v) for n, v in enumerate(numbers)))
        for number in [*numbers, 0]:
            for op in (q.Op.EQ, q.Op.NE, q.Op.LT, q.Op.GTE):
                await agree(places, asking(op, number))

    @pytest.mark.parametrize("text", strategies.NASTY_TEXTS)
    async def test_unusual_keys_and_values_are_plain_text(self, nasty: Handle, text: str) -> None:
        key = f"n{strategies.NASTY_TEXTS.index(text)}"
        for query in (
            asking(q.Op.EQ, text, ("properties", "value")),
            asking(q.Op.STARTS_WITH, text, ("properties", "value")),
            asking(q.Op.CONTAINS, [text], ("properties", "list")),
            asking(q.Op.ANY_STARTS_WITH, text, ("properties", "list")),
            asking(q.Op.EXISTS, None, ("properties", text)),
            asking(q.Op.EQ, 1, ("properties", text)),
            asking(q.Op.EQ, 1, ("properties", "deep", text)),
            Query(mrid_prefix=text),
            Query(tags=((f"@{text.replace(',', ';')}",),)),
        ):
            assert key in await agree(nasty, query)

    async def test_all_paths_of_a_feature(self, places: Handle) -> None:
        await places.create(feature("x", a={"b": {"c": 1}}) | {"momType": "T"}, feature("y"))
        for path, value in (
            (("id",), "x"),
            (("momType",), "T"),
            (("properties", "a", "b", "c"), 1),
        ):
            assert await agree(places, asking(q.Op.EQ, value, path)) == ["x"]

    async def test_a_path_does_not_lead_into_arrays(self, places: Handle) -> None:
        await places.create(feature("list", v=[5, 6]), feature("object", v={"0": 5, "-1": 6}))
        for key, value in (("0", 5), ("-1", 6)):
            assert await agree(places, asking(q.Op.EQ, value, (*KEY, key))) == ["object"]
            assert await agree(places, asking(q.Op.EXISTS, None, (*KEY, key))) == ["object"]

    async def test_ids_are_compared_like_any_text(self, zoo: Handle) -> None:
        """Clients write this as `f.id<=f07`."""
        for op in (q.Op.LT, q.Op.LTE, q.Op.GT, q.Op.GTE, q.Op.NE, q.Op.STARTS_WITH):
            for text in ("f07", "f", "F07", "", "f1"):
                await agree(zoo, asking(op, text, ("id",)))
        assert await agree(zoo, asking(q.Op.LTE, "f03", ("id",))) == ZOO_IDS[:4]

    async def test_null_or_absent_is_a_combination(self, places: Handle) -> None:
        """Clients write this as `p.v=.null` and `p.v!=.null`, and expect both to mean the same."""
        values: dict[str, Any] = {"null": None, "no": False, "zero": 0, "empty": "", "list": []}
        await places.create(*(feature(key, v=value) for key, value in values.items()))
        await places.create(feature("absent"))
        there = q.And((q.Test(KEY, q.Op.EXISTS), q.Not(q.Test(KEY, q.Op.IS_NULL))))
        assert await agree(places, Query(where=q.Not(there))) == ["absent", "null"]
        assert await agree(places, Query(where=there)) == ["empty", "list", "no", "zero"]

    async def test_objects_and_lists_are_contained(self, places: Handle) -> None:
        """Clients write this as `p.v=cs={…}`; a bare value is contained like a list of one."""
        await places.create(
            feature("object", v={"a": 1, "b": [1, 2], "c": {"d": "x"}}),
            feature("objects", v=[{"a": 1, "b": 2}, {"a": 2}]),
            feature("words", v=["a", "b", 1]),
            feature("word", v="a"),
            feature("lists", v=[["a"], "b"]),
        )
        cases: list[tuple[Any, list[str]]] = [
            ({"a": 1}, ["object"]),
            ({"b": [2]}, ["object"]),
            ({"c": {}}, ["object"]),
            ({"a": 2}, []),
            ([{"a": 1}], ["objects"]),
            ([{"a": 1}, {"a": 2}], ["objects"]),
            ("a", ["word", "words"]),
            (["a"], ["words"]),
            (["a", "b"], ["words"]),
            ([["a"]], ["lists"]),
            ([], ["lists", "objects", "words"]),
            ({}, ["object"]),
            (1, ["words"]),
        ]
        for value, wanted in cases:
            assert await agree(places, asking(q.Op.CONTAINS, value)) == wanted, value
        either = q.Or(tuple(q.Test(KEY, q.Op.CONTAINS, value) for value in ({"a": 1}, [{"a": 1}])))
        assert await agree(places, Query(where=either)) == ["object", "objects"]

    async def test_the_namespace_is_compared_as_well(self, zoo: Handle) -> None:
        """Clients write this as `f.createdAt>=…`, `f.updatedAt<…` and `f.tags=cs=…`."""
        for state in (await zoo.live())[::5]:
            for key in ("createdAt", "updatedAt", "version", "rtuts"):
                for op in (q.Op.EQ, q.Op.LT, q.Op.LTE, q.Op.GT, q.Op.GTE, q.Op.NE):
                    path = ("properties", XYZ, key)
                    await agree(zoo, asking(op, state.xyz[key], path))
            for key in ("author", "uuid", "qrid", "mrid", "puuid"):
                await agree(zoo, asking(q.Op.EQ, state.xyz[key], ("properties", XYZ, key)))
            for tag in state.xyz["tags"]:
                found = await agree(zoo, asking(q.Op.CONTAINS, tag, ("properties", XYZ, "tags")))
                assert found == await agree(zoo, Query(tags=((tag,),)))


@pytest.fixture(scope="class")
async def nasty(storage: Storage) -> Handle:
    """A collection with one feature per nasty text, which is its value, key, tag and crid."""
    handle = await new_collection(storage)
    await handle.create(
        *(
            with_xyz(
                feature(f"n{n}", value=text, list=["x", text], deep={text: 1})
                | {"properties": {text: 1, "value": text, "list": ["x", text], "deep": {text: 1}}},
                tags=[f"@{text.replace(',', ';')}"],
                crid=text,
            )
            for n, text in enumerate(strategies.NASTY_TEXTS)
        )
    )
    return handle


class TestGeometryTypes:
    @pytest.mark.parametrize(
        ("predicate", "ids"),
        [
            (q.Test(q.GEOMETRY_TYPE, q.Op.EQ, "Point"), ["high", "point"]),
            (q.Test(q.GEOMETRY_TYPE, q.Op.NE, "Point"), ["line"]),
            (q.Test(q.GEOMETRY_TYPE, q.Op.EXISTS), ["high", "line", "point"]),
            (q.Not(q.Test(q.GEOMETRY_TYPE, q.Op.EXISTS)), ["none"]),
            (q.Test(q.GEOMETRY_TYPE, q.Op.IS_NULL), []),
            (q.Test(q.GEOMETRY_TYPE, q.Op.STARTS_WITH, "Line"), ["line"]),
            (q.Test(q.GEOMETRY_TYPE, q.Op.EQ, 7), []),
        ],
    )
    async def test_features_by_the_type_of_their_geometry(
        self, places: Handle, predicate: q.Predicate, ids: list[str]
    ) -> None:
        shapes: dict[str, Any] = {
            "point": {"type": "Point", "coordinates": [1.0, 1.0]},
            "high": {"type": "Point", "coordinates": [1.0, 1.0, 5.0]},
            "line": {"type": "LineString", "coordinates": [[1.0, 1.0], [2.0, 2.0]]},
            "none": None,
        }
        await places.create(*[feature(id, shape) for id, shape in shapes.items()])
        version = await places.published()
        query = Query(where=predicate)
        assert ids_of(await places.states(query)) == ids
        await places.delete(*shapes)
        assert ids_of(await places.states(query, seq(version))) == ids

    async def test_nothing_else_of_a_geometry_can_be_tested(self, places: Handle) -> None:
        with pytest.raises(NotSupported):
            await places.states(Query(where=q.Test(("geometry", "coordinates"), q.Op.EXISTS)))


class TestSpatialQueries:
    async def test_boxes_meet_at_their_edges(self, places: Handle) -> None:
        square = Polygon([(0, 0), (2, 0), (2, 2), (0, 2)])
        await places.create(feature("x", shapely.geometry.mapping(square)), feature("nowhere"))
        for box, wanted in (
            (q.Bbox(2, 2, 3, 3), ["x"]),
            (q.Bbox(-1, -1, 0, 0), ["x"]),
            (q.Bbox(2.0000000000000004, 0, 3, 3), []),
            (q.Bbox(0.5, 0.5, 0.5, 0.5), ["x"]),
            (q.Bbox(-180, -90, 180, 90), ["x"]),
        ):
            assert await agree(places, Query(spatial=box)) == wanted

    async def test_boxes_are_exact_to_the_last_bit(self, places: Handle) -> None:
        """Indices round boxes to floats; the result must not depend on that."""
        lons = [8.1, 8.100000000000001, 8.10000001, 8.0999999]
        await places.create(*(point(str(n), lon, 50.1) for n, lon in enumerate(lons)))
        for west in lons:
            for east in lons:
                if west <= east:
                    await agree(places, Query(spatial=q.Bbox(west, 50.1, east, 50.1)))

    async def test_a_box_is_about_boxes_and_intersects_about_shapes(self, places: Handle) -> None:
        diagonal = {"type": "LineString", "coordinates": [[0, 0], [10, 10]]}
        await places.create(feature("x", diagonal))
        corner = Polygon([(8, 0), (10, 0), (10, 2), (8, 2)])
        assert await agree(places, Query(spatial=q.Bbox(8, 0, 10, 2))) == ["x"]
        assert await agree(places, Query(spatial=q.Intersects(shapely.to_wkb(corner)))) == []

    async def test_across_the_date_line(self, places: Handle) -> None:
        await places.create(
            *(point(f"{lon:g}", lon, 0.0) for lon in (-180.0, -179.0, -170.0, 0.0, 179.0, 180.0))
        )
        found = await agree(places, Query(spatial=q.Bbox(178, -1, -178, 1)))
        assert found == sorted(["-180", "-179", "179", "180"])

    async def test_altitude_does_not_matter(self, places: Handle) -> None:
        high = {"type": "Point", "coordinates": [1, 1, 5000]}
        await places.create(feature("x", high))
        shape = shapely.to_wkb(Polygon([(0, 0), (2, 0), (2, 2), (0, 2)]))
        for spatial in (q.Bbox(0, 0, 2, 2), q.Intersects(shape), q.Tile("1")):
            assert await agree(places, Query(spatial=spatial)) == ["x"]

    async def test_a_3d_shape_to_ask_with(self, places: Handle) -> None:
        await places.create(point("x", 1, 1))
        shape = shapely.to_wkb(Polygon([(0, 0, 9), (2, 0, 9), (2, 2, 9), (0, 2, 9)]))
        assert ids_of(await places.states(Query(spatial=q.Intersects(shape)))) == ["x"]

    async def test_tiles(self, places: Handle) -> None:
        corners = [(w, s) for key in ("0", "12", "3210") for w, s, _, _ in [cell(key)]]
        await places.create(
            *(point(f"c{n}", lon, lat) for n, (lon, lat) in enumerate(corners)),
            *(point(f"p{n}", lon, lat) for n, (lon, lat) in enumerate([(1, 1), (-1, -1)])),
            feature("nowhere"),
        )
        for key in ("", "0", "1", "2", "3", "12", "321", "3210", "1" * 18):
            await agree(places, Query(spatial=q.Tile(key)))

    @pytest.mark.parametrize("radius", [10.0, 1_000.0, 100_000.0])
    @pytest.mark.parametrize(
        ("lon", "lat"), [(8.5, 50.25), (0.0, 0.0), (-70.0, -55.0), (25.0, 78.0)]
    )
    async def test_a_radius_is_in_metres(
        self, places: Handle, lon: float, lat: float, radius: float
    ) -> None:
        """Clearly nearer features are found and clearly farther ones are not, in all directions."""
        near: list[Any] = []
        far: list[Any] = []
        for n, (dx, dy) in enumerate([(1, 0), (0, 1), (-1, 0), (0, -1)]):
            for factor, group in ((0.97, near), (1.03, far)):
                step = radius * factor
                degrees = step / 111_195.0
                other = (lon + dx * degrees / _narrow(lat), lat + dy * degrees)
                assert distance_m(lon, lat, *other) == pytest.approx(step, rel=0.01)
                group.append(point(f"{factor}-{n}", *other))
        await places.create(*near, *far)
        spatial = q.Intersects(shapely.to_wkb(Point(lon, lat)), radius)
        found = ids_of(await places.states(Query(spatial=spatial)))
        assert found == sorted(f["id"] for f in near)


def _narrow(lat: float) -> float:
    """Return the length of a degree of longitude at a latitude, relative to the equator."""
    return distance_m(0, lat, 0.001, lat) / distance_m(0, 0, 0.001, 0)


class TestFilters:
    async def test_ids(self, zoo: Handle) -> None:
        for wanted in ((), ("f00",), ("f03", "nobody", "f01", "f03"), tuple(ZOO_IDS)):
            found = await agree(zoo, Query(ids=wanted))
            assert set(found) <= set(wanted)

    async def test_tags_are_an_or_of_ands(self, places: Handle) -> None:
        for key, tags in {"a": ["a"], "b": ["b"], "bc": ["b", "c"], "none": []}.items():
            await places.create(with_xyz(feature(key), tags=tags))
        for tags_, wanted in (
            ((("a",), ("b", "c")), ["a", "bc"]),
            ((("b",),), ["b", "bc"]),
            ((("a", "b"),), []),
            ((), []),
            (((),), ["a", "b", "bc", "none"]),
        ):
            assert await agree(places, Query(tags=tags_)) == wanted

    async def test_prefixes_are_not_patterns(self, places: Handle) -> None:
        crids = ["a_c", "abc", "a%c", "a\\c", "A_c", "a"]
        await places.create(*(with_xyz(feature(c), crid=c) for c in crids))
        await places.create(point("placed"))
        for prefix in ("", "a", "a_", "a%", "a\\", "%", "1"):
            await agree(places, Query(mrid_prefix=prefix))
        qrid = (await places.get("placed")).xyz["qrid"]
        for digits in (0, 1, 9, 18):
            assert await agree(places, Query(qrid_prefix=qrid[:digits])) == ["placed"]

    async def test_by_app_author_and_action(self, zoo: Handle) -> None:
        for query in (
            Query(authors=("ann",)),
            Query(authors=("ann", "bob")),
            Query(authors=()),
            Query(app_ids=("app-1",)),
            Query(actions=("UPDATE",)),
            Query(actions=("CREATE", "DELETE"), states=States.ALL),
            Query(actions=("DELETE",), states=States.DELETED),
            Query(actions=("DELETE",)),
            Query(authors=("ann",), app_ids=("app-2",), actions=("UPDATE",), states=States.ALL),
        ):
            await agree(zoo, query)

    @pytest.mark.parametrize("every", [20, pytest.param(5, marks=pytest.mark.long)])
    async def test_time_and_txn_from_inclusive_to_exclusive(self, zoo: Handle, every: int) -> None:
        states = await zoo.all()
        for kind in States:
            for state in states[::every]:
                at, txn = state.xyz["updatedAt"], state.txn
                born = state.xyz["createdAt"]
                for query in (
                    Query(created_from=born, states=kind),
                    Query(created_to=born, states=kind),
                    Query(created_from=born, created_to=born + 1, updated_to=at, states=kind),
                    Query(updated_from=at, states=kind),
                    Query(updated_to=at, states=kind),
                    Query(updated_from=at, updated_to=at + 1, states=kind),
                    Query(txn_from=txn, states=kind),
                    Query(txn_to=txn, states=kind),
                    Query(txn_from=txn, txn_to=txn + 1, states=kind),
                ):
                    await agree(zoo, query)

    async def test_times_around_midnight(self, make_storage: StorageMaker) -> None:
        """The day of a transaction number may be later than its states' time, but not earlier."""
        clock = MovableClock(MIDNIGHT - 1_000)
        handle = await new_collection(await make_storage(clock=clock))
        await handle.create(point("old"), point("gone"))
        async with handle.storage.write(APP) as before_midnight:
            clock.time_ms = MIDNIGHT + 1_000
            await handle.create(point("next day"))
            await handle.delete("gone")
            await before_midnight.create(handle.name, [point("late")])
        clock.time_ms = MIDNIGHT - 500
        await handle.upsert(point("old", n=1), point("clock put back"))
        assert (await handle.get("clock put back")).xyz["updatedAt"] == MIDNIGHT - 500
        for kind in States:
            for time in (-86_400_000, -1_001, -1_000, -500, 0, 1_000, 1_001, 86_400_000):
                at = MIDNIGHT + time
                await agree(handle, Query(updated_from=at, states=kind))
                await agree(handle, Query(updated_to=at, states=kind))
                await agree(handle, Query(updated_from=at, states=kind, limit=100))
                await agree(handle, Query(created_from=at, states=kind))
                await agree(handle, Query(created_to=at, states=kind))
                await agree(handle, Query(created_from=at, states=kind, limit=100))

    async def test_the_time_of_creation_at_every_version(self, make_storage: StorageMaker) -> None:
        """An update keeps it; a feature that is created again has a new one."""
        clock = MovableClock(MIDNIGHT)
        handle = await new_collection(await make_storage(clock=clock))
        await handle.create(point("old"), point("again"))
        first = await handle.storage.resolve(HEAD)
        clock.time_ms += 1_000
        await handle.create(point("young"))
        clock.time_ms += 1_000
        await handle.update(point("old", n=2))
        await handle.delete("again")
        await handle.create(point("again", n=2))
        since, young = Query(created_from=MIDNIGHT + 1), Query(created_to=MIDNIGHT + 2_000)
        assert await agree(handle, since) == ["again", "young"]
        assert await agree(handle, young) == ["old", "young"]
        assert await agree(handle, since, AtTxn(first.txn)) == []
        assert await agree(handle, young, AtTxn(first.txn)) == ["again", "old"]
        page = await handle.storage.page(handle.name, msgspec.structs.replace(since, limit=1))
        assert (ids_of(page.states), page.cursor is None) == (["again"], False)

    @pytest.mark.parametrize("time", [0, 10**14, 10**17, 2**63 - 1])
    async def test_times_beyond_all_days(self, zoo: Handle, time: int) -> None:
        assert bool(await agree(zoo, Query(updated_from=time))) == (time == 0)
        assert bool(await agree(zoo, Query(created_from=time))) == (time == 0)

    async def test_all_parts_must_hold(self, zoo: Handle) -> None:
        both = Query(ids=tuple(ZOO_IDS[:10]), authors=("ann",))
        found = await agree(zoo, both)
        assert set(found) == set(await agree(zoo, Query(ids=both.ids))) & set(
            await agree(zoo, Query(authors=both.authors))
        )

    async def test_with_a_limit_the_order_is_by_id_and_txn(self, zoo: Handle) -> None:
        query = Query(states=States.ALL, limit=1_000)
        states = await zoo.states(query)
        assert len(states) > len(ZOO_IDS)
        assert [(s.id, s.txn) for s in states] == sorted((s.id, s.txn) for s in states)
        page = await zoo.storage.page(zoo.name, query)
        assert raw_of(page.states) == raw_of(states)

    async def test_a_limit_bounds_the_stream_too(self, zoo: Handle) -> None:
        everything = await zoo.live()
        for limit in (1, 3, 1000):
            found = await zoo.states(Query(limit=limit))
            assert raw_of(found) == raw_of(everything[:limit])
            assert await zoo.storage.count(zoo.name, Query(limit=limit)) == len(everything)


class TestRandomQueries:
    @PROPERTY
    @given(query=strategies.queries(ZOO_IDS, NAMES), data=st.data())
    async def test_at_head_and_at_versions(
        self, zoo: Zoo, query: Query, data: st.DataObject
    ) -> None:
        kind = data.draw(st.sampled_from(States), label="states")
        at = data.draw(st.sampled_from(zoo.versions), label="at")
        filters = {name: getattr(query, name) for name in query.__struct_fields__}
        await agree(zoo, Query(**filters | {"states": kind}), at)


class Zoo(Handle):
    """A read-only collection of many small features with a short history by several authors."""

    versions: list[VersionSelector]


@pytest.fixture(scope="class")
async def zoo(storage: Storage) -> Zoo:
    """The zoo for all tests of a class."""
    handle = Zoo(storage, (await new_collection(storage)).name)
    handle.versions = [HEAD]
    made = _drawn_features()
    for round_ in range(3):
        for n in range(0, len(ZOO_IDS), 6):
            app, author = NAMES[(n // 6 + round_) % 2], (None, "ann", "bob")[(n // 6) % 3]
            await handle.upsert(*(next(made) for _ in range(6)), app=app, author=author)
        await handle.delete(*ZOO_IDS[round_::7], author="bob")
        handle.versions.append(seq(await handle.published()))
    await handle.restore(ZOO_IDS[2], app="app-2")
    await handle.published()
    return handle


def _drawn_features() -> Any:
    """Return the same varied features every time, in several rounds over the zoo's ids."""
    n = 0
    while True:
        values, keys = strategies.SMALL_VALUES, strategies.SMALL_KEYS
        properties = {key: values[(n * 7 + i * 5) % len(values)] for i, key in enumerate(keys)}
        properties["a"] = {keys[n % len(keys)]: values[n % len(values)]}
        for absent in keys[n % 3 :: 4]:
            properties.pop(absent, None)
        lon, lat = float((n * 37) % 340 - 170), float((n * 23) % 160 - 80)
        shape = {"type": "LineString", "coordinates": [[lon, lat], [lon + 5, lat + 3]]}
        geometry = (None, {"type": "Point", "coordinates": [lon, lat]}, shape)[n % 3]
        tags = strategies.SMALL_TAGS[n % 8 : n % 8 + n % 3]
        made = feature(ZOO_IDS[n % len(ZOO_IDS)], geometry) | {"properties": properties}
        crid = strategies.SMALL_CRIDS[n % 5] if n % 4 == 0 else None
        yield with_xyz(made, tags=list(tags), crid=crid)
        n += 1

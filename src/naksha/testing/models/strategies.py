"""Hypothesis strategies: ids, JSON, geometries, tags, features and queries.

Everything drawn here is valid and must be read back unchanged. Invalid input is listed case by
case in `suite_input`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import shapely
from hypothesis import strategies as st
from shapely.geometry import shape

from naksha.model import query as q
from naksha.model.state import XYZ

Json = Any
JsonObject = dict[str, Any]
Strategy = st.SearchStrategy

NASTY_TEXTS: Final = (
    "plain",
    "O'Brien",
    'say "hi"',
    "back\\slash",
    "\\",
    "'; DROP TABLE naksha_tx; --",
    "$1",
    "$$",
    "%",
    "_",
    "100%_sure",
    "{}",
    "a.b",
    "a,b",
    "a:b",
    " leading and trailing ",
    "\t\n\r",
    "\x01\x1f\x7f",
    "é",
    "e\u0301",
    "ß",
    "ﬀ",
    "İstanbul",
    "नक्शा",
    "خريطة",
    "地図",
    "👩‍👩‍👧",
    "\U0010ffff",
    "\ufeffbom",
    "\u202eright to left",
    "null",
    "true",
    "0",
    "-1",
    "constructor",
    "__proto__",
)
"""Texts that have broken real storages: quoting, patterns, encodings, normal forms."""

# PostgreSQL and JSON in general can store everything but NUL and unpaired surrogates.
CHARACTERS: Final = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


def texts(min_size: int = 0, max_size: int = 12) -> Strategy[str]:
    """Any text that a storage must preserve."""
    nasty = [text for text in NASTY_TEXTS if min_size <= len(text)]
    return st.text(CHARACTERS, min_size=min_size, max_size=max_size) | st.sampled_from(nasty)


def ids() -> Strategy[str]:
    """Feature ids, whose UTF-8 form is far shorter than the limit."""
    return texts(min_size=1)


def tags() -> Strategy[list[str]]:
    """Tags of a feature in normal form: unique, in arbitrary order."""
    plain = st.text("abcxyz019-_ .'\\\"%{}", min_size=1, max_size=8)
    kept = texts().map(lambda text: "@" + text.replace(",", ";"))
    return st.lists(plain | kept, max_size=4, unique=True)


# ---- JSON ------------------------------------------------------------------------------------


def numbers() -> Strategy[int | float]:
    """Numbers that a double represents exactly, including extremes, without negative zero."""
    return st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False).map(
        lambda value: value + 0.0
    )


def json_scalars() -> Strategy[Json]:
    return st.none() | st.booleans() | numbers() | texts()


def json_values(max_leaves: int = 8) -> Strategy[Json]:
    """Any JSON value, slightly nested."""
    return st.recursive(
        json_scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=max_leaves,
    )


def properties() -> Strategy[JsonObject]:
    """Properties of a feature, with any key except the namespace's."""
    keys = texts().filter(lambda key: key != XYZ)
    return st.dictionaries(keys, json_values(), max_size=4)


# ---- Geometries ------------------------------------------------------------------------------


def _axis(limit: float) -> Strategy[float]:
    # Adding 0.0 turns -0.0 into 0.0; storages need not preserve the sign of zero.
    return st.floats(-limit, limit).map(lambda value: value + 0.0) | st.sampled_from(
        [-limit, 0.0, limit]
    )


def _altitudes() -> Strategy[float]:
    return st.floats(-12_000.0, 9_000.0).map(lambda value: value + 0.0) | st.just(0.0)


def positions(dimension: int) -> Strategy[list[float]]:
    """A position with exact doubles anywhere on earth, including the edges."""
    axes = [_axis(180.0), _axis(90.0)]
    return st.tuples(*axes, *([_altitudes()] if dimension == 3 else [])).map(list)


def _ring(dimension: int) -> Strategy[list[list[float]]]:
    open_ring = st.lists(positions(dimension), min_size=3, max_size=5)
    return open_ring.map(lambda points: [*points, list(points[0])])


def _simple(dimension: int) -> Strategy[JsonObject]:
    point = positions(dimension)
    line = st.lists(point, min_size=2, max_size=4)
    polygon = st.lists(_ring(dimension), min_size=1, max_size=2)
    coordinates: Mapping[str, Strategy[Any]] = {
        "Point": point,
        "MultiPoint": st.lists(point, min_size=1, max_size=3),
        "LineString": line,
        "MultiLineString": st.lists(line, min_size=1, max_size=2),
        "Polygon": polygon,
        "MultiPolygon": st.lists(polygon, min_size=1, max_size=2),
    }
    return st.one_of(
        [
            st.fixed_dictionaries({"type": st.just(name), "coordinates": strategy})
            for name, strategy in coordinates.items()
        ]
    )


def geometries(dimension: int | None = None) -> Strategy[JsonObject]:
    """Every type of GeoJSON geometry, all in 2D or all in 3D. Polygons need not be valid."""
    if dimension is None:
        return geometries(2) | geometries(3)
    simple = _simple(dimension)

    def collections(members: Strategy[JsonObject]) -> Strategy[JsonObject]:
        return st.fixed_dictionaries(
            {
                "type": st.just("GeometryCollection"),
                "geometries": st.lists(members, min_size=1, max_size=3),
            }
        )

    return simple | collections(simple) | collections(collections(simple))


def _grid(limit: int) -> Strategy[float]:
    return st.integers(-limit, limit).map(float)


@st.composite
def plain_geometries(draw: st.DrawFn) -> JsonObject:
    """Valid geometries on a coarse grid, so that spatial results do not depend on rounding."""
    west, south = draw(_grid(170)), draw(_grid(80))
    width, height = draw(st.integers(1, 10)), draw(st.integers(1, 10))
    east, north = west + width, south + height
    kind = draw(st.sampled_from(["Point", "LineString", "Polygon", "MultiPoint"]))
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    coordinates: dict[str, Any] = {
        "Point": ring[0],
        "LineString": [ring[0], ring[2]],
        "Polygon": [ring],
        "MultiPoint": [ring[0], ring[2]],
    }
    return {"type": kind, "coordinates": coordinates[kind]}


# ---- Features --------------------------------------------------------------------------------


@st.composite
def features(
    draw: st.DrawFn,
    ids: Strategy[str] = ids(),  # noqa: B008  strategies are values
    geometries: Strategy[JsonObject] = geometries(),  # noqa: B008
    properties: Strategy[JsonObject] = properties(),  # noqa: B008
    tags: Strategy[list[str]] = tags(),  # noqa: B008
) -> JsonObject:
    """A whole feature; tags and crid are set, null or omitted."""
    xyz: JsonObject = {}
    if draw(st.booleans()):
        xyz["tags"] = draw(tags | st.none())
    if draw(st.integers(0, 3)) == 0:
        xyz["crid"] = draw(texts(min_size=1) | st.none())
    feature: JsonObject = {
        "type": "Feature",
        "id": draw(ids),
        "geometry": draw(st.none() | geometries),
        "properties": draw(properties) | ({XYZ: xyz} if xyz else {}),
    }
    if draw(st.integers(0, 7)) == 0:
        feature["momType"] = draw(json_values(3))
    return feature


SMALL_VALUES: Final[Sequence[Json]] = (
    None,
    True,
    False,
    0,
    1,
    2,
    1.5,
    -3,
    "",
    "a",
    "ab",
    "B",
    "é",
    "1",
    [],
    [1],
    [1, "a"],
    {},
    {"a": 1},
    {"a": [1, {"b": None}]},
    *NASTY_TEXTS[1:8],
)
"""Few values, so that drawn queries match drawn features; of every type, so that types clash."""

SMALL_KEYS: Final = ("a", "b", "", "0", "a.b", "it's", 'quo"te', "back\\slash", "{x,y}", "ключ")
SMALL_TAGS: Final = ("red", "green", "blue", "o'brien", "100%", "back\\slash", "{x}", "@नक्शा")
SMALL_CRIDS: Final = ("crid-1", "crid-2", "cri_", "cri%", "c\\r")


def small_properties() -> Strategy[JsonObject]:
    """Properties from few keys and values, nested once."""
    values = st.sampled_from(SMALL_VALUES)
    flat = st.dictionaries(st.sampled_from(SMALL_KEYS), values, max_size=4)
    return st.dictionaries(st.sampled_from(SMALL_KEYS), values | flat, max_size=5)


def small_features(ids: Strategy[str]) -> Strategy[JsonObject]:
    """Features that drawn queries are likely to match."""
    return features(
        ids=ids,
        geometries=plain_geometries(),
        properties=small_properties(),
        tags=st.lists(st.sampled_from(SMALL_TAGS), max_size=3, unique=True),
    )


def _nested(n: int) -> JsonObject:
    """Return the n-th of a few varied properties."""
    keys, values = SMALL_KEYS, SMALL_VALUES
    made = {keys[i * n % len(keys)]: values[(i * 7 + n) % len(values)] for i in range(n % 5)}
    if n % 3 == 0:
        made["a"] = {keys[n % len(keys)]: values[n % len(values)]}
    return made


FEW_PROPERTIES: Final = tuple(_nested(n) for n in range(30))
FEW_GEOMETRIES: Final[Sequence[JsonObject | None]] = (
    None,
    {"type": "Point", "coordinates": [8.0, 50.0]},
    {"type": "Point", "coordinates": [8.0, 50.0, 0.0]},
    {"type": "Point", "coordinates": [-179.0, 0.0]},
    {"type": "LineString", "coordinates": [[-10.0, -20.0], [30.0, 40.0]]},
    {"type": "Polygon", "coordinates": [[[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 0.0]]]},
    {"type": "MultiPoint", "coordinates": [[1.0, 1.0, 7.5], [179.0, -89.0, 7.5]]},
)


def few_features(ids: Strategy[str]) -> Strategy[JsonObject]:
    """Features built from few parts, so that an example with hundreds of them stays small."""
    tags = st.none() | st.sampled_from([[], ["red"], ["red", "100%"], ["@नक्शा", "o'brien"]])
    crids = st.none() | st.sampled_from(SMALL_CRIDS)
    return st.builds(
        lambda feature_id, geometry, properties, xyz: {
            "type": "Feature",
            "id": feature_id,
            "geometry": geometry,
            "properties": properties | {XYZ: xyz},
        },
        ids,
        st.sampled_from(FEW_GEOMETRIES),
        st.sampled_from(FEW_PROPERTIES),
        st.fixed_dictionaries({}, optional={"tags": tags, "crid": crids}),
    )


# ---- Queries ---------------------------------------------------------------------------------


def paths() -> Strategy[tuple[str, ...]]:
    """Paths to small properties.

    There are no numbers below the top level: whether they index arrays is undefined.
    """
    first = st.sampled_from(SMALL_KEYS)
    below = st.sampled_from([key for key in SMALL_KEYS if not key.isdigit()])
    return st.builds(lambda key: ("properties", key), first) | st.builds(
        lambda key, inner: ("properties", key, inner), first, below
    )


def tests() -> Strategy[q.Test]:
    """A comparison of any kind with a value of any type."""
    return st.builds(q.Test, paths(), st.sampled_from(list(q.Op)), st.sampled_from(SMALL_VALUES))


def predicates() -> Strategy[q.Predicate]:
    """Comparisons and their combinations."""
    leaves: Strategy[q.Predicate] = tests()

    def combined(inner: Strategy[q.Predicate]) -> Strategy[q.Predicate]:
        parts = st.lists(inner, max_size=3).map(tuple)
        return st.builds(q.And, parts) | st.builds(q.Or, parts) | st.builds(q.Not, inner)

    return st.recursive(leaves, combined, max_leaves=4)


@st.composite
def bboxes(draw: st.DrawFn) -> q.Bbox:
    """A box on the grid; half of them cross the date line."""
    west, east = draw(_grid(180)), draw(_grid(180))
    south, north = sorted([draw(_grid(90)), draw(_grid(90))])
    return q.Bbox(west, south, east, north)


def spatials() -> Strategy[q.Spatial]:
    """Every spatial test except radii, which are measured rather than compared."""
    wkb = plain_geometries().map(lambda geometry: shapely.to_wkb(shape(geometry)))
    return bboxes() | st.builds(q.Intersects, wkb) | st.builds(q.Tile, st.text("0123", max_size=6))


def queries(ids: Sequence[str], names: Sequence[str] = ()) -> Strategy[q.Query]:
    """Any combination of filters; `ids` and `names` (authors, app ids) are likely to exist."""
    groups = st.lists(st.sampled_from(SMALL_TAGS), min_size=1, max_size=2).map(tuple)
    some = st.lists(st.sampled_from([*names, "nobody"]), max_size=2).map(tuple)
    filters: dict[str, Strategy[Any]] = {
        "ids": st.lists(st.sampled_from([*ids, "no such id"]), max_size=4).map(tuple),
        "spatial": spatials(),
        "where": predicates(),
        "tags": st.lists(groups, max_size=2).map(tuple),
        "mrid_prefix": st.sampled_from(["", "cri", "cri_", "cri%", "c\\", "0", "12"]),
        "qrid_prefix": st.text("0123", max_size=3),
        "authors": some,
        "app_ids": some,
        "created_from": st.sampled_from([0, 2**62]),
        "created_to": st.sampled_from([0, 2**62]),
        "actions": st.lists(st.sampled_from(["CREATE", "UPDATE", "DELETE"]), max_size=2).map(tuple),
    }
    chosen = st.sets(st.sampled_from(sorted(filters)), min_size=1, max_size=3)
    return chosen.flatmap(
        lambda names: st.builds(q.Query, **{name: filters[name] for name in sorted(names)})
    )

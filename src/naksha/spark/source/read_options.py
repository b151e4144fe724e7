"""The options of a read and of a stream: what is asked of a storage, as texts.

    storage, schema, collection          where it is
    version, states                      which states: live, deleted or all of a version
    bbox, tile, intersects, radius       where they are
    tags, where, updatedFrom, updatedTo  what they are like
    geometry                             in which form geometries come
    pushFilters                          whether the storage answers Spark's filters

Everything else is asked by filters of Spark, which are handed on (`naksha.spark.source.pushdown`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
import shapely

from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotFound, NotSupported
from naksha.model.geo.geometry import encode_geometries
from naksha.model.query import Bbox, Intersects, Predicate, Query, Spatial, States, Tile
from naksha.model.tags import normalise_tag
from naksha.model.version import AtTime
from naksha.spark.source.options import HEAD, Place, check_names, flag, needed, place_of
from naksha.spi.locations import FILE, STORAGES, path_of
from naksha.versioning.version_refs import MAIN_BRANCH, One, parse_ref

PLACE: Final = ("storage", "schema", "collection")
STARTING: Final = "startingVersion"
READ: Final = (
    *PLACE,
    *("version", "states", "bbox", "tile", "intersects", "radius", "tags", "where"),
    *("updatedFrom", "updatedTo", "geometry", "properties", "pushFilters"),
)
"""All options of a read."""
COLUMNS: Final = "columns"
"""The schema of a table as JSON, by which `naksha.spark.features` says what it reads."""
ROWS_MAX: Final = "maxRowsPerTrigger"
TRANSACTIONS_MAX: Final = "maxTransactionsPerTrigger"
STREAM: Final = (
    *PLACE,
    *("branch", STARTING, ROWS_MAX, TRANSACTIONS_MAX, "geometry", "properties"),
)
"""All options of a stream."""
Choice = TypeVar("Choice", bound=StrEnum)


class GeometryForm(StrEnum):
    """What geometries are on Spark."""

    WKB = "wkb"
    """Bytes, ISO WKB."""
    GEOMETRY = "geometry"
    """Spark's own type, GEOMETRY(4326)."""


class ReadOptions(msgspec.Struct, frozen=True):
    """What is to be read."""

    place: Place
    collection: str
    version: str = HEAD
    query: Query = Query()
    pushes_filters: bool = False
    """Whether Spark's filters become a part of the query. Spark keeps what was planned with filters
    for all later scans of a table, so that who reads a table with other filters, or none, would get
    the wrong rows. Only who reads it with one set of filters may say so."""


class StreamOptions(msgspec.Struct, frozen=True):
    """What is to be followed, and from where on."""

    place: Place
    collection: str
    starting: str
    branch: str = MAIN_BRANCH
    rows_max: int | None = None
    transactions_max: int | None = None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a read."""
    if STARTING in options:
        raise InvalidArgument(
            f"{STARTING} is for spark.readStream; a table is read at one version, the option"
            " 'version'",
            field=STARTING,
        )
    _check(options, (*READ, COLUMNS))
    return ReadOptions(
        existing_place(options),
        needed(options, "collection"),
        options.get("version", HEAD),
        query_of(options),
        flag(options, "pushFilters", default=False),
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options of a stream."""
    if "version" in options:
        raise InvalidArgument(
            f"A stream has no version: {STARTING} says after which one it begins, and branch which"
            " line it follows",
            field="version",
        )
    if not options.get(STARTING):
        raise InvalidArgument(
            f"A stream needs the option {STARTING}: 'now', 'beginning', or a version, after which"
            " it begins",
            field=STARTING,
        )
    _check(options, STREAM)
    return StreamOptions(
        existing_place(options),
        needed(options, "collection"),
        options[STARTING],
        options.get("branch", MAIN_BRANCH),
        _count(options, ROWS_MAX),
        _count(options, TRANSACTIONS_MAX),
    )


def is_of_stream(options: Mapping[str, str]) -> bool:
    """Whether the options are those of a stream, which nobody else tells."""
    return any(name in options for name in STREAM if name not in READ)


def _check(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse options that nobody would look at; and that of `naksha.spark.features` which needs
    more than a source can do."""
    check_names(options, known)
    if options.get("properties", "json") != "json":
        raise NotSupported(
            "A source gives properties as JSON text only; naksha.spark.features(…, properties="
            '"variant") makes variants of them, or columns by a schema, as does Spark\'s'
            " parse_json(properties)",
            field="properties",
        )


def existing_place(options: Mapping[str, str]) -> Place:
    """The storage that is read."""
    place = place_of(options)
    check_there(place)
    return place


def check_there(place: Place) -> None:
    """A file that is not there is no empty storage; to be looked at wherever it is read."""
    if STORAGES.scheme_of(place.location) == FILE and not path_of(place.location).exists():
        raise NotFound(f"There is no file {path_of(place.location)}", field="storage")


def geometry_form(options: Mapping[str, str]) -> GeometryForm:
    """In which form geometries come, unless a schema says so."""
    return _one_of(options, "geometry", GeometryForm, GeometryForm.WKB)


def query_of(options: Mapping[str, str]) -> Query:
    """What is asked for besides Spark's filters."""
    return Query(
        spatial=_spatial(options),
        where=_where(options),
        tags=_tags(options),
        updated_from=_time(options, "updatedFrom"),
        updated_to=_time(options, "updatedTo"),
        states=_one_of(options, "states", States, States.LIVE),
    )


def _one_of(options: Mapping[str, str], name: str, kind: type[Choice], otherwise: Choice) -> Choice:
    text = options.get(name)
    if text is None:
        return otherwise
    try:
        return kind(text.lower())
    except ValueError:
        raise InvalidArgument(
            f"{name} is one of {', '.join(kind)}, not {text!r:.64}", field=name
        ) from None


def _spatial(options: Mapping[str, str]) -> Spatial | None:
    given = [name for name in ("bbox", "tile", "intersects") if options.get(name)]
    if len(given) > 1:
        raise InvalidArgument(f"Only one of {' and '.join(given)} can be given", field=given[1])
    if options.get("radius") and given != ["intersects"]:
        raise InvalidArgument("A radius is around a geometry to intersect", field="radius")
    if not given:
        return None
    text = options[given[0]]
    if given == ["tile"]:
        return Tile(text)
    if given == ["bbox"]:
        edges = [_number(edge, "bbox") for edge in text.split(",")]
        if len(edges) != 4:
            raise InvalidArgument("A bbox is west,south,east,north", field="bbox")
        return Bbox(*edges)
    return Intersects(_wkb(text), _number(options.get("radius", "0"), "radius"))


def _wkb(text: str) -> bytes:
    """The WKB of a geometry given as GeoJSON or WKT."""
    try:
        if text.lstrip().startswith("{"):
            (wkb,) = encode_geometries([{"geometry": msgspec.json.decode(text)}]).wkb
            assert wkb is not None
            return wkb
        return bytes(shapely.to_wkb(shapely.from_wkt(text), flavor="iso"))
    except (msgspec.DecodeError, shapely.errors.GEOSException, NotImplementedError) as error:
        raise InvalidArgument(
            f"No geometry as GeoJSON or WKT: {error}", field="intersects"
        ) from None


def _where(options: Mapping[str, str]) -> Predicate | None:
    text = options.get("where")
    if not text:
        return None
    try:
        found: Predicate = msgspec.json.decode(text, type=Predicate)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            "where is a predicate as JSON, such as"
            ' {"type": "test", "path": ["properties", "speed"], "op": "gt", "value": 50}: '
            f"{error}",
            field="where",
        ) from None
    return found


def _tags(options: Mapping[str, str]) -> tuple[tuple[str, ...], ...] | None:
    """`a,b+c` means a, or b and c."""
    text = options.get("tags")
    if not text:
        return None
    groups = [group for group in text.split(",") if group.strip("+")]
    if not groups:
        return None
    wanted = [tuple(normalise_tag(tag) for tag in group.split("+") if tag) for group in groups]
    if sum(map(len, wanted)) > limits.TAGS_MAX:
        raise InvalidArgument(f"More than {limits.TAGS_MAX} tags", field="tags")
    # A tag of which nothing is left in normal form is on no feature.
    return tuple(group for group in wanted if all(group))


def _time(options: Mapping[str, str], name: str) -> int | None:
    """Epoch milliseconds, or a time as versions say it."""
    text = options.get(name)
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text), limits.INT8_MAX)
    ref = parse_ref(text)
    if not isinstance(ref, One) or not isinstance(ref.point, AtTime):
        raise InvalidArgument(
            f"{name} is a time such as 2026-01-31T12:00, or milliseconds, not {text!r:.64}",
            field=name,
        )
    return ref.point.epoch_ms


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{name} has {text!r:.64}, which is no number", field=name) from None


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidArgument(f"{name} is a number from 1 on, not {text!r:.64}", field=name)
    return int(text)

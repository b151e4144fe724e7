"""Parse the options of reads and streams.

    storage, schema, collection          location
    version, states                      which states: live, deleted or all of a version
    bbox, tile, intersects, radius       spatial filter
    tags, where                          other filters
    createdFrom, createdTo               times, like updatedFrom and updatedTo
    geometry                             format of geometries
    pushFilters                          whether the storage evaluates Spark's filters

All other conditions are filters of Spark, which can be pushed down
(`naksha.spark.source.pushdown`).
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
from naksha.spark.source.options import HEAD, StorageRef, check_names, flag, needed, storage_ref_of
from naksha.spi.locations import FILE, STORAGES, path_of
from naksha.versioning.version_refs import MAIN_BRANCH, SingleRef, parse_ref

PLACE: Final = ("storage", "schema", "collection")
STARTING: Final = "startingVersion"
READ: Final = (
    *PLACE,
    *("version", "states", "bbox", "tile", "intersects", "radius", "tags", "where"),
    *("createdFrom", "createdTo", "updatedFrom", "updatedTo"),
    *("geometry", "properties", "pushFilters"),
)
"""All options of a read."""
COLUMNS: Final = "columns"
"""Schema of a table as JSON; `naksha.spark.features` sets it."""
ROWS_MAX: Final = "maxRowsPerTrigger"
TRANSACTIONS_MAX: Final = "maxTransactionsPerTrigger"
STREAM: Final = (
    *PLACE,
    *("branch", STARTING, ROWS_MAX, TRANSACTIONS_MAX, "geometry", "properties"),
)
"""All options of a stream."""
Choice = TypeVar("Choice", bound=StrEnum)


class GeometryForm(StrEnum):
    """Format of geometries on Spark."""

    WKB = "wkb"
    """ISO WKB as BINARY."""
    GEOMETRY = "geometry"
    """Spark's native type GEOMETRY(4326)."""


class ReadOptions(msgspec.Struct, frozen=True):
    """Parsed options of a read."""

    place: StorageRef
    collection: str
    version: str = HEAD
    query: Query = Query()
    pushes_filters: bool = False
    """Whether Spark's filters become a part of the query. Spark reuses a plan with filters for all
    later scans of the same table, so a scan with other filters, or none, would get wrong rows. Only
    enable it for a table that is always read with the same filters."""


class StreamOptions(msgspec.Struct, frozen=True):
    """Parsed options of a stream."""

    place: StorageRef
    collection: str
    starting: str
    branch: str = MAIN_BRANCH
    rows_max: int | None = None
    transactions_max: int | None = None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read."""
    if STARTING in options:
        raise InvalidArgument(
            f"The option {STARTING!r} requires spark.readStream; for a table use the option"
            " 'version'",
            field=STARTING,
        )
    _check(options, (*READ, COLUMNS))
    return ReadOptions(
        _existing_storage_ref(options),
        needed(options, "collection"),
        options.get("version", HEAD),
        query_of(options),
        flag(options, "pushFilters", default=False),
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream."""
    if "version" in options:
        raise InvalidArgument(
            f"The option 'version' is not allowed for a stream; use {STARTING!r} for the version"
            " after which it starts, and 'branch' for the branch",
            field="version",
        )
    if not options.get(STARTING):
        raise InvalidArgument(
            f"The option {STARTING!r} is required for a stream: 'now', 'beginning', or the version"
            " after which it starts",
            field=STARTING,
        )
    _check(options, STREAM)
    return StreamOptions(
        _existing_storage_ref(options),
        needed(options, "collection"),
        options[STARTING],
        options.get("branch", MAIN_BRANCH),
        _count(options, ROWS_MAX),
        _count(options, TRANSACTIONS_MAX),
    )


def is_of_stream(options: Mapping[str, str]) -> bool:
    """Whether the options are those of a stream; Spark does not pass that information."""
    return any(name in options for name in STREAM if name not in READ)


def _check(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Reject unknown options, and `properties` that only `naksha.spark.features` supports."""
    check_names(options, known)
    if options.get("properties", "json") != "json":
        raise NotSupported(
            "The option 'properties' must be 'json'; for variants or typed columns use"
            " naksha.spark.features(…, properties=…) or Spark's parse_json(properties)",
            field="properties",
        )


def _existing_storage_ref(options: Mapping[str, str]) -> StorageRef:
    """Return the location of the storage to read."""
    place = storage_ref_of(options)
    check_file_exists(place)
    return place


def check_file_exists(place: StorageRef) -> None:
    """Reject a file that does not exist: opening it would create an empty storage.

    Executors check it as well, since they may be on other machines.
    """
    if STORAGES.scheme_of(place.location) == FILE and not path_of(place.location).exists():
        raise NotFound(
            f"The storage file {path_of(place.location)} does not exist", field="storage"
        )


def geometry_form(options: Mapping[str, str]) -> GeometryForm:
    """Parse the format of geometries, for reads without a schema."""
    return _one_of(options, "geometry", GeometryForm, GeometryForm.WKB)


def query_of(options: Mapping[str, str]) -> Query:
    """Build the query of the options, without Spark's filters."""
    return Query(
        spatial=_spatial(options),
        where=_where(options),
        tags=_tags(options),
        created_from=_time(options, "createdFrom"),
        created_to=_time(options, "createdTo"),
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
            f"The option {name!r} must be one of {', '.join(kind)}, not {text!r:.64}", field=name
        ) from None


def _spatial(options: Mapping[str, str]) -> Spatial | None:
    exclusive = [name for name in ("bbox", "tile", "intersects") if options.get(name)]
    if len(exclusive) > 1:
        raise InvalidArgument(
            f"Options {' and '.join(exclusive)} are mutually exclusive; set only one of them",
            field=exclusive[1],
        )
    if options.get("radius") and exclusive != ["intersects"]:
        raise InvalidArgument(
            "The option 'radius' requires the option 'intersects'", field="radius"
        )
    if not exclusive:
        return None
    text = options[exclusive[0]]
    if exclusive == ["tile"]:
        return Tile(text)
    if exclusive == ["bbox"]:
        edges = [_number(edge, "bbox") for edge in text.split(",")]
        if len(edges) != 4:
            raise InvalidArgument(
                f"The option 'bbox' must be west,south,east,north, not {text!r:.64}", field="bbox"
            )
        return Bbox(*edges)
    return Intersects(_wkb(text), _number(options.get("radius", "0"), "radius"))


def _wkb(text: str) -> bytes:
    """Convert a geometry from GeoJSON or WKT to WKB."""
    try:
        if text.lstrip().startswith("{"):
            (wkb,) = encode_geometries([{"geometry": msgspec.json.decode(text)}]).wkb
            assert wkb is not None
            return wkb
        return bytes(shapely.to_wkb(shapely.from_wkt(text), flavor="iso"))
    except (msgspec.DecodeError, shapely.errors.GEOSException, NotImplementedError) as error:
        raise InvalidArgument(
            f"The option 'intersects' must be GeoJSON or WKT: {error}", field="intersects"
        ) from None


def _where(options: Mapping[str, str]) -> Predicate | None:
    text = options.get("where")
    if not text:
        return None
    try:
        found: Predicate = msgspec.json.decode(text, type=Predicate)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            "The option 'where' must be a predicate as JSON, such as"
            ' {"type": "test", "path": ["properties", "speed"], "op": "gt", "value": 50}: '
            f"{error}",
            field="where",
        ) from None
    return found


def _tags(options: Mapping[str, str]) -> tuple[tuple[str, ...], ...] | None:
    """Parse tags; `a,b+c` means a, or b and c."""
    text = options.get("tags")
    if not text:
        return None
    groups = [group for group in text.split(",") if group.strip("+")]
    if not groups:
        return None
    wanted = [tuple(normalise_tag(tag) for tag in group.split("+") if tag) for group in groups]
    if sum(map(len, wanted)) > limits.TAGS_MAX:
        raise InvalidArgument(
            f"The option 'tags' has more than {limits.TAGS_MAX} tags", field="tags"
        )
    # No feature has a tag that is empty in normal form.
    return tuple(group for group in wanted if all(group))


def _time(options: Mapping[str, str], name: str) -> int | None:
    """Parse epoch milliseconds, or a time in the syntax of versions."""
    text = options.get(name)
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text), limits.INT8_MAX)
    ref = parse_ref(text)
    if not isinstance(ref, SingleRef) or not isinstance(ref.point, AtTime):
        raise InvalidArgument(
            f"The option {name!r} must be a time such as 2026-01-31T12:00, or milliseconds, not"
            f" {text!r:.64}",
            field=name,
        )
    return ref.point.epoch_ms


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(
            f"The option {name!r} contains {text!r:.64}, which is not a number", field=name
        ) from None


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidArgument(
            f"The option {name!r} must be a positive integer, not {text!r:.64}", field=name
        )
    return int(text)

"""Reader of GeoJSON as records, decoded in C; invalid features are reported with their lines.

A record has the columns source, line, those of `naksha.spi.arrow.INPUT`, adjusted, problem and
record. An invalid record has a problem and the text of the record, others have the columns of
`INPUT`. `adjusted` is null if the geometry must not be changed.
"""

from __future__ import annotations

import codecs
import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import shapely

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.geo.dateline import bounded_geometry
from naksha.model.geo.geometry import encode_geometries, wkb_of
from naksha.model.geo.geometry_rules import geometry_problem
from naksha.spark.jobs.loading.files import FilePiece
from naksha.spark.jobs.loading.references import is_lon_lat
from naksha.spi.arrow import INPUT

RECORDS: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),
        *INPUT,
        pa.field("adjusted", pa.bool_()),
        pa.field("problem", pa.string()),
        pa.field("record", pa.string()),
    ]
)
CHUNK: Final = 10_000
"""Maximum number of records that are read together."""
_SEPARATOR: Final = b"\x1e"
EXACT_MAX: Final = 2**53 - 1
"""Maximum integer up to which all integers are exact as doubles."""
_NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _FileFeature(msgspec.Struct):
    """Members of a feature that GeoJSON defines."""

    type: str
    id: str | int | float | None = None
    geometry: Any = None
    properties: msgspec.Raw = msgspec.Raw(b"null")


class _FileDocument(msgspec.Struct):
    type: str
    features: list[msgspec.Raw] | None = None


class _Head(msgspec.Struct):
    """Members of a document that apply to all of its features."""

    crs: Any = None


_Part = TypeVar("_Part")
Text = tuple[int, bytes]
"""Line number and JSON of a feature."""


_KNOWN: Final = frozenset({"type", "id", "geometry", "properties", "bbox", "crs"})
_feature = msgspec.json.Decoder(_FileFeature).decode
_features = msgspec.json.Decoder(list[_FileFeature]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_all_members = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode


def read_lines(
    piece: FilePiece, crs: str | None = None, *, is_cut: bool = True
) -> Iterator[pa.RecordBatch]:
    """Read the features of a piece of a file with one feature per line."""
    for texts in _together(_lines(piece)):
        yield records_of(piece.path, texts, crs, is_cut=is_cut)


def _lines(piece: FilePiece) -> Iterator[Text]:
    left = (piece.end or 0) - piece.start
    with Path(piece.path).open("rb") as file:
        file.seek(piece.start)
        number = piece.line
        while left > 0 and (line := file.readline()):
            left -= len(line)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            text = line.strip().lstrip(_SEPARATOR)
            if text:
                yield number, text
            number += 1


def read_document(
    piece: FilePiece, crs: str | None = None, *, is_cut: bool = True
) -> Iterator[pa.RecordBatch]:
    """Read the features of a file that is a single GeoJSON document.

    The file is memory-mapped; only the positions of the features are held in memory.
    """
    path = piece.path
    text = _mapped(path)
    document = _decoded(path, text, _FileDocument)
    if document.type == "Feature":
        yield records_of(path, [(1, bytes(_body(text)))], crs, is_cut=is_cut)
        return
    if document.type != "FeatureCollection" or document.features is None:
        raise InvalidArgument(
            f"The file {path} must contain a Feature or FeatureCollection, not"
            f" {document.type!r:.64}",
            field="files",
        )
    for texts in _together(_found(text, document.features)):
        yield records_of(path, texts, crs, is_cut=is_cut)


def _found(text: mmap.mmap, features: Sequence[msgspec.Raw]) -> Iterator[Text]:
    line, position = 1, 0
    for raw in features:
        each = bytes(raw)
        # Features are in the order of the document, so it is searched only once.
        found = text.find(each, position)
        line += text[position:found].count(b"\n")
        yield line, each
        line += each.count(b"\n")
        position = found + len(each)


def _together(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Group texts into chunks of limited size."""
    chunk: list[Text] = []
    size = 0
    for each in texts:
        chunk.append(each)
        size += len(each[1])
        if len(chunk) == CHUNK or size >= limits.LOAD_CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def crs_in(path: str) -> str | None:
    """Return the coordinate reference system of a document, as specified before RFC 7946."""
    text = _mapped(path)
    if text.find(b'"crs"') < 0:
        return None  # fast path: few documents have one, and parsing takes much longer
    return _name_of(_decoded(path, text, _Head).crs)


def _name_of(crs: Any) -> str | None:
    match crs:
        case None:
            return None
        case {"properties": {"name": str(name)}}:
            return name
        case _:
            return _encode(crs).decode()


def _mapped(path: str) -> mmap.mmap:
    if Path(path).stat().st_size == 0:
        raise InvalidArgument(f"The file {path} is empty", field="files")
    with Path(path).open("rb") as file:
        # It is closed when the last feature, which is a view of it, is released.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _body(text: mmap.mmap) -> memoryview:
    """Return the document without a byte order mark."""
    mark = codecs.BOM_UTF8
    return memoryview(text)[len(mark) if text[: len(mark)] == mark else 0 :]


def _decoded(path: str, text: mmap.mmap, type_: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(_body(text), type=type_)
    except _NO_JSON as error:
        raise InvalidArgument(
            f"The file {path} is not valid GeoJSON: {error}", field="files"
        ) from error


def records_of(
    source: str, texts: Sequence[Text], crs: str | None = None, *, is_cut: bool = True
) -> pa.RecordBatch:
    """Convert features, given as JSON with their lines, to records.

    `crs` is the coordinate reference system of all, if it is given. Longitudes beyond the date line
    are normalised if `is_cut`.
    """
    bodies = [text for _, text in texts]
    problems: list[str | None] = [None] * len(texts)
    try:
        joined = b"[" + b",".join(bodies) + b"]"
        joined.decode()  # msgspec does not validate raw members
        features = _features(joined)
        extra = _all_members(joined)
        if len(features) != len(texts):  # a line has several features
            raise msgspec.DecodeError("more than one feature")
    except _NO_JSON:
        features, extra = _one_by_one(bodies, problems)
    for n, feature in enumerate(features):
        if problems[n] is None:
            problems[n] = _problem(feature) or (
                _misread(feature, extra[n]) if crs is None else None
            )
    if is_lon_lat(crs):
        geometry, adjusted = _geometries(features, problems, is_cut=is_cut)
    else:
        geometry, adjusted = _elsewhere(features, problems), [False] * len(texts)
    columns: list[Any] = [
        [source] * len(texts),
        [line for line, _ in texts],
        [_id(feature.id) for feature in features],
        geometry,
        [_text(feature.properties) for feature in features],
        [_rest(members) for members in extra],
        [None] * len(texts),
        [None] * len(texts),
        adjusted,
        problems,
        [_shown(body) if problem else None for body, problem in zip(bodies, problems, strict=True)],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def _one_by_one(
    bodies: Sequence[bytes], problems: list[str | None]
) -> tuple[list[_FileFeature], list[dict[str, msgspec.Raw]]]:
    """Decode features separately, to find the invalid ones."""
    nothing = _FileFeature("Feature")
    features, extra = [nothing] * len(bodies), [dict[str, msgspec.Raw]()] * len(bodies)
    for n, body in enumerate(bodies):
        try:
            body.decode()
            features[n], extra[n] = _feature(body), _members(body)
        except _NO_JSON as error:
            problems[n] = f"is not a valid GeoJSON feature: {error}"
    return features, extra


def _geometries(
    features: Sequence[_FileFeature], problems: list[str | None], *, is_cut: bool
) -> tuple[list[bytes | None], list[bool]]:
    """Convert geometries to WKB with the rules of every write; also return which were changed.

    The storage rejects longitudes beyond the date line, but a load normalises them.
    """
    try:
        made = encode_geometries([{"geometry": feature.geometry} for feature in features])
        return made.wkb, [False] * len(features)
    except InvalidArgument:
        found: list[bytes | None] = [None] * len(features)
        adjusted = [False] * len(features)
    for n, feature in enumerate(features):
        as_it_is = (feature.geometry, None)
        geometry, change = bounded_geometry(feature.geometry) if is_cut else as_it_is
        adjusted[n] = change is not None
        problem = None if feature.geometry is None else geometry_problem(geometry)
        if problem is None:
            found[n] = encode_geometries([{"geometry": geometry}]).wkb[0]
        elif problems[n] is None:
            problem = problem.below("geometry")
            problems[n] = problem.sentence()
    return found, adjusted


def _elsewhere(features: Sequence[_FileFeature], problems: list[str | None]) -> list[bytes | None]:
    """Convert geometries of another coordinate reference system to WKB.

    The rules of every write require degrees, so they are checked after the transformation.
    """
    given = [None if each.geometry is None else _encode(each.geometry) for each in features]
    shapes = shapely.from_geojson(np.array(given, dtype=object), on_invalid="ignore")
    for n, (text, is_missing) in enumerate(zip(given, shapely.is_missing(shapes), strict=True)):
        if is_missing and text is not None and problems[n] is None:
            problems[n] = "geometry is not a valid GeoJSON geometry"
    return wkb_of(shapes)


def _problem(feature: _FileFeature) -> str | None:
    if feature.type != "Feature":
        return f"type must be 'Feature', not {feature.type!r:.64}"
    exact_max = EXACT_MAX if isinstance(feature.id, float) else limits.INT8_MAX
    if isinstance(feature.id, int | float) and abs(feature.id) > exact_max:
        return f"id {feature.id} is too large for a number and must be a string"
    return None


def _misread(feature: _FileFeature, members: dict[str, msgspec.Raw]) -> str | None:
    """Return the problem of a feature with its own reference system if there is no common one."""
    geometry = feature.geometry if isinstance(feature.geometry, dict) else {}
    own = msgspec.json.decode(members["crs"]) if "crs" in members else geometry.get("crs")
    name = _name_of(own)
    if is_lon_lat(name):
        return None
    return f"crs is {name!r:.64}; set the reference system of all features in the mapping"


def _id(value: str | float | None) -> str | None:
    """Convert an id to a string; `1.0` becomes `1`."""
    if value is None or isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else str(value)


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    return None if text == b"null" else text.decode()


def _rest(members: dict[str, msgspec.Raw]) -> str | None:
    """Encode the members of a feature that are not columns.

    `bbox` is omitted because the storage computes it, and `crs` because it only has one.
    """
    rest = {name: value for name, value in members.items() if name not in _KNOWN}
    return _encode(rest).decode() if rest else None


def _shown(body: bytes) -> str:
    return body.decode(errors="replace")

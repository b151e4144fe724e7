"""Features on their way into the tables of a bulk load: taken apart, by leaf, and copied.

The JSON of a feature is cut where the storage's part of the namespace goes in: `head` ends inside
`properties`, `tail` begins with the tags. So the namespace is put in between by joining texts, in
SQL for what is staged and here for what goes directly into a leaf table.

Rows are encoded for binary COPY right here: each piece is copied once, and not decoded in between.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec
import numpy as np
import shapely

from naksha.model.features import MARK_3D, PreparedFeatures
from naksha.spi.storage import Feature

CHUNK_FEATURES: Final = 10_000
"""Features checked and copied together: some hundred rows for each table, some MiB in memory."""
LEAF_COUNT: Final = 16
POSITIONS_MAX: Final = 1 << 20
"""More than a chunk ever has; orders rows inside of it."""
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_MARKED: Final = b'{"%b":true,' % MARK_3D.encode()
"""Begins the JSON of a feature whose geometry has heights; see naksha_is_3d in the schema."""
_START: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
# The number of fields, an int8 with its length, and the length of the field that follows.
_row: Final = struct.Struct(">hiqi").pack
_length: Final = struct.Struct(">i").pack
# The beginning of a row of a part, without a lock and with one: up to the length of its id.
_free: Final = struct.Struct(">hihihii").pack
_locked: Final = struct.Struct(">hihihiqi").pack
# A jsonb begins with its version.
_jsonb: Final = struct.Struct(">iB").pack
_NULL: Final = -1

Piece = tuple[bytes | None, bytes, bytes]
"""WKB, head and tail of one feature."""
Data = list[bytes]
"""For each leaf what is to be copied, empty when there is nothing."""


def chunks_of(features: Iterable[Feature]) -> Iterator[Sequence[Feature]]:
    """The features in parts; a sequence that is small enough is not copied."""
    if isinstance(features, Sequence) and len(features) <= CHUNK_FEATURES:
        if features:
            yield features
        return
    rest = iter(features)
    while chunk := list(islice(rest, CHUNK_FEATURES)):
        yield chunk


def pieces_of(prepared: PreparedFeatures, features: Sequence[Feature] | None = None) -> list[Piece]:
    """The features in pieces. `features` are those that were prepared, when they are at hand:
    their order tells where `properties` stands in the JSON."""
    texts: Iterable[bytes]
    if features is None:
        texts = map(_with_properties_last, prepared.json)
    else:
        texts = (
            json if _has_properties_last(features[at]) else _with_properties_last(json)
            for at, json in zip(prepared.positions, prepared.json, strict=True)
        )
    heads = map(_head, texts, prepared.has_z)
    tails = map(_tail, prepared.tags, prepared.crid, prepared.qrid)
    return list(zip(prepared.wkb, heads, tails, strict=True))


def leaves_of(ids: Iterable[str]) -> list[int]:
    """The number of the leaf of each id."""
    md5 = hashlib.md5
    return [md5(i.encode(), usedforsecurity=False).digest()[0] >> 4 for i in ids]


def staged_data(pieces: Sequence[Piece], leaves: Sequence[int], chunk: int) -> Data:
    """Rows (n, wkb, head, tail) of the staging tables."""
    parts: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
    first = chunk * POSITIONS_MAX
    for n, (leaf, (wkb, head, tail)) in enumerate(zip(leaves, pieces, strict=True), first):
        start = _row(4, 8, n, _NULL if wkb is None else len(wkb))
        parts[leaf] += (start, wkb or b"", _length(len(head)), head, _length(len(tail)), tail)
    return _joined(parts)


class PartRows:
    """Rows (leaf, given, lock, id, geo, head, tail) on their way into the table of a part, those of
    each leaf together."""

    def __init__(self) -> None:
        self._rows: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
        self.counts = [0] * LEAF_COUNT
        self.size = 0

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, prepared: PreparedFeatures, locks: Sequence[int | None]) -> None:
        """Add features in whose JSON `properties` comes last."""
        rows: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
        columns = zip(
            leaves_of(prepared.ids),
            prepared.ids,
            prepared.wkb,
            map(_head, prepared.json, prepared.has_z),
            map(_tail, prepared.tags, prepared.crid, prepared.qrid),
            map(_given, prepared.tags, prepared.crid),
            locks,
            strict=True,
        )
        for leaf, id_, wkb, head, tail, given, lock in columns:
            key = id_.encode()
            rows[leaf] += (
                _free(7, 2, leaf, 2, given, _NULL, len(key))
                if lock is None
                else _locked(7, 2, leaf, 2, given, 8, lock, len(key)),
                key,
                _length(_NULL if wkb is None else len(wkb)),
                wkb or b"",
                _length(len(head)),
                head,
                _length(len(tail)),
                tail,
            )
            self.counts[leaf] += 1
        for leaf, pieces in enumerate(rows):
            data = b"".join(pieces)
            self._rows[leaf].append(data)
            self.size += len(data)

    def data(self) -> bytes:
        """All of it for COPY."""
        return b"".join((_START, *chain.from_iterable(self._rows), _END))


def leaf_data(
    pieces: Sequence[Piece], leaves: Sequence[int], first_i: int, mark: bytes, after_i: bytes
) -> Data:
    """Finished rows (i, geo, jsondata) of the leaf tables."""
    parts: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
    geometries = _geometries([piece[0] for piece in pieces])
    common = 1 + len(mark) + len(after_i)
    for i, (leaf, geo, (_, head, tail)) in enumerate(
        zip(leaves, geometries, pieces, strict=True), first_i
    ):
        start = _row(3, 8, i, _NULL if geo is None else len(geo))
        digits = b"%d" % i
        json = _jsonb(common + len(head) + len(digits) + len(tail), 1)
        parts[leaf] += (start, geo or b"", json, head, mark, digits, after_i, tail)
    return _joined(parts)


def _joined(parts: list[list[bytes]]) -> Data:
    return [b"".join((_START, *rows, _END)) if rows else b"" for rows in parts]


def _geometries(wkbs: list[bytes | None]) -> list[bytes | None]:
    """As the column wants them: with three dimensions. The reference system is the column's, which
    PostGIS gives to a geometry that comes without one."""
    shapes = shapely.force_3d(shapely.from_wkb(np.array(wkbs, dtype=object)))
    found: list[bytes | None] = shapely.to_wkb(shapes, byte_order=1).tolist()
    return found


def _has_properties_last(feature: Mapping[str, Any]) -> bool:
    """Whether the JSON of the prepared feature ends with its properties."""
    if not isinstance(feature, dict):
        return False
    for key in reversed(feature):
        if key != "geometry":
            return bool(key == "properties" and "id" in feature)
    return False


def _with_properties_last(json: bytes) -> bytes:
    body = _decode(json)
    body["properties"] = body.pop("properties")
    return _encode(body)


def _head(json: bytes, has_z: bool) -> bytes:
    """Up to the last brace of `properties`, and ready for one more member."""
    # Only an empty object has its opening brace there.
    head = json[:-2] if json[-3:-2] == b"{" else json[:-2] + b","
    return _MARKED + head[1:] if has_z else head


def _tail(tags: list[str] | None, crid: str | None, qrid: str | None) -> bytes:
    words = b"[]" if tags is None else _encode(tags)
    quad = b"null" if qrid is None else b'"%b"' % qrid.encode()
    own = _encode(crid or None)
    mrid = own if crid else quad
    return b'"tags":%b,"crid":%b,"qrid":%b,"mrid":%b}}}' % (words, own, quad, mrid)


def _given(tags: list[str] | None, crid: str | None) -> int:
    """What the client said of the namespace; see naksha_staged_open in the schema."""
    return (tags is not None) | (crid is not None) << 1

"""Encoding of features for the tables of a bulk load: split into pieces, by leaf, for COPY.

The JSON of a feature is cut at the place of the storage's part of the namespace: `head` ends inside
`properties`, and `tail` begins with the tags. So the namespace is inserted by concatenation: in SQL
for staged features, and here for those that go directly into a leaf table.

Rows are encoded for binary COPY right here: each piece is copied once, and not decoded in between.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import shapely

from naksha.model.features import MARK_3D, PreparedFeatures
from naksha.model.json_text import (
    close_namespace,
    open_properties,
    with_first,
    with_properties_last,
)
from naksha.spi.storage import Feature

CHUNK_FEATURES: Final = 10_000
"""Features checked and copied together: some hundred rows per table, some MiB in memory."""
LEAF_COUNT: Final = 16
_POSITIONS_MAX: Final = 1 << 20
"""More than the features of a chunk; numbers the rows inside of it."""

_START: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
# The number of fields, an int8 with its length, and the length of the next field.
_row: Final = struct.Struct(">hiqi").pack
_length: Final = struct.Struct(">i").pack
# The start of a row of a part, up to the length of its id: without a lock, and with one.
_free: Final = struct.Struct(">hihihii").pack
_locked: Final = struct.Struct(">hihihiqi").pack
# A jsonb begins with its version.
_jsonb: Final = struct.Struct(">iB").pack
_NULL: Final = -1

Piece = tuple[bytes | None, bytes, bytes]
"""WKB, head and tail of one feature."""
Data = list[bytes]
"""For each leaf the data to copy, empty if there is none."""


def chunks_of(features: Iterable[Feature]) -> Iterator[Sequence[Feature]]:
    """Split the features into chunks; a sequence that is small enough is not copied."""
    if isinstance(features, Sequence) and len(features) <= CHUNK_FEATURES:
        if features:
            yield features
        return
    rest = iter(features)
    while chunk := list(islice(rest, CHUNK_FEATURES)):
        yield chunk


def pieces_of(prepared: PreparedFeatures, features: Sequence[Feature] | None = None) -> list[Piece]:
    """Split prepared features into pieces.

    `features` are the original features, if available: the order of their keys tells whether
    `properties` comes last in the JSON.
    """
    texts: Iterable[bytes]
    if features is None:
        texts = map(with_properties_last, prepared.json)
    else:
        texts = (
            json if _has_properties_last(features[at]) else with_properties_last(json)
            for at, json in zip(prepared.positions, prepared.json, strict=True)
        )
    heads = _heads(texts, prepared.has_z)
    tails = map(close_namespace, prepared.tags, prepared.crid, prepared.qrid)
    return list(zip(prepared.wkb, heads, tails, strict=True))


def leaves_of(ids: Iterable[str]) -> list[int]:
    """Return the number of the leaf of each id."""
    md5 = hashlib.md5
    return [md5(i.encode(), usedforsecurity=False).digest()[0] >> 4 for i in ids]


def staged_data(pieces: Sequence[Piece], leaves: Sequence[int], chunk: int) -> Data:
    """Encode rows (n, wkb, head, tail) of the staging tables."""
    parts: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
    first = chunk * _POSITIONS_MAX
    for n, (leaf, (wkb, head, tail)) in enumerate(zip(leaves, pieces, strict=True), first):
        start = _row(4, 8, n, _NULL if wkb is None else len(wkb))
        parts[leaf] += (start, wkb or b"", _length(len(head)), head, _length(len(tail)), tail)
    return _joined(parts)


class PartRows:
    """Buffer of rows (leaf, given, lock, id, geo, head, tail) of a part's table, by leaf."""

    def __init__(self) -> None:
        self._rows: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
        self.counts = [0] * LEAF_COUNT
        self.size = 0

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, prepared: PreparedFeatures, locks: Sequence[int | None]) -> None:
        """Add features whose JSON has `properties` last."""
        rows: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
        columns = zip(
            leaves_of(prepared.ids),
            prepared.ids,
            prepared.wkb,
            _heads(prepared.json, prepared.has_z),
            map(close_namespace, prepared.tags, prepared.crid, prepared.qrid),
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
        """Return all rows as the data of a binary COPY."""
        return b"".join((_START, *chain.from_iterable(self._rows), _END))


def leaf_data(
    pieces: Sequence[Piece], leaves: Sequence[int], first_i: int, mark: bytes, after_i: bytes
) -> Data:
    """Encode complete rows (i, geo, jsondata) of the leaf tables."""
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
    """Convert geometries to three dimensions, as the column requires.

    They have no reference system; PostGIS assigns that of the column.
    """
    shapes = shapely.force_3d(shapely.from_wkb(np.array(wkbs, dtype=object)))
    found: list[bytes | None] = shapely.to_wkb(shapes, byte_order=1).tolist()
    return found


def _has_properties_last(feature: Mapping[str, Any]) -> bool:
    """Whether `properties` is the last member of the prepared feature's JSON."""
    if not isinstance(feature, dict):
        return False
    for key in reversed(feature):
        if key != "geometry":
            return bool(key == "properties" and "id" in feature)
    return False


def _heads(texts: Iterable[bytes], has_z: Iterable[bool]) -> list[bytes]:
    """Return the JSON up to the place of the namespace; see naksha_is_3d in the schema."""
    return [
        open_properties(with_first(text, MARK_3D, b"true") if is_3d else text)
        for text, is_3d in zip(texts, has_z, strict=True)
    ]


def _given(tags: list[str] | None, crid: str | None) -> int:
    """Return which namespace members the client set; see naksha_staged_open in the schema."""
    return (tags is not None) | (crid is not None) << 1

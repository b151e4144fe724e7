"""Encoding of features for the tables of staged parts: split into pieces, by leaf, for COPY.

The JSON of a feature is cut at the place of the storage's part of the namespace: `head` ends inside
`properties`, and `tail` begins with the tags. So SQL inserts the namespace by concatenation.

Rows are encoded for binary COPY right here: each piece is copied once, and not decoded in between.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from naksha.model.features import MARK_3D, PreparedFeatures
from naksha.model.json_text import (
    close_namespace,
    open_properties,
    with_first,
)

CHUNK_FEATURES: Final = 10_000
"""Features checked and copied together: some hundred rows per table, some MiB in memory."""
LEAF_COUNT: Final = 16

_START: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_length: Final = struct.Struct(">i").pack
# The start of a row of a part, up to the length of its id: without a lock, and with one.
_free: Final = struct.Struct(">hihihii").pack
_locked: Final = struct.Struct(">hihihiqi").pack
_NULL: Final = -1


def leaves_of(ids: Iterable[str]) -> list[int]:
    """Return the number of the leaf of each id."""
    md5 = hashlib.md5
    return [md5(i.encode(), usedforsecurity=False).digest()[0] >> 4 for i in ids]


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


def _heads(texts: Iterable[bytes], has_z: Iterable[bool]) -> list[bytes]:
    """Return the JSON up to the place of the namespace; see naksha_is_3d in the schema."""
    return [
        open_properties(with_first(text, MARK_3D, b"true") if is_3d else text)
        for text, is_3d in zip(texts, has_z, strict=True)
    ]


def _given(tags: list[str] | None, crid: str | None) -> int:
    """Return which namespace members the client set; see naksha_staged_open in the schema."""
    return (tags is not None) | (crid is not None) << 1

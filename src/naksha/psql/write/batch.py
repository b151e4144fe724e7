"""Rows of a write in locking order: by leaf, then by id as the database compares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from naksha.model.state import XYZ
from naksha.psql.read.statements import leaf_of
from naksha.spi.support.write_input import WriteBatch

T = TypeVar("T")
MARK_3D = b',"naksha:3d":true}'
"""End of the JSON of a feature whose geometry has heights; see naksha_is_3d in the schema."""


class Batch:
    """The permutation that sorts the rows, and the number of rows in each of the 16 leaves."""

    def __init__(self, order: list[int], counts: list[int]) -> None:
        self.order = order
        self.counts = counts

    @classmethod
    def of(cls, ids: Sequence[str]) -> Batch:
        """Return the batch of these ids, which must be distinct."""
        keys = [(leaf_of(i), i.encode()) for i in ids]
        order = sorted(range(len(ids)), key=keys.__getitem__)
        counts = [0] * 16
        for leaf, _ in keys:
            counts[int(leaf, 16)] += 1
        return cls(order, counts)

    def pick(self, column: Sequence[T]) -> list[T]:
        """Return a column in the batch's order."""
        return [column[n] for n in self.order]

    @staticmethod
    def columns(batch: WriteBatch) -> list[Sequence[Any]]:
        """Return the parameters of naksha_write from `ids` to `muuids`."""
        prepared = batch.prepared
        contents = [
            (json[:-1] + MARK_3D if has_z else json).decode()
            for json, has_z in zip(prepared.json, prepared.has_z, strict=True)
        ]
        if batch.after is not None:
            contents = [*map(_after_version, contents, batch.after)]
        tags = [None if t is None else msgspec.json.encode(t).decode() for t in prepared.tags]
        return [
            prepared.ids,
            contents,
            prepared.wkb,
            prepared.qrid,
            tags,
            prepared.crid,
            batch.locks,
            batch.muuids,
        ]


def _after_version(content: str, version: int) -> str:
    """Add the version to the content that naksha_put_sql continues after."""
    parsed = msgspec.json.decode(content)
    parsed["properties"][XYZ] = {"version": version}
    return msgspec.json.encode(parsed).decode()

"""Rows of a write in locking order: by leaf, then by id as the database compares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from naksha.model.features import MARK_3D
from naksha.model.json_text import with_last, with_namespace
from naksha.psql.read.statements import leaf_of
from naksha.spi.support.write_input import Batch, WriteBatch

T = TypeVar("T")
_OF_FEATURES: Final = 6
"""Number of parameters of naksha_write that only features have, from `contents` to `muuids`."""


class Rows:
    """The permutation that sorts the rows, and the number of rows in each of the 16 leaves."""

    def __init__(self, order: list[int], counts: list[int]) -> None:
        self.order = order
        self.counts = counts

    @classmethod
    def of(cls, ids: Sequence[str]) -> Rows:
        """Return the rows of these ids, which must be distinct."""
        keys = [(leaf_of(i), i.encode()) for i in ids]
        order = sorted(range(len(ids)), key=keys.__getitem__)
        counts = [0] * 16
        for leaf, _ in keys:
            counts[int(leaf, 16)] += 1
        return cls(order, counts)

    def pick(self, column: Sequence[T]) -> list[T]:
        """Return a column in the order of the rows."""
        return [column[n] for n in self.order]


def write_values(batches: Sequence[Batch], resolved: int, *, returning: bool) -> list[Any]:
    """Return the parameters of naksha_write from `modes` on."""
    counts: list[int] = []
    columns: list[list[Any]] = [[] for _ in range(2 + _OF_FEATURES)]
    for batch in batches:
        rows = Rows.of(batch.ids)
        counts += rows.counts
        for joined, column in zip(columns, _columns(batch), strict=True):
            joined += rows.pick(column)
    ids, *others = columns
    return [
        [batch.mode for batch in batches],
        counts,
        ids,
        *map(_column_or_null, others),
        returning,
        resolved,
        *_locked(batches),
    ]


def _column_or_null(column: list[Any]) -> list[Any] | None:
    """Return null for a column of nulls, which SQL takes as the same and is sent faster."""
    return None if column.count(None) == len(column) else column


def _columns(batch: Batch) -> list[Sequence[Any]]:
    """Return ids, locks and the columns of features, in the order of the parameters."""
    if not isinstance(batch, WriteBatch):
        return [batch.ids, batch.locks, *[[None] * len(batch.ids)] * _OF_FEATURES]
    prepared = batch.prepared
    # See naksha_is_3d in the schema.
    contents = [
        with_last(json, MARK_3D, b"true") if has_z else json
        for json, has_z in zip(prepared.json, prepared.has_z, strict=True)
    ]
    if batch.after is not None:
        # naksha_put_sql continues after the version in the namespace.
        versions = [b'{"version":%d}' % version for version in batch.after]
        contents = [*map(with_namespace, contents, versions)]
    tags = [None if t is None else msgspec.json.encode(t).decode() for t in prepared.tags]
    return [
        batch.ids,
        batch.locks,
        [content.decode() for content in contents],
        prepared.wkb,
        prepared.qrid,
        tags,
        prepared.crid,
        batch.muuids,
    ]


def _locked(batches: Sequence[Batch]) -> tuple[list[str] | None, list[int] | None]:
    """Return all ids in locking order, where they differ from those of the only batch."""
    if len(batches) == 1:
        return None, None
    ids = [id_ for batch in batches for id_ in batch.ids]
    rows = Rows.of(ids)
    return rows.pick(ids), rows.counts

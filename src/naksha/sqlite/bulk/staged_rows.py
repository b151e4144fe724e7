"""Rows of staged files: features on the way in, and batches to write on the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from naksha.model.features import PreparedFeatures
from naksha.spi.changes import PutMode
from naksha.spi.support.write_input import WriteBatch
from naksha.sqlite.write.states import StoredGeometries


def rows_of(prepared: PreparedFeatures, shapes: StoredGeometries) -> Iterator[tuple[Any, ...]]:
    """Convert features to rows of a stage."""
    for k, id_ in enumerate(prepared.ids):
        tags = prepared.tags[k]
        yield (
            id_,
            prepared.json[k],
            prepared.wkb[k],
            shapes.geometry[k],
            *(shapes.box[k] or (None,) * 4),
            prepared.qrid[k],
            None if tags is None else msgspec.json.encode(tags),
            prepared.crid[k],
        )


def batch_of(rows: list[tuple[Any, ...]], mode: PutMode) -> tuple[WriteBatch, StoredGeometries]:
    """Convert rows of a stage to features to write."""
    count = len(rows)
    ids, json, wkb, geometry, west, south, east, north, qrid, tags, crid = map(
        list, zip(*rows, strict=True)
    )
    boxes = [
        None if w is None else (w, s, e, n)
        for w, s, e, n in zip(west, south, east, north, strict=True)
    ]
    prepared = PreparedFeatures(
        positions=list(range(count)),
        ids=ids,
        json=json,
        wkb=wkb,
        has_z=[False] * count,
        qrid=qrid,
        tags=[None if each is None else msgspec.json.decode(each) for each in tags],
        crid=crid,
        lock_uuid=[None] * count,
        lock_version=[None] * count,
        values=[None] * count,
    )
    nothing = [None] * count
    return WriteBatch(mode, prepared, [*nothing], [*nothing]), StoredGeometries(geometry, boxes)

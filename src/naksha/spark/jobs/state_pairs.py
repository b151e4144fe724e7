"""Comparison of pairs of states: the kind of change, and the paths that changed.

Changed features are found by joins. The changed paths inside of documents cannot be computed from
columns. So the documents of changed features, and only these, are compared with the same function
as everywhere else in Naksha.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model import merge
from naksha.model.geo.geometry import geojson_texts
from naksha.model.merge import GEOMETRY
from naksha.model.state import XYZ
from naksha.spi.support.write_merge import content_of
from naksha.versioning.diff import DiffAction

STATE: Final = ("uuid", "geometry", "feature")
"""Columns of a pair, each with the prefixes `old_` and `new_`, in addition to `id`."""
_ABOUT: Final = [
    pa.field("id", pa.string()),
    pa.field("action", pa.string()),
    pa.field("paths", pa.list_(pa.string())),
    pa.field("old_uuid", pa.string()),
    pa.field("new_uuid", pa.string()),
]
TABLE: Final = pa.schema(
    [
        *_ABOUT,
        pa.field("old_geometry", pa.binary()),
        pa.field("old_feature", pa.string()),
        pa.field("new_geometry", pa.binary()),
        pa.field("new_feature", pa.string()),
    ]
)
"""Schema of changes with geometries in WKB and the rest of the features as JSON."""
DOCUMENTS: Final = pa.schema([*_ABOUT, pa.field("old", pa.string()), pa.field("new", pa.string())])
"""Schema of changes with complete features as GeoJSON."""

_decode = msgspec.json.Decoder(list[Any]).decode


class Comparer:
    """Task that compares pairs and omits those that are equal."""

    def __init__(self, *, documents: bool) -> None:
        self.schema = DOCUMENTS if documents else TABLE

    @property
    def spark_schema(self) -> StructType:
        """Schema of the result on Spark."""
        found: StructType = from_arrow_schema(self.schema)
        return found

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            actions = _actions(batch)
            paths, is_change = _paths(batch, actions)
            made = self._made(batch, actions, paths)
            yield made.filter(pa.array(is_change))

    def _made(
        self, batch: pa.RecordBatch, actions: pa.Array, paths: list[list[str]]
    ) -> pa.RecordBatch:
        given: dict[str, pa.Array] = {
            "action": actions,
            "paths": pa.array(paths, pa.list_(pa.string())),
        }
        if self.schema is not TABLE:
            given |= {side: _geojson(batch, side) for side in ("old", "new")}
        columns = [given.get(name) for name in self.schema.names]
        arrays = [
            batch.column(field.name) if column is None else column
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _actions(batch: pa.RecordBatch) -> pa.Array:
    return pc.if_else(
        batch.column("old_feature").is_null(),
        DiffAction.CREATED.value,
        pc.if_else(
            batch.column("new_feature").is_null(), DiffAction.DELETED.value, DiffAction.UPDATED
        ),
    )


def _paths(
    batch: pa.RecordBatch, actions: pa.Array
) -> tuple[list[list[str]], npt.NDArray[np.bool_]]:
    """Return the changed paths of each feature, and which pairs are changes at all."""
    paths: list[list[str]] = [[] for _ in range(len(batch))]
    is_change = np.ones(len(batch), dtype=np.bool_)
    both = np.flatnonzero(
        pc.equal(actions, DiffAction.UPDATED.value).to_numpy(zero_copy_only=False)
    )
    pairs = batch.take(pa.array(both))
    moved = _moved(pairs)
    documents = zip(_documents(pairs, "old"), _documents(pairs, "new"), strict=True)
    for n, (old, new), has_moved in zip(both, documents, moved, strict=True):
        paths[n] = _changed_places(old, new, moved=bool(has_moved))
        # The feature may be the same again after several states, or after one transaction that
        # changed it and changed it back.
        is_change[n] = bool(paths[n])
    return paths, is_change


def _changed_places(old: dict[str, Any], new: dict[str, Any], *, moved: bool) -> list[str]:
    """Return the paths at which two features without geometries differ.

    If the new feature has no tags or no `crid`, these count as unchanged.
    """
    before = content_of(old)
    after = content_of(new, before[XYZ])
    for content, geometry in ((before, 0), (after, int(moved))):
        content[GEOMETRY.removeprefix("/")] = geometry
        content["properties"] = {**content["properties"], XYZ: content.pop(XYZ)}
    return merge.changed_paths(before, after)


def _moved(pairs: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Test whether geometries differ; different bytes may be equal, as 0.0 and -0.0 are."""
    old, new = pairs.column("old_geometry"), pairs.column("new_geometry")
    differ = pc.fill_null(pc.not_equal(old, new), True)
    differ = pc.and_not(differ, pc.and_(old.is_null(), new.is_null()))
    found: npt.NDArray[np.bool_] = np.array(differ.to_numpy(zero_copy_only=False), dtype=np.bool_)
    at = np.flatnonzero(found)
    shapes = [
        shapely.from_wkb(side.take(pa.array(at)).to_numpy(zero_copy_only=False))
        for side in (old, new)
    ]
    found[at] = ~shapely.equals_identical(*shapes)
    return found


def _documents(pairs: pa.RecordBatch, side: str) -> list[dict[str, Any]]:
    texts = pairs.column(f"{side}_feature").to_pylist()
    found: list[dict[str, Any]] = _decode(f"[{','.join(texts)}]")
    return found


def _geojson(batch: pa.RecordBatch, side: str) -> pa.Array:
    """Build complete features; a document is never empty, so a comma precedes its members."""
    geometry = geojson_texts(batch.column(f"{side}_geometry").to_pylist())
    rest = pc.utf8_slice_codeunits(batch.column(f"{side}_feature"), start=1)
    texts = pc.fill_null(pa.array(geometry, pa.string()), "null")
    return pc.binary_join_element_wise('{"geometry":', texts, ",", rest, "")

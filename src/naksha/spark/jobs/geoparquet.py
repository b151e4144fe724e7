"""Writer of GeoParquet 1.1 files, batch by batch.

The metadata about all geometries is only known after the last batch, so it is written at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

GEOMETRY: Final = "geometry"
BBOX: Final = "bbox"
EDGES: Final = ("xmin", "ymin", "xmax", "ymax")
BOX: Final = pa.struct([pa.field(name, pa.float64()) for name in EDGES])
"""Covering of a geometry, by whose statistics readers skip row groups."""
_ROW_GROUP_ROWS: Final = 10_000
"""Rows are in spatial order, so a row group covers a small area; a few thousand rows are enough for
columns to compress well."""
ABOUT: Final = "naksha"
"""Key of Naksha's metadata in a file of an export, besides `geo`."""
_VERSION: Final = "1.1.0"
_TYPES: Final = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    7: "GeometryCollection",
}
_Z: Final = 1000
"""Offset of the types of ISO WKB with a third dimension."""


class Properties(StrEnum):
    """Format of properties in files."""

    JSON = "json"
    """One column `properties` with a JSON object."""
    COLUMNS = "columns"
    """One column per property, with the common type of its values."""


class About(msgspec.Struct, frozen=True, rename="camel"):
    """Naksha's metadata in a file of an export."""

    collection: str
    seq_number: int
    txn: str
    properties: Properties


def holds_features(path: str) -> bool:
    """Whether a file belongs to an export with complete features, not with typed columns."""
    text = (pq.read_metadata(path).metadata or {}).get(ABOUT.encode())
    try:
        found = None if text is None else msgspec.json.decode(text, type=About)
    except msgspec.DecodeError:
        return False  # another program may use the same key
    return found is not None and found.properties is Properties.JSON


def boxes_of(batch: pa.RecordBatch, edges: Iterable[str]) -> pa.Array:
    """Build boxes from the columns of their edges; null for features without geometry."""
    columns = [batch.column(name) for name in edges]
    return pa.StructArray.from_arrays(columns, fields=list(BOX), mask=columns[0].is_null())


class GeoParquetFile:
    """Writer of a GeoParquet file."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        about: Mapping[str, str] | None = None,
        *,
        row_group_rows: int = _ROW_GROUP_ROWS,
    ) -> None:
        """Create a file; `about` is additional metadata by key."""
        self.path = path
        self.rows = 0
        self._group = row_group_rows
        self._schema = schema
        self._about = dict(about or {})
        self._types: set[int] = set()
        self._low = np.full(3, np.inf)
        self._high = np.full(3, -np.inf)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        # Readers would take the metadata of the Arrow schema instead of that of the file.
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", store_schema=False)

    @property
    def bbox(self) -> list[float] | None:
        """Bounds of all geometries, with three dimensions if one of the geometries has three."""
        if not np.isfinite(self._low[0]):
            return None
        axes = 3 if any(type_ > _Z for type_ in self._types) else 2
        return [*self._low[:axes].tolist(), *self._high[:axes].tolist()]

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; they are written to disk one row group at a time."""
        self._look_at(batch)
        self.rows += len(batch)
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        while self._waiting_rows >= self._group:
            self._flush(self._group)

    def close(self) -> None:
        """Write remaining rows and the metadata, and close the file."""
        if self._waiting_rows:
            self._flush(self._waiting_rows)
        geo = msgspec.json.encode(self.metadata()).decode()
        self._writer.add_key_value_metadata({**self._about, "geo": geo})
        self._writer.close()

    def metadata(self) -> dict[str, Any]:
        """Return the value of the key `geo`; without a `crs` it is OGC:CRS84."""
        column: dict[str, Any] = {
            "encoding": "WKB",
            "geometry_types": [type_name(type_) for type_ in sorted(self._types)],
            "covering": {"bbox": {name: [BBOX, name] for name in EDGES}},
        }
        if self.bbox is not None:
            column["bbox"] = self.bbox
        return {"version": _VERSION, "primary_column": GEOMETRY, "columns": {GEOMETRY: column}}

    def _flush(self, rows: int) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table.slice(0, rows), row_group_size=rows)
        self._waiting = table.slice(rows).to_batches()
        self._waiting_rows -= rows

    def _look_at(self, batch: pa.RecordBatch) -> None:
        shapes = batch.column(GEOMETRY).drop_null()
        if len(shapes) == 0:
            return
        types = _wkb_types(shapes)
        self._types.update(np.unique(types).tolist())
        boxes = batch.column(BBOX).drop_null()
        if len(boxes) == 0:
            return  # all geometries are empty
        for axis, (low, high) in enumerate((("xmin", "xmax"), ("ymin", "ymax"))):
            self._low[axis] = min(self._low[axis], pc.min(boxes.field(low)).as_py())
            self._high[axis] = max(self._high[axis], pc.max(boxes.field(high)).as_py())
        if (types > _Z).any():
            raised = shapes.filter(pa.array(types > _Z)).to_numpy(zero_copy_only=False)
            heights = shapely.get_coordinates(shapely.from_wkb(raised), include_z=True)[:, 2]
            self._low[2] = min(self._low[2], np.nanmin(heights))
            self._high[2] = max(self._high[2], np.nanmax(heights))


def type_name(type_: int) -> str:
    """Return GeoParquet's name of a type of ISO WKB."""
    return _TYPES[type_ % _Z] + (" Z" if type_ > _Z else "")


def _wkb_types(shapes: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the types of geometries in little-endian WKB without nulls.

    A type is a 4-byte integer after the first byte of a geometry.
    """
    offsets = np.frombuffer(shapes.buffers()[1], dtype=np.int32)
    starts = offsets[shapes.offset : shapes.offset + len(shapes)]
    data = np.frombuffer(shapes.buffers()[2], dtype=np.uint8)
    bytes_ = data[starts[:, None] + np.arange(1, 5)]
    found: npt.NDArray[np.uint32] = np.ascontiguousarray(bytes_).view("<u4").ravel()
    return found


def numbers_of(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers as an array."""
    found: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return found


def written_by_number(
    batches: Iterable[tuple[pa.RecordBatch, npt.NDArray[Any]]],
    file_of: Callable[[int], GeoParquetFile],
) -> Iterator[tuple[int, GeoParquetFile]]:
    """Write rows, which are grouped by number, to one file per number; yield each closed file."""
    number, file = -1, None
    for rows, numbers in batches:
        for each, start, length in _runs_of(numbers):
            if file is None or each != number:
                if file is not None:
                    file.close()
                    yield number, file
                number, file = each, file_of(each)
            file.write(rows.slice(start, length))
    if file is not None:
        file.close()
        yield number, file


def _runs_of(numbers: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and length of each run of equal numbers."""
    if len(numbers) == 0:
        return
    edges = np.flatnonzero(np.diff(numbers)) + 1
    starts = np.concatenate([[0], edges, [len(numbers)]]).tolist()
    for start, end in pairwise(starts):
        yield int(numbers[start]), start, end - start

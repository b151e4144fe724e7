"""Check of one file against the rules of GeoParquet 1.1 that readers (such as GDAL) rely on.

What the key `geo` must say is in the specification under "File metadata" and "Column metadata";
what the file itself must be like under "Geometry columns", "Nesting", "Repetition" and "bbox
covering encoding". GDAL's own driver is in none of the wheels that tests can have.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

ENCODINGS = {
    *("WKB", "point", "linestring", "polygon"),
    *("multipoint", "multilinestring", "multipolygon"),
}
TYPE = re.compile(r"(GeometryCollection|(Multi)?(Point|LineString|Polygon))( Z)?")
EDGES = ("xmin", "ymin", "xmax", "ymax")


def check_file(path: Path) -> None:
    """Metadata, columns, and that the first tell the truth about the second."""
    file = pq.ParquetFile(path)
    geo = msgspec.json.decode(file.metadata.metadata[b"geo"])
    check_metadata(geo)
    schema = file.schema_arrow
    for name, column in geo["columns"].items():
        # At the root, one WKB for each row, and a covering that is there where a geometry may be.
        field = schema.field(name)
        assert column["encoding"] == "WKB"
        assert pa.types.is_binary(field.type)
        box = schema.field(column["covering"]["bbox"]["xmin"][0])
        assert box.nullable == field.nullable
        assert {child.name for child in box.type} >= set(EDGES)
        kinds = {box.type.field(edge).type for edge in EDGES}
        assert len(kinds) == 1
        assert kinds <= {pa.float32(), pa.float64()}
        check_geometries(file.read([name, box.name]), name, box.name, column)


def check_metadata(geo: dict[str, Any]) -> None:
    """Check the content and form of the key `geo`."""
    assert geo["version"] == "1.1.0"
    assert isinstance(geo["primary_column"], str)
    assert geo["primary_column"] in geo["columns"]
    for column in geo["columns"].values():
        assert column["encoding"] in ENCODINGS
        types = column["geometry_types"]
        assert isinstance(types, list)
        assert len(set(types)) == len(types)
        assert all(TYPE.fullmatch(type_) for type_ in types)
        assert isinstance(column.get("crs", {}), dict | None)
        assert column.get("edges", "planar") in ("planar", "spherical")
        assert column.get("orientation", "counterclockwise") == "counterclockwise"
        assert isinstance(column.get("epoch", 0), int | float)
        if "bbox" in column:
            box = column["bbox"]
            assert len(box) in (4, 6)
            assert all(isinstance(edge, int | float) for edge in box)
            half = len(box) // 2
            # Longitudes may run over the date line; latitudes and heights may not be turned round.
            assert all(low <= high for low, high in zip(box[1:half], box[half + 1 :], strict=True))
        covering = column["covering"]["bbox"]
        assert {tuple(covering[edge]) for edge in EDGES} == {
            (covering["xmin"][0], e) for e in EDGES
        }


def check_geometries(table: pa.Table, name: str, box: str, column: dict[str, Any]) -> None:
    """Geometries are ISO WKB of the declared types, inside of the declared boxes."""
    wkbs = [wkb for wkb in table[name].to_pylist() if wkb is not None]
    codes = {int.from_bytes(wkb[1:5], "little" if wkb[0] else "big") for wkb in wkbs}
    assert {code % 1000 for code in codes} <= set(range(1, 8)), "ISO types"
    assert {code // 1000 for code in codes} <= {0, 1}, "two or three dimensions"
    shapes = shapely.from_wkb(wkbs)
    reported = {f"{s.geom_type}{' Z' if s.has_z else ''}" for s in shapes}
    assert set(column["geometry_types"]) == reported
    boxes = [each for each in table[box].to_pylist() if each is not None]
    found = np.array([[each[edge] for edge in EDGES] for each in boxes]).reshape(-1, 4)
    bounds = shapely.bounds(shapes)
    bounds = bounds[~np.isnan(bounds).any(axis=1)]
    assert (found[:, :2] <= bounds[:, :2]).all()
    assert (found[:, 2:] >= bounds[:, 2:]).all()
    if len(bounds):
        half = len(column["bbox"]) // 2
        flat = [*column["bbox"][:2], *column["bbox"][half : half + 2]]
        assert flat == list(shapely.total_bounds(shapes))
    else:
        assert "bbox" not in column

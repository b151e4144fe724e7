"""The geometries of records: from whatever they come as to WKB in longitude and latitude, on this
side of the date line. All of a batch at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyproj
import shapely

from naksha.model.dateline import mended_geometry
from naksha.model.geometry import encode_geometries, geojson_of
from naksha.model.geometry_rules import geometry_problem
from naksha.spark.jobs.loading.references import LON_LAT, are_same, reference_system

PLACES: Final = ("wkt", "lon", "lat")
"""Columns that a geometry may come from besides WKB."""
WIDE: Final = 180.0
"""What is wider may have a jump over the date line in it."""
Objects = npt.NDArray[np.object_]


class Shapes(NamedTuple):
    """WKB for each record, which of them were changed, and what is wrong with some, by position."""

    wkb: list[bytes | None]
    adjusted: npt.NDArray[np.bool_]
    problems: dict[int, str]


def shapes_of(batch: pa.RecordBatch, crs: str | None) -> Shapes:
    """The geometries of a batch of records."""
    problems: dict[int, str] = {}
    shapes = _parsed(batch, problems)
    transform = _transform(crs) if crs is not None else None
    if transform is not None:
        shapes = _transformed(shapes, transform, problems)
    found: list[bytes | None] = shapely.to_wkb(
        shapes, output_dimension=3, byte_order=1, include_srid=False, flavor="iso"
    ).tolist()
    adjusted = np.zeros(len(found), dtype=np.bool_)
    may_adjust = batch.column("adjusted").is_valid().to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(_looks_over(shapes) & may_adjust):
        _mend(int(n), found, adjusted, problems)
    return Shapes(found, adjusted, problems)


def _parsed(batch: pa.RecordBatch, problems: dict[int, str]) -> Objects:
    """Shapes from WKB, else from WKT, else from longitude and latitude."""
    wkb = batch.column("geometry").to_numpy(zero_copy_only=False)
    shapes: Objects = shapely.from_wkb(wkb, on_invalid="ignore")
    _tell(problems, shapely.is_missing(shapes) & _given(wkb), "geometry: is no WKB")
    wkt = batch.column("wkt")
    if wkt.null_count < len(wkt):
        texts = wkt.to_numpy(zero_copy_only=False)
        made = shapely.from_wkt(texts, on_invalid="ignore")
        _tell(problems, shapely.is_missing(made) & _given(texts), "geometry: is no WKT")
        shapes = np.where(shapely.is_missing(shapes), made, shapes)
    lon = batch.column("lon").to_numpy(zero_copy_only=False).astype(float)
    lat = batch.column("lat").to_numpy(zero_copy_only=False).astype(float)
    half = np.isnan(lon) ^ np.isnan(lat)
    _tell(problems, half, "geometry: longitude or latitude is missing or no number")
    there = ~np.isnan(lon) & ~np.isnan(lat)
    if there.any():
        points = np.full(len(shapes), None, dtype=object)
        points[there] = shapely.points(lon[there], lat[there])
        shapes = np.where(shapely.is_missing(shapes), points, shapes)
    return shapes


def _given(values: Objects) -> npt.NDArray[np.bool_]:
    return np.array([value is not None for value in values], dtype=np.bool_)


def _tell(problems: dict[int, str], broken: npt.NDArray[np.bool_], problem: str) -> None:
    for n in np.flatnonzero(broken):
        problems.setdefault(int(n), problem)


# ---- Reference systems ---------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _transform(crs: str) -> pyproj.Transformer | None:
    """How to get to longitude and latitude; None for who is there."""
    if are_same(crs, LON_LAT):
        return None
    return pyproj.Transformer.from_crs(
        reference_system(crs), reference_system(LON_LAT), always_xy=True
    )


def _transformed(shapes: Objects, to: pyproj.Transformer, problems: dict[int, str]) -> Objects:
    def move(coordinates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moved: npt.NDArray[np.float64] = np.column_stack(to.transform(*coordinates.T))
        return moved

    has_z = shapely.has_z(shapes)
    made: Objects = shapes.copy()
    for dimension in (False, True):
        chosen = (has_z == dimension) & ~shapely.is_missing(shapes)
        if chosen.any():
            made[chosen] = shapely.transform(shapes[chosen], move, include_z=dimension)
    outside = ~np.isfinite(shapely.bounds(made)).all(axis=1) & ~shapely.is_missing(made)
    outside &= ~shapely.is_empty(made)
    _tell(problems, outside, "geometry: lies outside of its reference system")
    return made


# ---- The date line -------------------------------------------------------------------------------


def _looks_over(shapes: Objects) -> npt.NDArray[np.bool_]:
    """Which of them may reach over the date line."""
    west, _, east, _ = shapely.bounds(shapes).T
    with np.errstate(invalid="ignore"):
        found: npt.NDArray[np.bool_] = (west < -180) | (east > 180) | (east - west > WIDE)
    return found


def _mend(
    n: int, wkbs: list[bytes | None], adjusted: npt.NDArray[np.bool_], problems: dict[int, str]
) -> None:
    wkb = wkbs[n]
    assert wkb is not None
    geometry: Any = geojson_of(wkb)
    mended, change = mended_geometry(geometry)
    problem = geometry_problem(mended)
    if problem is not None:
        problem = problem.below("geometry")
        problems.setdefault(n, f"{problem.path}: {problem.message}")
    elif change is not None:
        wkbs[n] = encode_geometries([{"geometry": mended}]).wkb[0]
        adjusted[n] = True

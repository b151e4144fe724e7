"""The geometries of records: from whatever they come as to WKB in longitude and latitude, on this
side of the date line. All of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyproj
import shapely

from naksha.model.geo.dateline import mended_geometry
from naksha.model.geo.geometry import encode_geometries, geojson_of, wkb_of
from naksha.model.geo.geometry_rules import geometry_problem
from naksha.model.geo.wkb_rules import CURVED, MEASURED, SRIDS, read_shapes
from naksha.spark.jobs.loading.references import LON_LAT, are_same, reference_system

PLACES: Final = ("wkt", "lon", "lat")
"""Columns that a geometry may come from besides WKB; the first may have WKB in digits, too."""
_HEX: Final = "^[0-9A-Fa-f]+$"
"""Texts that are WKB, as PostGIS and others write it: no WKT is like that."""
WIDE: Final = 180.0
"""What is wider may have a jump over the date line in it."""
Objects = npt.NDArray[np.object_]


class Shapes(NamedTuple):
    """WKB for each record, which of them were changed, and what is wrong with some, by position."""

    wkb: list[bytes | None]
    adjusted: npt.NDArray[np.bool_]
    problems: dict[int, str]


def shapes_of(
    batch: pa.RecordBatch,
    crs: str | None,
    clockwise: frozenset[str] = frozenset(),
    *,
    is_cut: bool = True,
) -> Shapes:
    """The geometries of a batch of records, cut at the date line if `is_cut`. Records from the
    sources `clockwise` have rings in the direction of Shapefiles."""
    problems: dict[int, str] = {}
    shapes = _parsed(batch, problems)
    _check_measures(shapes, problems)
    if crs is None:
        _check_references(shapes, problems)
    transform = _transform(crs) if crs is not None else None
    if transform is not None:
        shapes = _transformed(shapes, transform, problems)
    found: list[bytes | None] = shapely.to_wkb(
        shapes, output_dimension=3, byte_order=1, include_srid=False, flavor="iso"
    ).tolist()
    adjusted = np.zeros(len(found), dtype=np.bool_)
    if not is_cut:
        return Shapes(found, adjusted, problems)
    may_adjust = batch.column("adjusted").is_valid().to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(_looks_over(shapes) & may_adjust):
        is_clockwise = batch.column("source")[int(n)].as_py() in clockwise
        _mend(int(n), found, adjusted, problems, is_clockwise=is_clockwise)
    return Shapes(found, adjusted, problems)


def _parsed(batch: pa.RecordBatch, problems: dict[int, str]) -> Objects:
    """Shapes from WKB, else from WKT, else from longitude and latitude."""
    shapes = _read(batch.column("geometry"), shapely.from_wkb, "is no WKB", problems)
    texts = batch.column("wkt")
    if texts.null_count < len(texts):
        is_hex = pc.match_substring_regex(texts, _HEX)
        digits = pc.if_else(is_hex, texts, None)
        words = pc.if_else(is_hex, None, texts)
        for made in (
            _read(digits, shapely.from_wkb, "is no WKB", problems),
            _read(words, shapely.from_wkt, "is no WKT", problems),
        ):
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


def _read(
    column: pa.Array, read: Callable[..., Any], fault: str, problems: dict[int, str]
) -> Objects:
    """Shapes of values; what is wrong with those that are none is noted."""
    given: Objects = column.to_numpy(zero_copy_only=False)
    shapes = read_shapes(given, read)
    for n in np.flatnonzero(shapely.is_missing(shapes)):
        if given[n] is not None:
            said = CURVED if _is_curve(given[n], read) else fault
            problems.setdefault(int(n), f"geometry: {said}")
    return shapes


def _is_curve(value: Any, read: Callable[..., Any]) -> bool:
    """Whether it is not read only because there is nothing like it in GeoJSON."""
    try:
        read(value, on_invalid="ignore")
    except NotImplementedError:
        return True
    return False


def _check_measures(shapes: Objects, problems: dict[int, str]) -> None:
    """Refuse measures, which nobody would keep. Where all of them are NaN there is none: some
    programs write such for all shapes of a file."""
    for n in np.flatnonzero(shapely.has_m(shapes)):
        measures = shapely.get_coordinates(shapes[n], include_m=True)[:, -1]
        if not np.isnan(measures).all():
            problems.setdefault(int(n), f"geometry: {MEASURED}")
        elif not shapely.has_z(shapes[n]):
            # Of four numbers WKB gets the first three; the third of three would be the measure.
            shapes[n] = shapely.force_2d(shapes[n])


def _check_references(shapes: Objects, problems: dict[int, str]) -> None:
    """Refuse what names a reference system of its own, where nobody names that of all."""
    named = shapely.get_srid(shapes)
    for n in np.flatnonzero(~np.isin(named, SRIDS) & ~shapely.is_missing(shapes)):
        said = f"is in the reference system {named[n]}; name that of all features in the mapping"
        problems.setdefault(int(n), f"geometry: {said}")


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
    n: int,
    wkbs: list[bytes | None],
    adjusted: npt.NDArray[np.bool_],
    problems: dict[int, str],
    *,
    is_clockwise: bool,
) -> None:
    wkb = wkbs[n]
    assert wkb is not None
    geometry: Any = geojson_of(_turned(wkb) if is_clockwise else wkb)
    mended, change = mended_geometry(geometry)
    problem = geometry_problem(mended)
    if problem is not None:
        problem = problem.below("geometry")
        problems.setdefault(n, f"{problem.path}: {problem.message}")
    elif change is not None:
        wkbs[n] = encode_geometries([{"geometry": mended}]).wkb[0]
        adjusted[n] = True


def _turned(wkb: bytes) -> bytes:
    """A polygon with its rings in the other direction. By it is known whether one that is wide is
    meant like that, or reaches over the date line; a line has the one that it has."""
    shape = shapely.from_wkb(wkb)
    if shape.geom_type not in ("Polygon", "MultiPolygon"):
        return wkb
    (turned,) = wkb_of(np.array([shapely.reverse(shape)], dtype=object))
    assert turned is not None
    return turned

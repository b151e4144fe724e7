"""Conversion of the geometries of a batch of records to WKB in longitude and latitude.

Geometries across the date line are split. All geometries of a batch are converted at once.
"""

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

from naksha.model.geo.dateline import bounded_geometry
from naksha.model.geo.geometry import encode_geometries, geojson_of, wkb_of
from naksha.model.geo.geometry_rules import geometry_problem
from naksha.model.geo.wkb_rules import CURVED, MEASURED, SRIDS, read_shapes
from naksha.spark.jobs.loading.references import LON_LAT, are_same, reference_system

PLACES: Final = ("wkt", "lon", "lat")
"""Columns for geometries besides WKB; `wkt` may also contain WKB in hexadecimal digits."""
_HEX: Final = "^[0-9A-Fa-f]+$"
"""WKB in hexadecimal digits, as PostGIS and others write it; WKT never matches."""
WIDE: Final = 180.0
"""Wider geometries may cross the date line."""
Objects = npt.NDArray[np.object_]


class RecordShapes(NamedTuple):
    """WKB of each record, which of them were changed, and problems by position."""

    wkb: list[bytes | None]
    adjusted: npt.NDArray[np.bool_]
    problems: dict[int, str]


def shapes_of(
    batch: pa.RecordBatch,
    crs: str | None,
    clockwise: frozenset[str] = frozenset(),
    *,
    is_cut: bool = True,
) -> RecordShapes:
    """Convert the geometries of a batch of records, split at the date line if `is_cut`.

    Records from the sources `clockwise` have rings in the direction of Shapefiles.
    """
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
        return RecordShapes(found, adjusted, problems)
    may_adjust = batch.column("adjusted").is_valid().to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(_looks_over(shapes) & may_adjust):
        is_clockwise = batch.column("source")[int(n)].as_py() in clockwise
        _mend(int(n), found, adjusted, problems, is_clockwise=is_clockwise)
    return RecordShapes(found, adjusted, problems)


def _parsed(batch: pa.RecordBatch, problems: dict[int, str]) -> Objects:
    """Parse shapes from WKB, else from WKT, else from longitude and latitude."""
    shapes = _read(batch.column("geometry"), shapely.from_wkb, "is not valid WKB", problems)
    texts = batch.column("wkt")
    if texts.null_count < len(texts):
        is_hex = pc.match_substring_regex(texts, _HEX)
        digits = pc.if_else(is_hex, texts, None)
        words = pc.if_else(is_hex, None, texts)
        for made in (
            _read(digits, shapely.from_wkb, "is not valid WKB", problems),
            _read(words, shapely.from_wkt, "is not valid WKT", problems),
        ):
            shapes = np.where(shapely.is_missing(shapes), made, shapes)
    lon = batch.column("lon").to_numpy(zero_copy_only=False).astype(float)
    lat = batch.column("lat").to_numpy(zero_copy_only=False).astype(float)
    half = np.isnan(lon) ^ np.isnan(lat)
    _add_problem(
        problems, half, "geometry has a longitude or latitude that is missing or not a number"
    )
    has_both = ~np.isnan(lon) & ~np.isnan(lat)
    if has_both.any():
        points = np.full(len(shapes), None, dtype=object)
        points[has_both] = shapely.points(lon[has_both], lat[has_both])
        shapes = np.where(shapely.is_missing(shapes), points, shapes)
    return shapes


def _read(
    column: pa.Array, read: Callable[..., Any], fault: str, problems: dict[int, str]
) -> Objects:
    """Parse shapes; add a problem for each invalid value."""
    given: Objects = column.to_numpy(zero_copy_only=False)
    shapes = read_shapes(given, read)
    for n in np.flatnonzero(shapely.is_missing(shapes)):
        if given[n] is not None:
            message = CURVED if _is_curve(given[n], read) else fault
            problems.setdefault(int(n), f"geometry {message}")
    return shapes


def _is_curve(value: Any, read: Callable[..., Any]) -> bool:
    """Whether a value is a curve, which is valid but not supported by GeoJSON."""
    try:
        read(value, on_invalid="ignore")
    except NotImplementedError:
        return True
    return False


def _check_measures(shapes: Objects, problems: dict[int, str]) -> None:
    """Reject measures, which cannot be stored.

    Measures that are all NaN are ignored: some programs write them for all shapes of a file.
    """
    for n in np.flatnonzero(shapely.has_m(shapes)):
        measures = shapely.get_coordinates(shapes[n], include_m=True)[:, -1]
        if not np.isnan(measures).all():
            problems.setdefault(int(n), f"geometry {MEASURED}")
        elif not shapely.has_z(shapes[n]):
            # WKB is written with three dimensions; without Z the third one would be the measure.
            shapes[n] = shapely.force_2d(shapes[n])


def _check_references(shapes: Objects, problems: dict[int, str]) -> None:
    """Reject shapes with their own reference system if there is no common one."""
    named = shapely.get_srid(shapes)
    for n in np.flatnonzero(~np.isin(named, SRIDS) & ~shapely.is_missing(shapes)):
        message = f"has the reference system {named[n]}; set that of all features in the mapping"
        problems.setdefault(int(n), f"geometry {message}")


def _add_problem(problems: dict[int, str], broken: npt.NDArray[np.bool_], problem: str) -> None:
    for n in np.flatnonzero(broken):
        problems.setdefault(int(n), problem)


# ---- Reference systems ---------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _transform(crs: str) -> pyproj.Transformer | None:
    """Create the transformation to longitude and latitude; None if it is not needed."""
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
    _add_problem(problems, outside, "geometry is outside of its reference system")
    return made


# ---- The date line -------------------------------------------------------------------------------


def _looks_over(shapes: Objects) -> npt.NDArray[np.bool_]:
    """Test which shapes may cross the date line."""
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
    mended, change = bounded_geometry(geometry)
    problem = geometry_problem(mended)
    if problem is not None:
        problem = problem.below("geometry")
        problems.setdefault(n, problem.sentence())
    elif change is not None:
        wkbs[n] = encode_geometries([{"geometry": mended}]).wkb[0]
        adjusted[n] = True


def _turned(wkb: bytes) -> bytes:
    """Reverse the rings of a polygon; other shapes are not changed.

    The direction of rings tells whether a wide polygon is really wide or crosses the date line.
    """
    shape = shapely.from_wkb(wkb)
    if shape.geom_type not in ("Polygon", "MultiPolygon"):
        return wkb
    (turned,) = wkb_of(np.array([shapely.reverse(shape)], dtype=object))
    assert turned is not None
    return turned

"""Shapes of feature geometries: stored ones, which are valid, and sent ones, which are checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.render.projection import shapes_of
from naksha.model.errors import InvalidArgument
from naksha.model.geo.dateline import bounded_geometry
from naksha.model.geo.geometry import encode_geometries
from naksha.model.state import State

Shapes = npt.NDArray[np.object_]
_NULL: Final = b"null"


class _GeometryOfFeature(msgspec.Struct):
    geometry: msgspec.Raw = msgspec.Raw(_NULL)


_decode: Final = msgspec.json.Decoder(_GeometryOfFeature).decode


def with_shapes(states: Sequence[State]) -> tuple[list[State], Shapes]:
    """Return the states that have a geometry, and their shapes."""
    geometries = [bytes(state.decoded_by(_decode).geometry) for state in states]
    some = [state for state, text in zip(states, geometries, strict=True) if text != _NULL]
    shapes = shapes_of([text for text in geometries if text != _NULL])
    readable = ~shapely.is_missing(shapes)
    return [*compress(some, readable)], shapes[readable]


def shape_of(state: State) -> shapely.Geometry | None:
    """Return the shape of a feature, or None if it has no geometry."""
    _, shapes = with_shapes([state])
    return shapes[0] if len(shapes) else None


def sent_shape(geometry: dict[str, Any]) -> shapely.Geometry:
    """Parse a GeoJSON geometry sent by a client, and cut it at the date line.

    Raises:
        InvalidArgument: It is not valid; the message says where.
    """
    mended = bounded_geometry(geometry).geometry
    try:
        encoded = encode_geometries([{"geometry": mended}])
    except InvalidArgument as error:
        # The client sent only a geometry, so the field must not mention features.
        error.field = (error.field or "geometry").removeprefix("features[0].")
        raise
    return shapely.from_wkb(encoded.wkb[0])

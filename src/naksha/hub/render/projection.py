"""Projection of returned states: selected members, two dimensions, clipped geometries.

Unchanged states are passed on as their stored bytes. Of the others only the necessary levels are
parsed: members that are kept or dropped as a whole stay bytes, and all geometries are processed
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.query_language.selection import Selection
from naksha.model.query import Bbox
from naksha.model.state import State

Members = dict[str, msgspec.Raw]
Shapes = npt.NDArray[np.object_]
Tree = dict[str, "Tree | None"]
"""The members to keep, by name: all of a member (None), or those below it."""

_decode_members = msgspec.json.Decoder(Members).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")
_EMPTY: Final = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True)
class StateProjection:
    """Changes to apply to states; none by default."""

    selection: Selection | None = None
    force_2d: bool = False
    clip: shapely.Geometry | None = None
    simplify: Callable[[Shapes], Shapes] | None = None
    """Applied after clipping; features whose geometry becomes empty are left out."""

    @property
    def changes_geometry(self) -> bool:
        """Whether geometries have to be parsed."""
        return self.force_2d or self.clip is not None or self.simplify is not None


def box_shape(box: Bbox) -> shapely.Geometry:
    """Return the area of a box, in two parts if it crosses the date line."""
    if box.west <= box.east:
        return shapely.box(box.west, box.south, box.east, box.north)
    west = shapely.box(box.west, box.south, 180.0, box.north)
    return shapely.union(west, shapely.box(-180.0, box.south, box.east, box.north))


def shaped(states: Sequence[State], shaping: StateProjection) -> list[State]:
    """Apply the changes to states, and leave out those whose geometry becomes empty."""
    selection = shaping.selection
    selects = selection is not None and not selection.keeps_all
    if not selects and not shaping.changes_geometry:
        return [*states]
    features = [state.decoded_by(_decode_members) for state in states]
    reshaped = _reshape(features, shaping) if shaping.changes_geometry else _Reshaped(set(), set())
    kept = [index for index in range(len(states)) if index not in reshaped.vanished]
    if not selects:
        return [
            State(states[index].id, _encode(features[index]))
            if index in reshaped.changed
            else states[index]
            for index in kept
        ]
    assert selection is not None
    tree = _tree_of(selection)
    return [
        State(states[index].id, _encode(_selected(features[index], selection, tree)))
        for index in kept
    ]


# ---- Geometries ----------------------------------------------------------------------------------


class _Reshaped(NamedTuple):
    """Indices of features with a changed geometry, and of those whose geometry became empty."""

    changed: set[int]
    vanished: set[int]


def _reshape(features: list[Members], shaping: StateProjection) -> _Reshaped:
    """Replace geometries in place."""
    indices = [index for index, each in enumerate(features) if _has_geometry(each)]
    before = shapes_of([bytes(features[index]["geometry"]) for index in indices])
    readable = ~shapely.is_missing(before)
    indices, before = [*compress(indices, readable)], before[readable]
    after = before
    if shaping.clip is not None:
        after = clipped(after, shaping.clip)
    if shaping.simplify is not None:
        after = shaping.simplify(after)
    if shaping.force_2d:
        after = np.where(shapely.has_z(after), shapely.force_2d(after), after)
    changed = np.flatnonzero([one is not other for one, other in zip(before, after, strict=True)])
    for at, text in zip(changed, shapely.to_geojson(after[changed]), strict=True):
        features[indices[at]]["geometry"] = msgspec.Raw(text.encode())
    empty = np.flatnonzero(shapely.is_empty(after))
    return _Reshaped({indices[at] for at in changed}, {indices[at] for at in empty})


def _has_geometry(feature: Members) -> bool:
    return feature.get("geometry", _NULL) != _NULL


def shapes_of(geometries: Sequence[bytes]) -> Shapes:
    """Parse stored GeoJSON geometries without loss of precision; None for damaged ones."""
    shapes: Shapes = shapely.from_geojson(np.array(geometries, dtype=object), on_invalid="ignore")
    return shapes


def clipped(shapes: Shapes, area: shapely.Geometry) -> Shapes:
    """Clip each shape to the area, after making it valid; shapes inside stay the same object."""
    shapely.prepare(area)
    result = shapes.copy()
    cut = np.flatnonzero(~shapely.covers(area, shapes) | ~shapely.is_valid(shapes))
    valid = np.where(shapely.is_valid(shapes[cut]), shapes[cut], shapely.make_valid(shapes[cut]))
    collections = shapely.get_type_id(valid) == shapely.GeometryType.GEOMETRYCOLLECTION
    result[cut[~collections]] = shapely.intersection(valid[~collections], area)
    for index, collection in zip(cut[collections], valid[collections], strict=True):
        result[index] = _clipped_collection(collection, area)
    return result


def _clipped_collection(collection: shapely.Geometry, area: shapely.Geometry) -> shapely.Geometry:
    """Clip the parts of a collection one by one; GEOS cannot clip mixed dimensions together."""
    parts = clipped(shapely.get_parts(collection), area)
    return shapely.GeometryCollection([*parts[~shapely.is_empty(parts)]])


# ---- Selection -----------------------------------------------------------------------------------


def _tree_of(selection: Selection) -> Tree:
    tree: Tree = {}
    for path in selection.paths:
        _add_path(tree, path)
    if selection.geometry:
        tree["geometry"] = None
    return tree


def _add_path(tree: Tree, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if below is None:
            return  # All of it is already selected.
        tree = below
    tree[path[-1]] = None


def _selected(feature: Members, selection: Selection, tree: Tree) -> dict[str, Any]:
    if selection.everything:
        return {name: value for name, value in feature.items() if name != "geometry"}
    selected = _pruned(feature, tree)
    selected.setdefault("properties", _EMPTY)
    return selected


def _pruned(members: Members, tree: Tree) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in members.items():
        if name not in tree:
            continue
        below = tree[name]
        if below is None:
            kept[name] = value
        else:
            inner = _pruned_value(value, below)
            if inner:
                kept[name] = inner
    return kept


def _pruned_value(value: msgspec.Raw, tree: Tree) -> Any:
    """Return the selected parts of an object or array, None of any other value.

    Selected elements of an array close up, without gaps.
    """
    first = bytes(memoryview(value)[:1])
    if first == b"{":
        return _pruned(_decode_members(value), tree)
    if first != b"[":
        return None
    elements = _decode_elements(value)
    numbers = sorted(int(name) for name in tree if name.isdecimal() and name.isascii())
    kept = []
    for number in numbers:
        if number < len(elements):
            below = tree[str(number)]
            element = elements[number]
            inner = element if below is None else _pruned_value(element, below)
            if inner:
                kept.append(inner)
    return kept

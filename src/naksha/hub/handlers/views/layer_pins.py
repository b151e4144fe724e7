"""Version pins: the versions at which the layers of a view are read, all of one moment.

A layer and the layers that hide its features must be read at the same moment: otherwise a feature
brought up in between would be seen in neither.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from naksha.hub.handlers.views.cursor import decode_view_cursor
from naksha.hub.handlers.views.layers import LayerStack, ViewLayer
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import FindStorages, GetVersion
from naksha.model.errors import NotImplementedHere
from naksha.model.limits import VIEW_PIN_ATTEMPTS_MAX

_PRESENT: Final = ""
"""The pin of a layer without versions, or with several: it is read as it is."""


async def pins_of(stack: LayerStack, cursor: str | None) -> tuple[str, ...]:
    """Return a pin for each layer, those of the cursor if there is one.

    Layers of one storage share one version, which is resolved once. Versions of several storages
    are resolved until two rounds agree: then there was a moment when all of them were current.
    Under constant writes the last round is used.
    """
    view_cursor = decode_view_cursor(cursor, len(stack.layers))
    if view_cursor is not None:
        return view_cursor.pins or (_PRESENT,) * len(stack.layers)
    groups = [await _group(stack, place) for place in range(len(stack.layers))]
    found = await _resolve_versions(stack, groups)
    if len({*groups}) > 1:
        for _ in range(VIEW_PIN_ATTEMPTS_MAX):
            before, found = found, await _resolve_versions(stack, groups)
            if found == before:
                break
    return found


async def _group(stack: LayerStack, place: int) -> Hashable:
    """Return a key that is equal for layers with common versions."""
    try:
        storages = (await stack.layers[place].send(stack.event, FindStorages())).storages
    except NotImplementedHere:
        return place
    return storages[0] if len(storages) == 1 else place


async def _resolve_versions(stack: LayerStack, groups: Sequence[Hashable]) -> tuple[str, ...]:
    """Resolve the last published version of each group, by its first layer that has versions."""
    known: dict[Hashable, str] = {}
    pins: list[str] = []
    for layer, group in zip(stack.layers, groups, strict=True):
        pin = known.get(group) or await _last(stack.event, layer)
        if pin != _PRESENT:
            known[group] = pin
        pins.append(pin)
    return tuple(pins)


async def _last(event: Event, layer: ViewLayer) -> str:
    try:
        version = await layer.send(event, GetVersion(published=True))
    except NotImplementedHere:
        return _PRESENT
    return _PRESENT if version is None else version.ref


async def storages_of(event: Event, layers: Sequence[ViewLayer]) -> tuple[str, ...]:
    """Return the storages of the layers."""
    found: dict[str, None] = {}
    for layer in layers:
        found |= dict.fromkeys((await layer.send(event, FindStorages())).storages)
    return tuple(found)

"""The versions that the layers of a view are read at, all of one moment.

What hides something must be as old as the layer that it is in: a feature that is brought up
meanwhile would be seen in neither place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from naksha.hub.handlers.views.cursor import decode_view_cursor
from naksha.hub.handlers.views.layers import Layer, Stack
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import FindStorages, GetVersion
from naksha.model.errors import NotImplementedHere
from naksha.model.limits import VIEW_PIN_ATTEMPTS_MAX

PRESENT: Final = ""
"""The pin of a layer that has no versions, or several: it is read as it is."""


async def pins_of(stack: Stack, cursor: str | None) -> tuple[str, ...]:
    """A pin for each layer; those of a cursor, if there is one.

    Layers of one storage have one version, which is looked up once. Versions of several storages
    are looked up until none of them is another one than before: then there was a moment when all
    were the last ones. Where others write all the time, those of the last look are taken."""
    given = decode_view_cursor(cursor, len(stack.layers))
    if given is not None:
        return given.pins or (PRESENT,) * len(stack.layers)
    groups = [await _group(stack, place) for place in range(len(stack.layers))]
    found = await _look(stack, groups)
    if len({*groups}) > 1:
        for _ in range(VIEW_PIN_ATTEMPTS_MAX):
            before, found = found, await _look(stack, groups)
            if found == before:
                break
    return found


async def _group(stack: Stack, place: int) -> Hashable:
    """The same for layers that have versions in common."""
    try:
        storages = (await stack.layers[place].ask(stack.event, FindStorages())).storages
    except NotImplementedHere:
        return place
    return storages[0] if len(storages) == 1 else place


async def _look(stack: Stack, groups: Sequence[Hashable]) -> tuple[str, ...]:
    """The last published version of each group, asked of its first layer that has versions."""
    known: dict[Hashable, str] = {}
    pins: list[str] = []
    for layer, group in zip(stack.layers, groups, strict=True):
        pin = known.get(group) or await _last(stack.event, layer)
        if pin != PRESENT:
            known[group] = pin
        pins.append(pin)
    return tuple(pins)


async def _last(event: Event, layer: Layer) -> str:
    try:
        version = await layer.ask(event, GetVersion(published=True))
    except NotImplementedHere:
        return PRESENT
    return PRESENT if version is None else version.ref


async def storages_of(event: Event, layers: Sequence[Layer]) -> tuple[str, ...]:
    """Where the layers are stored."""
    found: dict[str, None] = {}
    for layer in layers:
        found |= dict.fromkeys((await layer.ask(event, FindStorages())).storages)
    return tuple(found)

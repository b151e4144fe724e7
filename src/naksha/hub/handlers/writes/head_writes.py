"""Writes that depend on the current state of their features.

A handler reads the heads, decides, and writes under locks on exactly those heads. When another
writer was faster, it reads and decides again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec

from naksha.hub.handlers.views.layers import chunks
from naksha.hub.handlers.writes.write_parts import names_state, namespace_of, with_lock
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import IfExists, Modification, ReadFeatures, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.hub.write.namespaces import with_namespace, without_namespace
from naksha.hub.write.patch import apply_patch
from naksha.model.errors import Conflict, NotSupported, Retryable
from naksha.model.limits import HANDLER_ATTEMPTS_MAX
from naksha.model.query import Query
from naksha.model.state import State

Heads = Mapping[str, State]
Feature = dict[str, Any]


async def _heads_of(event: Event, ids: Collection[str], ref: str = "") -> dict[str, State]:
    """Return the current states of these ids as the next handlers return them."""
    heads: dict[str, State] = {}
    for some in chunks(sorted(ids)):
        request = ReadFeatures(query=Query(ids=tuple(some)), ref=ref)
        found = await event.send_upstream(request)
        heads |= {state.id: state for state in await found.all()}
    return heads


async def write_over_heads(
    event: Event,
    request: WriteFeatures,
    ids: Collection[str],
    change: Callable[[Heads], Awaitable[WriteFeatures]],
) -> Written:
    """Send upstream the write that `change` makes from the current states.

    `change` locks the features it decides about, and a conflict on such a lock is retried. A
    conflict on a lock that the client set is raised.
    """
    locked = {
        feature.get("id")
        for one in request.modifications
        for feature in one.features
        if namespace_of(feature).get("uuid") is not None
    }
    for _ in range(HANDLER_ATTEMPTS_MAX):
        sent = await change(await _heads_of(event, ids, request.ref) if ids else {})
        try:
            written: Written = await event.send_upstream(sent)
        except Conflict as error:
            mine = error.feature_id in ids and error.feature_id not in locked
            if not mine or request.conflict_detection:
                raise
            continue
        return written
    raise Retryable(
        "Other writers changed some of the features in every attempt of this write; retry the "
        "request"
    )


async def check_merges(event: Event, request: WriteFeatures) -> None:
    """Refuse merges with concurrent changes.

    Only the storage knows their result, so no rule can be applied to it before it is written.
    """
    merges = [
        feature
        for one in request.modifications
        if one.if_exists is IfExists.MERGE
        for feature in one.features
        if isinstance(feature.get("id"), str)
    ]
    heads = await _heads_of(event, {f["id"] for f in merges}, request.ref) if merges else {}
    for feature in merges:
        head = heads.get(feature["id"])
        if head is not None and not names_state(feature, head):
            raise NotSupported(
                f"Feature {feature['id']!r:.64} was changed since it was read, and this space "
                "cannot apply its rules to the result of a server-side merge; read the feature "
                "again and merge it in the client",
                feature_id=feature["id"],
            )


def is_patch(one: Modification) -> bool:
    """Whether the features of a modification are patches, not whole features."""
    return one.if_exists is IfExists.PATCH


def with_patches_applied(request: WriteFeatures, heads: Heads) -> WriteFeatures:
    """Replace patches of existing features by the whole features that they result in."""
    modifications: list[Modification] = []
    for one in request.modifications:
        patches = [f for f in one.features if is_patch(one) and f.get("id") in heads]
        if not patches:
            modifications.append(one)
            continue
        rest = tuple(f for f in one.features if f.get("id") not in heads)
        if rest or one.ids:
            modifications.append(msgspec.structs.replace(one, features=rest))
        patched_features = tuple(_patched_feature(f, heads[f["id"]]) for f in patches)
        replaced = msgspec.structs.replace(
            one, features=patched_features, ids=(), if_exists=IfExists.REPLACE
        )
        modifications.append(replaced)
    return msgspec.structs.replace(request, modifications=tuple(modifications))


def _patched_feature(feature: Feature, head: State) -> Feature:
    """Apply a patch to the current state, locked to that state."""
    merged = apply_patch(without_namespace(head.feature), without_namespace(feature))
    namespaced = with_namespace(merged, namespace_of(feature))
    return namespaced if namespace_of(feature).get("uuid") else with_lock(namespaced, head)

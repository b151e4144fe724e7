"""Three-way merge on write: base = what the client had, ours = HEAD, theirs = what it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from naksha.model.errors import Conflict
from naksha.model.merge import merge3
from naksha.model.query import Query
from naksha.model.state import XYZ, State
from naksha.model.tags import normalise_tags
from naksha.spi.storage import Feature, StatePage


class StateReader(Protocol):
    """Reader of HEAD and of single states."""

    async def page(self, collection: str, query: Query) -> StatePage: ...

    async def state(self, state_id: str) -> State: ...


class MergedFeature(NamedTuple):
    """Merged feature, to be written over `head` in place of the sent one."""

    feature: Feature
    head: State
    base_uuid: str


async def merge_into_head(
    reader: StateReader, collection: str, features: Sequence[Feature]
) -> dict[str, MergedFeature]:
    """Merge the features whose `uuid` is not HEAD's; returns the merges by id.

    The rows must be locked. A feature that is deleted at HEAD is left out: its lock then fails as a
    conflict.
    """
    by_id = {str(feature["id"]): feature for feature in features}
    page = await reader.page(collection, Query(ids=tuple(by_id)))
    merges = {}
    for head in page.states:
        sent = by_id[head.id]
        uuid = sent["properties"][XYZ]["uuid"]
        if uuid == head.uuid:
            continue
        base = await reader.state(uuid)
        if base.uuid == head.uuid:
            continue
        merges[head.id] = MergedFeature(_merge(collection, base, head, sent), head, base.uuid)
    return merges


def _merge(collection: str, base: State, head: State, sent: Feature) -> Feature:
    started = content_of(base.feature)
    merged = merge3(started, content_of(head.feature), content_of(sent, started[XYZ]))
    if merged.conflicts:
        conflict = merged.conflicts[0]
        raise Conflict(
            f"Feature {head.id!r:.64} cannot be merged: HEAD and the write changed "
            f"{conflict.path!r:.128} differently; read the feature again and repeat the write",
            field=conflict.path,
            feature_id=head.id,
            collection_id=collection,
            head=head.feature,
        )
    value: dict[str, Any] = dict(merged.value)
    value["properties"] = {**value["properties"], XYZ: value.pop(XYZ)}
    return value


def content_of(feature: Feature, unless: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content to merge: everything but the namespace, plus its members set by clients.

    Members that the client does not set are taken from `unless`.
    """
    content = dict(feature)
    properties = dict(content.get("properties") or {})
    xyz = properties.pop(XYZ, None) or {}
    content["properties"] = properties
    content.setdefault("geometry", None)
    given = unless or {"tags": [], "crid": None}
    tags = xyz.get("tags")
    content[XYZ] = {
        "tags": given["tags"] if tags is None else normalise_tags(tags),
        "crid": xyz.get("crid", given["crid"]),
    }
    return content

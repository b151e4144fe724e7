"""Source id of a feature as a tag, so that it is found by the tag index.

On write `properties.@ns:com:here:meta.sourceId` becomes the tag `xyz_source_id_<value>`. On read a
query for a source id is narrowed to features with its tag. The property test is kept, because tags
ignore case and source ids do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.handlers.passthrough import Feature, with_features
from naksha.hub.handlers.paths import get_at
from naksha.hub.handlers.writes.head_writes import Heads, write_over_heads
from naksha.hub.handlers.writes.write_parts import check_objects, namespace_of, with_lock
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.merge import ABSENT
from naksha.model.query import And, Op, Or, Predicate, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.model.tags import normalise_tags

PATH: Final = ("properties", "@ns:com:here:meta", "sourceId")
PREFIX: Final = "xyz_source_id_"
Groups = tuple[tuple[str, ...], ...]
"""Alternative groups of tags, as in a query."""


class SourceIdHandler:
    """Handler that writes source id tags and uses them in queries."""

    metric_name: ClassVar[str] = "SourceIdHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        """Create the handler; it has no configuration."""

    async def process(self, event: Event) -> Any:
        request = event.request
        if isinstance(request, WriteFeatures):
            return await _write(event, request)
        query = getattr(request, "query", None)
        if isinstance(query, Query) and query.where is not None:
            return await event.send_upstream(
                msgspec.structs.replace(request, query=narrowed(query))
            )
        return await event.send_upstream()


def source_tag(value: object) -> str | None:
    """Return the tag of a source id, or None if the value cannot be a tag."""
    if not isinstance(value, str):
        return None
    try:
        tags = normalise_tags([PREFIX + value])
    except InvalidArgument:
        return None
    return tags[0] if len(tags) == 1 and len(tags[0]) > len(PREFIX) else None


# ---- Reading ---------------------------------------------------------------------------------


def narrowed(query: Query) -> Query:
    """Return the query with the tags that its predicate implies."""
    groups = None if query.where is None else implied(query.where)
    if groups is None:
        return query
    both = product(query.tags, groups) if query.tags is not None else (((), g) for g in groups)
    tags = tuple(tuple(dict.fromkeys((*one, *other))) for one, other in both)
    return query if len(tags) > limits.TAG_GROUPS_MAX else msgspec.structs.replace(query, tags=tags)


def implied(predicate: Predicate) -> Groups | None:
    """Return tag groups of which every matching feature has at least one.

    None when nothing is implied, which includes all negations.
    """
    match predicate:
        case PropertyTest(path, Op.EQ, value) if path == PATH:
            tag = source_tag(value)
            return None if tag is None else ((tag,),)
        case And(parts):
            known = [groups for part in parts if (groups := implied(part)) is not None]
            return min(known, key=len, default=None)
        case Or(parts):
            each = [implied(part) for part in parts]
            if not each or any(groups is None for groups in each):
                return None
            return tuple(group for groups in each for group in groups or ())
    return None


# ---- Writing ---------------------------------------------------------------------------------


async def _write(event: Event, request: WriteFeatures) -> Any:
    """Write with source id tags; features sent without tags keep those of their current state."""
    check_objects(request)
    requested = {
        feature["id"]
        for one in request.modifications
        for feature in one.features
        if isinstance(feature.get("id"), str) and _needs_head(feature, one)
    }
    ids = {request.prefix_id + id for id in requested}

    async def change(heads: Heads) -> WriteFeatures:
        def tagged(feature: Feature, one: Modification) -> Feature:
            head = heads.get(f"{request.prefix_id}{feature.get('id')}")
            if head is None or not _needs_head(feature, one):
                return _tagged(feature, namespace_of(feature).get("tags") or (), feature)
            is_patch = one.if_exists is IfExists.PATCH
            source = feature if not is_patch or get_at(feature, PATH) is not ABSENT else None
            if source is None:
                return feature
            locked = feature if namespace_of(feature).get("uuid") else with_lock(feature, head)
            return _tagged(locked, head.xyz.get("tags") or (), source)

        return with_features(request, tagged)

    return await write_over_heads(event, request, ids, change)


def _needs_head(feature: Feature, one: Modification) -> bool:
    """Whether the current tags matter: the feature has none, and its source id may change."""
    if one.if_exists not in (IfExists.PATCH, IfExists.REPLACE):
        return False
    if "tags" in namespace_of(feature):
        return False
    return one.if_exists is IfExists.REPLACE or get_at(feature, PATH) is not ABSENT


def _tagged(feature: Feature, tags: Any, source: Mapping[str, Any]) -> Feature:
    """Return the feature with the tag of its source id as its only source id tag."""
    tag = source_tag(get_at(source, PATH))
    if tag is None and not tags:
        return feature
    kept = [each for each in tags if not (isinstance(each, str) and each.startswith(PREFIX))]
    properties = feature.get("properties") or {}
    namespace = {**namespace_of(feature), "tags": [*kept, *([tag] if tag else [])]}
    return {**feature, "properties": {**properties, XYZ: namespace}}

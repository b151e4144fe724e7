"""Tag filter: tags that a space adds to features, removes from them, or requires.

    {"add": ["checked"], "removeWithPrefixes": ["tmp_"], "contains": ["public"],
     "rules": {"large": "$.features[?@.properties.area >= 500]"}}

On write, tags that begin with one of `removeWithPrefixes` are removed, then those of `add` are
added. A tag of `rules` is set on the features that its JSONPath selects and removed from all
others, whatever the client sends; the path starts at a FeatureCollection with the whole feature.
On read, only features with all tags of `contains` are visible; in differences and in the feed, a
feature that loses one of them is reported as deleted.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec

from naksha.hub.handlers.passthrough import Feature, with_features, with_query
from naksha.hub.handlers.visible_changes import visible_only
from naksha.hub.handlers.writes.head_writes import (
    Heads,
    check_merges,
    is_patch,
    with_patches_applied,
    write_over_heads,
)
from naksha.hub.handlers.writes.write_parts import ResponseOrder, namespace_of, with_ids, with_lock
from naksha.hub.pipeline.json_path import JsonPath
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.hub.write.namespaces import without_namespace
from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.model.tags import normalise_tag, normalise_tags


class TagFilterHandler:
    """Handler that changes tags on write and filters by tags on read."""

    metric_name: ClassVar[str] = "TagFilterHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._add = tags_of(properties, "add")
        self._contains = tags_of(properties, "contains")
        self._prefixes = tuple(map(normalise_tag, _texts(properties, "removeWithPrefixes")))
        self._rules = _rules_of(properties.get("rules", {}))

    @property
    def hides_features(self) -> bool:
        """Whether the space hides features, so that the size of the collection is not reported."""
        return bool(self._contains)

    async def process(self, event: Event) -> Any:
        if isinstance(event.request, WriteFeatures):
            return await self._write(event, event.request)
        if not self._contains:
            return await event.send_upstream()
        response = await event.send_upstream(with_query(event.request, self._narrowed))
        return visible_only(response, lambda state: self._sees(state.feature))

    def _narrowed(self, query: Query) -> Query:
        groups = query.tags if query.tags is not None else ((),)
        tags = tuple(tuple(dict.fromkeys((*group, *self._contains))) for group in groups)
        return msgspec.structs.replace(query, tags=tags)

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        """Write, and remove hidden features from the response or the conflict."""
        try:
            written = await self._tagged(event, self._written(request))
        except Conflict as error:
            if error.head is not None and not self._sees(error.head):
                error.head = None
            raise
        own = {*written.inserted, *written.updated}
        return msgspec.structs.replace(
            written,
            states=tuple(s for s in written.states if s.id in own or self._sees(s.feature)),
            tombstones=tuple(s for s in written.tombstones if self._sees(s.feature)),
        )

    def _sees(self, feature: Feature) -> bool:
        return {*self._contains} <= {*(namespace_of(feature).get("tags") or ())}

    def _written(self, request: WriteFeatures) -> WriteFeatures:
        """Apply `add` and `removeWithPrefixes` to a write.

        Added tags go into the request, not into the features, so that a patch keeps existing tags.
        """
        request = with_features(request, self._without_prefixes) if self._prefixes else request
        own = {*self._add, *self._rules}
        return msgspec.structs.replace(
            request,
            add_tags=(*self._without_rules(self._kept(request.add_tags)), *self._add),
            remove_tags=tuple(tag for tag in normalise_tags(request.remove_tags) if tag not in own),
        )

    def _without_prefixes(self, feature: Feature, _: Modification) -> Feature:
        namespace = namespace_of(feature)
        tags = namespace.get("tags")
        if not isinstance(tags, list | tuple):
            return feature
        kept = {**namespace, "tags": list(self._kept(tags))}
        return {**feature, "properties": {**feature["properties"], XYZ: kept}}

    def _kept(self, tags: Any) -> tuple[str, ...]:
        if not self._prefixes:
            return tuple(tags)
        return tuple(tag for tag in normalise_tags(tags) if not tag.startswith(self._prefixes))

    # ---- Rules -------------------------------------------------------------------------------

    async def _tagged(self, event: Event, request: WriteFeatures) -> Written:
        """Write with the tags of the rules."""
        if not self._rules:
            written: Written = await event.send_upstream(request)
            return written
        request = with_ids(request, everywhere=True)
        await check_merges(event, request)
        # Patches lack the rest of the feature; features sent without tags keep the current ones.
        ids = {
            feature["id"]
            for one in request.modifications
            for feature in one.features
            if isinstance(feature["id"], str)
            and (is_patch(one) or "tags" not in namespace_of(feature))
        }

        async def change(heads: Heads) -> WriteFeatures:
            patched = with_patches_applied(request, heads)
            return await asyncio.to_thread(
                with_features, patched, lambda feature, one: self._with_rules(feature, one, heads)
            )

        written = await write_over_heads(event, request, ids, change)
        failed = tuple(map(ResponseOrder(request).positioned, written.failed))
        return msgspec.structs.replace(written, failed=failed)

    def _with_rules(self, feature: Feature, one: Modification, heads: Heads) -> Feature:
        if one.if_exists is IfExists.DELETE:
            return feature
        head = heads.get(feature["id"]) if isinstance(feature["id"], str) else None
        tags = namespace_of(feature).get("tags") or ()
        if "tags" not in namespace_of(feature) and head is not None:
            tags = head.xyz["tags"]
            if one.if_exists is not IfExists.RETAIN and not namespace_of(feature).get("uuid"):
                feature = with_lock(feature, head)
        if not isinstance(tags, list | tuple):
            return feature  # invalid; the storage refuses it
        collection = {"type": "FeatureCollection", "features": [without_namespace(feature)]}
        found = [tag for tag, path in self._rules.items() if path.finds(collection)]
        namespace = {**namespace_of(feature), "tags": [*self._without_rules(tags), *found]}
        return {**feature, "properties": {**(feature.get("properties") or {}), XYZ: namespace}}

    def _without_rules(self, tags: Any) -> tuple[str, ...]:
        if not self._rules:
            return tuple(tags)
        return tuple(tag for tag in normalise_tags(tags) if tag not in self._rules)


def _rules_of(rules: object) -> dict[str, JsonPath]:
    """Parse the rules: a JSONPath for each tag."""
    field = "properties.rules"
    if not isinstance(rules, dict) or not all(
        tag and isinstance(path, str) for tag, path in rules.items()
    ):
        raise InvalidArgument(
            "properties.rules of a tag filter must be an object that maps tags to JSONPaths",
            field=field,
        )
    if len(rules) > limits.TAG_RULES_MAX:
        raise InvalidArgument(
            f"properties.rules has {len(rules)} entries; the maximum is {limits.TAG_RULES_MAX}",
            field=field,
        )
    found = {}
    for tag, path in rules.items():
        try:
            found[normalise_tag(tag)] = JsonPath.parse(path, field=f"{field}.{tag}")
        except InvalidArgument as error:
            raise InvalidArgument(
                f"The rule of the tag {tag!r:.40} is not valid: {error.message}",
                field=f"{field}.{tag}",
            ) from None
    return found


def tags_of(properties: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return configured tags, normalised as they are stored."""
    try:
        return tuple(normalise_tags(_texts(properties, name)))
    except InvalidArgument as error:
        error.field = f"properties.{name}"
        raise


def _texts(properties: dict[str, Any], name: str) -> list[str]:
    value = properties.get(name) or []
    if not isinstance(value, list | tuple) or not all(isinstance(x, str) and x for x in value):
        raise InvalidArgument(
            f"properties.{name} must be an array of non-empty strings", field=f"properties.{name}"
        )
    return list(value)

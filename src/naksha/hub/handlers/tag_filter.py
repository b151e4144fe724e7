"""Tags that a space gives to its features, takes from them, or asks for.

    {"add": ["checked"], "removeWithPrefixes": ["tmp_"], "contains": ["public"]}

On write, tags that begin with one of `removeWithPrefixes` are taken away, then those of `add` are
given. On read, only features with all tags of `contains` are seen; in differences and in the feed,
one that loses them is deleted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from naksha.hub.handlers.passing import Feature, with_features, with_query
from naksha.hub.handlers.seen import seen_only
from naksha.hub.handlers.write_parts import namespace_of
from naksha.hub.pipeline import Event, Setup
from naksha.hub.requests import Modification, WriteFeatures
from naksha.hub.responses import Written
from naksha.model.errors import Conflict, InvalidArgument
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.model.tags import normalise_tag, normalise_tags


class TagFilterHandler:
    """Changes tags on write, and asks for tags on read."""

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._add = tags_of(properties, "add")
        self._contains = tags_of(properties, "contains")
        self._prefixes = tuple(map(normalise_tag, _texts(properties, "removeWithPrefixes")))

    @property
    def hides_features(self) -> bool:
        """Whether the collection has more than is seen, so that its size is not told."""
        return bool(self._contains)

    async def process(self, event: Event) -> Any:
        if isinstance(event.request, WriteFeatures):
            return await self._write(event, event.request)
        if not self._contains:
            return await event.send_upstream()
        answer = await event.send_upstream(with_query(event.request, self._narrowed))
        return seen_only(answer, lambda state: self._sees(state.feature))

    def _narrowed(self, query: Query) -> Query:
        groups = query.tags if query.tags is not None else ((),)
        tags = tuple(tuple(dict.fromkeys((*group, *self._contains))) for group in groups)
        return msgspec.structs.replace(query, tags=tags)

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        """Of what was there already, and is not seen here, nothing is told either."""
        try:
            written: Written = await event.send_upstream(self._written(request))
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
        """What is added is said in the request: it is then added to the tags that a feature has
        already, also when it is only patched."""
        request = with_features(request, self._without_prefixes) if self._prefixes else request
        return msgspec.structs.replace(
            request,
            add_tags=(*self._kept(request.add_tags), *self._add),
            remove_tags=tuple(
                tag for tag in normalise_tags(request.remove_tags) if tag not in self._add
            ),
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


def tags_of(properties: dict[str, Any], name: str) -> tuple[str, ...]:
    """Tags that are configured, as they are stored."""
    try:
        return tuple(normalise_tags(_texts(properties, name)))
    except InvalidArgument as error:
        error.field = f"properties.{name}"
        raise


def _texts(properties: dict[str, Any], name: str) -> list[str]:
    value = properties.get(name) or []
    if not isinstance(value, list | tuple) or not all(isinstance(x, str) and x for x in value):
        raise InvalidArgument(f"{name} is an array of texts", field=f"properties.{name}")
    return list(value)

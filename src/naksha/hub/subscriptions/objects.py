"""Subscription objects: the source of changes, a filter, and the pipeline of the delivery.

    {"id": "roads-to-search",
     "source": {"spaceId": "roads"},                         or {"storageId": …, "collections": […]}
     "filter": {"actions": ["CREATE", "UPDATE"], "properties": "p.speed>50", "tags": "open"},
     "granularity": "PER_TRANSACTION",
     "eventHandlerIds": ["search-webhook"],                  the pipeline that it is delivered to
     "start": "now"}

XYZ's form (`source` and `destination` as text, `config.type`) is accepted too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final, Self

import msgspec

from naksha.catalog.objects import object_type
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Right
from naksha.hub.config.objects import HubObject, check_object_id
from naksha.hub.pipeline.json_path import JsonPath
from naksha.hub.query_language.properties import property_query
from naksha.hub.query_language.tags import tag_query
from naksha.hub.render.feature_shapes import sent_shape
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import check_collection_id
from naksha.model.value_text import value_text
from naksha.versioning.feed.events import ACTIONS, EVENTS, check_events

NOW: Final = "now"
BEGINNING: Final = "beginning"


class Granularity(StrEnum):
    """Unit of one delivery.

    A transaction with all its changes, one changed feature, or only the fact of a change.
    """

    PER_TRANSACTION = "PER_TRANSACTION"
    PER_FEATURE = "PER_FEATURE"
    CONTENT_CHANGE = "CONTENT_CHANGE"


class ChangeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Source of changes: a space, or a whole storage or some of its collections."""

    space_id: str | None = None
    storage_id: str | None = None
    collections: tuple[str, ...] = ()


class SpatialFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An area, grown by a radius in metres; with `clip` features are cut at its border."""

    geometry: dict[str, Any]
    radius: float = 0.0
    clip: bool = False


class ChangeFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Conditions on changes; all must hold for the feature after the change, or before it."""

    actions: tuple[str, ...] = ()
    spatial_filter: SpatialFilter | None = None
    tags: str = ""
    """As in a request: `a,b+c` means a, or b and c."""
    properties: str = ""
    """As in a request: `p.speed>50&p.name=Main`."""
    authors: tuple[str, ...] = ()
    json_path: str = ""
    """RFC 9535, for example `$.properties[?@.speed > 50]`; true if it selects anything. Only
    the feature after the change is tested."""


_SETTLED: Final = ("source", "start", "started_after", "started_in", "progress_id")
"""Members that cannot change: another source needs another subscription, and an existing one is
repositioned by a reset."""


@object_type("hub-subscription")
class Subscription(HubObject, frozen=True, kw_only=True, rename="camel"):
    """Configuration of a subscription."""

    kind: ClassVar[str] = "subscription"
    use_right: ClassVar[Right] = Right.USE_SUBSCRIPTIONS
    manage_right: ClassVar[Right] = Right.MANAGE_SUBSCRIPTIONS
    computed: ClassVar[frozenset[str]] = frozenset(
        {"type", "status", "destination", "config", "filters"}
    )
    kept: ClassVar[tuple[str, ...]] = (*HubObject.kept, *_SETTLED)

    source: ChangeSource
    filter: ChangeFilter = ChangeFilter()
    granularity: Granularity = Granularity.PER_TRANSACTION
    event_handler_ids: tuple[str, ...]
    start: str | int = NOW
    """First changes to deliver: those after now, all, or those after a version."""
    active: bool = True
    """An inactive subscription is paused and continues at its position when activated."""
    keep_days: int = limits.SUBSCRIPTION_KEEP_DAYS
    """Days for which history and log are kept for a stalled subscription; then it may expire."""
    started_after: int = 0
    """The version that `start` meant on creation."""
    started_in: str = ""
    """The storage of this version."""
    progress_id: int = 0
    """The catalog object with the subscription's progress, a new one for each creation."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        return super().from_json(_plain(value) if isinstance(value, dict) else value)

    def check(self) -> None:
        super().check()
        _check_source(self.source)
        _check_filter(self.filter)
        check_start(self.start)
        if not 1 <= len(self.event_handler_ids) <= limits.PIPELINE_HANDLERS_MAX:
            raise InvalidArgument(
                f"The subscription has {len(self.event_handler_ids)} eventHandlerIds; it needs 1 "
                f"to {limits.PIPELINE_HANDLERS_MAX}",
                field="eventHandlerIds",
            )
        if not 0 <= self.keep_days <= limits.SUBSCRIPTION_KEEP_DAYS_MAX:
            raise InvalidArgument(
                f"keepDays is {self.keep_days}; it must be in "
                f"0..{limits.SUBSCRIPTION_KEEP_DAYS_MAX}",
                field="keepDays",
            )

    def whole_json(self) -> dict[str, Any]:
        return {**super().whole_json(), "source": msgspec.to_builtins(self.source)}

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON without internal members about the progress."""
        hidden = ("progressId", "startedIn")
        return {name: value for name, value in self.whole_json().items() if name not in hidden}

    def resource(self) -> Resource:
        return resources.subscription(
            self.id,
            space_id=self.source.space_id,
            storage_id=self.source.storage_id,
            owner=self.owner,
            tags=self.tags,
            app_id=self.app_id,
            author=self.author,
        )


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Convert XYZ's form to ours; members in our form take precedence."""
    members = dict(value)
    if isinstance(members.get("source"), str):
        members["source"] = {"spaceId": members["source"]}
    destination, config = members.get("destination"), members.get("config")
    if "eventHandlerIds" not in members and isinstance(destination, str):
        members["eventHandlerIds"] = [destination]
    if "granularity" not in members and isinstance(config, dict) and "type" in config:
        members["granularity"] = config["type"]
    if members.get("filters") is not None:
        filters = _filter_of(members.pop("filters"))
        if members.setdefault("filter", filters) not in (filters, None, {}):
            raise InvalidArgument("filters differs from filter; send only one", field="filters")
        members["filter"] = filters
    _check_members(members.get("filter"), ChangeFilter, "filter")
    return members


def _filter_of(filters: object) -> dict[str, Any]:
    """Convert XYZ's filters to our form."""
    if not isinstance(filters, dict):
        raise InvalidArgument(
            f"filters must be a JSON object, not {value_text(filters)}", field="filters"
        )
    found = {name: value for name, value in filters.items() if value is not None}
    if str(found.pop("context", "DEFAULT")).upper() != "DEFAULT":
        raise InvalidArgument(
            "filters.context must be DEFAULT; correct or omit it",
            field="filters.context",
        )
    if "propertyFilter" in found:
        if not isinstance(found["propertyFilter"], str):
            raise InvalidArgument(
                "filters.propertyFilter must be a string of conditions such as "
                "p.speed>50&p.name=Main",
                field="filters.propertyFilter",
            )
        found["properties"] = found.pop("propertyFilter")
    _check_members(found, ChangeFilter, "filters")
    return found


def _check_members(value: object, kind: type[msgspec.Struct], field: str) -> None:
    """Refuse unknown members: a filter that is ignored would deliver too much."""
    if not isinstance(value, dict):
        return
    known = {each.encode_name for each in msgspec.structs.fields(kind)}
    for name in value:
        if name not in known:
            raise InvalidArgument(
                f"{field}.{name:.40} is not a known member; use one of {', '.join(sorted(known))}",
                field=f"{field}.{name}",
            )
    if kind is ChangeFilter:
        _check_members(value.get("spatialFilter"), SpatialFilter, f"{field}.spatialFilter")


def _check_source(source: ChangeSource) -> None:
    if (source.space_id is None) == (source.storage_id is None):
        raise InvalidArgument(
            "A subscription needs exactly one source, a spaceId or a storageId", field="source"
        )
    if source.space_id is not None:
        check_object_id(source.space_id, "space")
        if source.collections:
            raise InvalidArgument(
                "source.collections is allowed with a storageId only; a space has its own "
                "collections",
                field="source.collections",
            )
    if len(source.collections) > limits.SUBSCRIPTION_COLLECTIONS_MAX:
        raise InvalidArgument(
            f"source.collections names {len(source.collections)} collections; the maximum is "
            f"{limits.SUBSCRIPTION_COLLECTIONS_MAX}. Omit them to subscribe to the whole storage",
            field="source.collections",
        )
    for index, id in enumerate(source.collections):
        check_collection_id(id, field=f"source.collections[{index}]")


def _check_filter(change_filter: ChangeFilter) -> None:
    for index, action in enumerate(change_filter.actions):
        if action not in (*ACTIONS, *EVENTS):
            raise InvalidArgument(
                f"{action!r:.40} is not a valid action; use one of "
                f"{', '.join((*ACTIONS, *EVENTS))}",
                field=f"filter.actions[{index}]",
            )
    spatial = change_filter.spatial_filter
    if spatial is not None:
        _check_area(spatial)
    tag_query(f"tags={change_filter.tags}")
    if change_filter.properties and property_query(change_filter.properties) is None:
        raise InvalidArgument(
            f"filter.properties is {change_filter.properties!r:.80}, which has no condition; write "
            "for example p.speed>50&f.id=a,b",
            field="filter.properties",
        )
    if change_filter.json_path:
        JsonPath.parse(change_filter.json_path, field="filter.jsonPath")
    on_features = (
        spatial or change_filter.tags or change_filter.properties or change_filter.json_path
    )
    check_events(change_filter.actions, bool(on_features), field="filter.actions")


def _check_area(spatial: SpatialFilter) -> None:
    try:
        sent_shape(spatial.geometry)
    except InvalidArgument as error:
        error.field = f"filter.spatialFilter.{error.field or 'geometry'}"
        raise
    if not 0 <= spatial.radius <= limits.RADIUS_METRES_MAX:
        raise InvalidArgument(
            f"filter.spatialFilter.radius is {spatial.radius}; it must be in "
            f"0..{limits.RADIUS_METRES_MAX} metres",
            field="filter.spatialFilter.radius",
        )


def check_start(start: str | int, *, field: str = "start") -> None:
    """Check a version from which a subscription starts or continues."""
    if isinstance(start, str) and start not in (NOW, BEGINNING):
        raise InvalidArgument(
            f"{field} is {start!r:.40}; it must be {NOW!r}, {BEGINNING!r} or a version number",
            field=field,
        )
    if isinstance(start, int) and not 0 <= start <= limits.INT8_MAX:
        raise InvalidArgument(
            f"{field} is {start}; a version must be in 0..{limits.INT8_MAX}", field=field
        )

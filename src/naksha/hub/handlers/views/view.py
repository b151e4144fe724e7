"""View: several spaces as one.

    {"spaceIds": ["edits", "corrections", "base"], "viewType": "LAYERED"}

LAYERED (the default): the first space is the top layer, and its features hide those of the other
spaces with the same id; a feature deleted there stays hidden. MERGED: the same, but the top
layer's features override those below property by property. UNION: all features of all spaces; of
features with the same id all are returned, and `space` in the namespace names their space.

Writes go to the top layer. With `"writes": "origin"`, writes to a union go to the space that has
the feature.

`space` in the namespace of a layered feature is the view; with `"namesOrigin": true` it is the
space that the feature comes from, and absent when the feature was merged from several.

With `extends` instead of `spaceIds`, the handlers after the view are the top layer: the space has
features of its own on top of those of the space that it extends.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.config.references import Reference
from naksha.hub.handlers.views import group_writes, layered_reads, layered_writes, merged_reads
from naksha.hub.handlers.views.layer_pins import pins_of, storages_of
from naksha.hub.handlers.views.layers import (
    DeletionLayer,
    LayerStack,
    OwnLayer,
    SpaceLayer,
    ViewLayer,
)
from naksha.hub.handlers.writes.write_parts import deleted_by, deletion_of
from naksha.hub.pipeline import version_requests
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    FindStorages,
    GetVersion,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import (
    Count,
    Deleted,
    Features,
    FeatureStorages,
    FixedVersion,
    Written,
)
from naksha.model import limits
from naksha.model.errors import (
    Forbidden,
    InvalidArgument,
    NotImplementedHere,
    NotSupported,
)
from naksha.model.query import Query, States
from naksha.model.version import Head
from naksha.versioning.version_refs import MAIN_BRANCH, NamedRef, SingleRef, parse_ref

_OF_OWN_FEATURES: Final = (
    version_requests.ReadChangesets,
    version_requests.ReadLog,
    version_requests.ReadVersionSpan,
    version_requests.ReadHistory,
    version_requests.ForgetVersions,
    version_requests.ListTags,
    version_requests.GetTag,
    version_requests.PutTag,
    version_requests.DropTag,
)
"""Requests that a space which extends another one answers for its own features only, as XYZ-Hub
does."""
DEFAULT: Final = "default"
EXTENSION: Final = "extension"
SUPER: Final = "super"
_TOP: Final = "top"
_ORIGIN: Final = "origin"


class ViewType(StrEnum):
    """Rule by which layers are combined."""

    LAYERED = "LAYERED"
    MERGED = "MERGED"
    UNION = "UNION"


class ViewHandler:
    """Handler that combines its layers."""

    metric_name: ClassVar[str] = "ViewHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._layers = _layers_of(properties)
        kind = _view_type_of(properties)
        self._is_layered = kind is not ViewType.UNION
        self._is_merged = kind is ViewType.MERGED
        self._writes_to_origin = _writes_to_origin(properties)
        self._names_origin = names_origin(properties) or not self._is_layered

    @property
    def _space_ids(self) -> list[str]:
        return [layer.space_id for layer in self._layers if isinstance(layer, SpaceLayer)]

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """Return references to the spaces of the view."""
        extends = properties.get("extends")
        if isinstance(extends, str) and extends:
            return [Reference("space", extends, "properties.extends")]
        ids = properties.get("spaceIds")
        return [
            Reference("space", id, f"properties.spaceIds[{place}]")
            for place, id in enumerate(ids if isinstance(ids, list | tuple) else ())
            if isinstance(id, str)
        ]

    async def process(self, event: Event) -> Any:
        match event.request:
            case ReadFeatures() as request:
                return await self._read(event, request)
            case CountFeatures() as request:
                return await self._count(event, request)
            case WriteFeatures() as request:
                return await self._write(event, request)
            case DeleteFeatures() as request:
                return await self._delete(event, request)
            case GetVersion() as request:
                return await self._version(event, request)
            case FindStorages():
                return FeatureStorages(await storages_of(event, self._layers))
        if self._has_own and isinstance(event.request, _OF_OWN_FEATURES):
            return await event.send_upstream()
        raise NotImplementedHere(
            f"A view does not support the request {type(event.request).__name__}; send it to one "
            "of its spaces"
        )

    def layers_of(self, context: str) -> Sequence[ViewLayer]:
        """Return the layers that a read of a part of the space combines, topmost first."""
        parts = {
            DEFAULT: self._layers,
            EXTENSION: self._layers[:1],
            SUPER: self._layers[1:],
        }
        if context not in parts:
            raise InvalidArgument(
                f"context={context!r:.40} is not valid; use one of {', '.join(parts)}",
                field="context",
            )
        return parts[context]

    @property
    def hides(self) -> bool:
        """Whether features of a layer hide those with the same id in the layers below."""
        return self._is_layered

    @property
    def merges(self) -> bool:
        """Whether features with the same id are merged property by property."""
        return self._is_merged

    @property
    def _has_own(self) -> bool:
        """Whether the space has features of its own on top of the space that it extends."""
        return isinstance(self._layers[0], OwnLayer)

    async def _read(self, event: Event, request: ReadFeatures) -> Features:
        if self._has_own and request.query.states is States.ALL:
            own: Features = await event.send_upstream(
                msgspec.structs.replace(request, context=DEFAULT)
            )
            return own
        stack = await self._stack(event, request.context, request.ref)
        stack = stack._replace(only_ids=request.only_ids, names_origin=self._names_origin)
        query = self._query(event, request.query)
        if self._shows_deletions(request):
            top = stack.layers[0]
            layers = (top, DeletionLayer(top, self._layers[1:]))
            pair = stack._replace(layers=layers)
            return await layered_reads.read(pair, query, hiding=False, paged=request.paged)
        if not request.paged and not layered_reads.are_few(query):
            stack = await self._at_once(stack)
        elif request.paged and is_head(request.ref):
            stack = stack.pinned(await pins_of(stack, query.cursor))
        if self._is_merged and query.states is States.LIVE and not request.only_ids:
            return await merged_reads.read(stack, query, paged=request.paged)
        return await layered_reads.read(stack, query, hiding=self._is_layered, paged=request.paged)

    def _shows_deletions(self, request: ReadFeatures) -> bool:
        """Whether the response includes lower features that the top layer deletes.

        Deletions have only an id and a namespace, so only queries without conditions, or for ids,
        include them.
        """
        query = request.query
        return (
            request.context == EXTENSION
            and self._is_layered
            and len(self._layers) > 1
            and query.states is States.LIVE
            and (query.spatial, query.where, query.tags) == (None, None, None)
        )

    async def _count(self, event: Event, request: CountFeatures) -> Count:
        stack = await self._at_once(await self._stack(event, request.context, request.ref))
        query = self._query(event, request.query)
        if self._is_merged and query.states is States.LIVE:
            return Count(await merged_reads.count(stack, query))
        return Count(await layered_reads.count(stack, query, hiding=self._is_layered))

    async def _at_once(self, stack: LayerStack) -> LayerStack:
        """Pin all layers to one moment.

        Otherwise a feature that is brought up after the top layer was read, and before the lower
        layers are, would be missing. A layer without history is read as it is, so there this can
        still happen.
        """
        if not self._is_layered or len(stack.layers) == 1 or not is_head(stack.ref):
            return stack
        return stack.pinned(await pins_of(stack, None), or_present=True)

    def _query(self, event: Event, query: Query) -> Query:
        if query.states is States.ALL or query.replaced_since is not None:
            raise NotSupported(
                "A view has no history of its own; send the query to one of its spaces",
                field="states",
            )
        if not self._names_origin and query.space is None:
            return msgspec.structs.replace(query, space=event.space.id)
        return query

    async def _stack(self, event: Event, context: str, ref: str) -> LayerStack:
        """Return the layers of a request: all, the top one, or those below it."""
        layers = self.layers_of(context)
        if not is_head(ref):
            ref = await self._untagged(event, ref)
            await check_version(event, layers, ref)
        return LayerStack(event, layers, ref)

    async def _untagged(self, event: Event, ref: str) -> str:
        """Replace a tag of the space in a version reference by its version number."""
        parsed = parse_ref(ref)
        is_name = isinstance(parsed, SingleRef) and isinstance(parsed.point, NamedRef)
        if not self._has_own or not is_name:
            return ref
        fixed = await event.send_upstream(GetVersion(ref=ref))
        is_main = fixed is not None and fixed.ref.startswith(f"{MAIN_BRANCH}:")
        return fixed.ref if is_main else ref

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        stack = await self._written(event, request)
        plain = msgspec.structs.replace(request, context=DEFAULT)
        if len(stack.layers) > 1 and not self._is_layered:
            return await group_writes.write(event, stack.layers, self._space_ids, plain)
        if self._is_layered and len(stack.layers) < len(self._layers):
            below = stack._replace(layers=self._layers[1:])
            return await layered_writes.write_to_top(stack, below, plain)
        return await layered_writes.write(stack, plain)

    async def _delete(self, event: Event, request: DeleteFeatures) -> Deleted:
        stack = await self._written(event, request)
        if len(stack.layers) == 1:
            unmasks = self._is_layered and len(self._layers) > 1
            plain = msgspec.structs.replace(request, context=DEFAULT, unmasks=unmasks)
            return await stack.layers[0].send(event, plain)
        found = await self._read(event, ReadFeatures(query=request.query, context=request.context))
        deletion = await deletion_of(found, request.message)
        return deleted_by(await self._write(event, deletion))

    async def _written(self, event: Event, request: WriteFeatures | DeleteFeatures) -> LayerStack:
        """Return the layers of a write.

        In a union it is the top layer, which hides nothing, unless writes go to the space that has
        the feature.
        """
        if request.context == SUPER:
            raise Forbidden(
                f"The space that {event.space.id!r} extends cannot be changed through it; write to "
                "that space directly, or without context=super (E318431)",
                field="context",
            )
        if not is_head(request.ref):
            raise NotSupported(
                "A view has no branches; write to the space that has the branch",
                field="versionRef",
            )
        is_whole = self._is_layered or self._writes_to_origin
        context = request.context if is_whole else EXTENSION
        return await self._stack(event, context, request.ref)

    async def _version(self, event: Event, request: GetVersion) -> FixedVersion | None:
        """Return the version of all layers, if they have common versions."""
        if is_head(request.ref):
            if not request.published or len(await storages_of(event, self._layers)) > 1:
                return None
        else:
            ref = await self._untagged(event, request.ref)
            request = msgspec.structs.replace(request, ref=ref)
            await check_version(event, self._layers, ref)
        versions = [await layer.send(event, request) for layer in self._layers]
        known = [version for version in versions if version is not None]
        if len(known) < len(versions):
            return None
        oldest = min(known, key=lambda version: version.seq_number)
        return FixedVersion(oldest.ref, ",".join(each.line for each in known), oldest.seq_number)


def _layers_of(properties: dict[str, Any]) -> Sequence[ViewLayer]:
    """Return the configured layers, topmost first."""
    extends = properties.get("extends")
    if isinstance(extends, str) and extends:
        return (OwnLayer(), SpaceLayer(extends))
    ids = properties.get("spaceIds")
    if not isinstance(ids, list | tuple) or not ids or not all(isinstance(id, str) for id in ids):
        raise InvalidArgument(
            "A view needs properties.spaceIds: an array of space ids, the top one first",
            field="properties.spaceIds",
        )
    if len(ids) > limits.VIEW_LAYERS_MAX or len({*ids}) < len(ids):
        raise InvalidArgument(
            f"properties.spaceIds may have at most {limits.VIEW_LAYERS_MAX} spaces, each of them "
            "once",
            field="properties.spaceIds",
        )
    return tuple(map(SpaceLayer, ids))


def _view_type_of(properties: dict[str, Any]) -> ViewType:
    """Parse the rule by which the layers are combined."""
    value = properties.get("viewType", ViewType.LAYERED)
    try:
        return ViewType(value)
    except ValueError:
        raise InvalidArgument(
            f"{value!r:.40} is not a valid viewType; use one of {', '.join(ViewType)}",
            field="properties.viewType",
        ) from None


def _writes_to_origin(properties: dict[str, Any]) -> bool:
    """Whether existing features are written to the space that has them, not to the top."""
    value = properties.get("writes", _TOP)
    if value not in (_TOP, _ORIGIN):
        raise InvalidArgument(
            f"properties.writes is {value!r:.40}; it must be {_TOP!r} or {_ORIGIN!r}",
            field="properties.writes",
        )
    is_union = _view_type_of(properties) is ViewType.UNION and "spaceIds" in properties
    if value == _ORIGIN and not is_union:
        raise InvalidArgument(
            "properties.writes can be 'origin' only in a view with spaceIds and the viewType "
            "UNION; writes to any other view go to its top layer",
            field="properties.writes",
        )
    return bool(value == _ORIGIN)


def names_origin(properties: dict[str, Any]) -> bool:
    """Whether `space` in a feature's namespace names the space that the feature comes from."""
    value = properties.get("namesOrigin", False)
    if not isinstance(value, bool):
        raise InvalidArgument(
            f"properties.namesOrigin must be true or false, not {value!r:.40}",
            field="properties.namesOrigin",
        )
    return value


def is_head(ref: str) -> bool:
    """Whether a reference means the HEAD of the main branch."""
    if not ref:
        return True
    parsed = parse_ref(ref)
    return (
        isinstance(parsed, SingleRef)
        and parsed.branch == MAIN_BRANCH
        and isinstance(parsed.point, Head)
    )


async def check_version(event: Event, layers: Sequence[ViewLayer], ref: str) -> None:
    """Raise an error for a version that does not mean the same in all layers."""
    parsed = parse_ref(ref)
    if not isinstance(parsed, SingleRef):
        raise InvalidArgument(
            f"A view is read at one version, but {ref!r:.80} is a range of versions",
            field="versionRef",
        )
    if parsed.branch != MAIN_BRANCH or isinstance(parsed.point, NamedRef):
        raise NotSupported(
            f"A view cannot be read at {ref!r:.80}, because tags and branches belong to one space; "
            "use the number or time of a version, or send the request to the space that has the "
            "tag or branch",
            field="versionRef",
        )
    storages = await storages_of(event, layers)
    if len(storages) > 1:
        raise NotSupported(
            "The spaces of this view are in several storages "
            f"({', '.join(storages)}) without common versions; send the request to one of the "
            "spaces",
            field="versionRef",
        )

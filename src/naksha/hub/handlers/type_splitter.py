"""Type splitter: a space that stores features by type in several collections or spaces.

    {"property": "properties.kind",
     "storageId": "default",
     "collections": {"road": "roads", "rail": "rails"},
     "otherwise": "others"}

Reads combine all of them. With `collections` a write is one transaction, also when a feature
changes its type and moves to another collection; writes to the space are serialised for that. With
`spaces` instead of `collections`, each space is written separately and with its own rights.
Without `otherwise`, features of other types are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from naksha.hub.config.objects import Space
from naksha.hub.config.references import Reference
from naksha.hub.config.space_collections import SpaceCollection
from naksha.hub.handlers.paths import path_of
from naksha.hub.handlers.stored.storage import StorageHandler
from naksha.hub.handlers.views import layered_reads
from naksha.hub.handlers.views.layer_pins import storages_of
from naksha.hub.handlers.views.layers import LayerStack, SpaceLayer, ViewLayer
from naksha.hub.handlers.views.view import check_version, is_head
from naksha.hub.handlers.writes.write_parts import all_ids_of, deleted_by, deletion_of, with_ids
from naksha.hub.handlers.writes.write_split import (
    Heads,
    TypePlan,
    TypeRouting,
    carry_out,
    slice_request,
)
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    FindStorages,
    GetVersion,
    ReadFeatures,
    Request,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Count, Features, FeatureStorages, Written
from naksha.hub.write import is_first_delivery, published_version, write_in_session
from naksha.hub.write.guards import WritePermissions
from naksha.model import limits
from naksha.model.errors import (
    CollectionNotFound,
    InvalidArgument,
    NotImplementedHere,
    NotSupported,
)
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.value_text import value_text
from naksha.spi.storage import WriteSession

R = TypeVar("R")


class CollectionLayer(NamedTuple):
    """Layer of one of the space's own collections."""

    handler: StorageHandler

    async def send(self, event: Event, request: Request[R]) -> R:
        return await self.handler.answer(request, event)


class TypeSplitterConfig(NamedTuple):
    """Parsed configuration of a connector."""

    types: TypeRouting
    names: tuple[str, ...]
    """Names of collections or spaces, each once."""
    are_spaces: bool


class TypeSplitterHandler:
    """Handler that combines the collections or spaces of all types."""

    metric_name: ClassVar[str] = "TypeSplitterHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        config = _config_of(setup.connector.properties)
        self._types = config.types
        self._collections = [
            StorageHandler(setup._replace(connector=_connector_for(setup, name)))
            for name in ([] if config.are_spaces else config.names)
        ]
        self._layers: Sequence[ViewLayer] = [
            CollectionLayer(each) for each in self._collections
        ] or [SpaceLayer(name) for name in config.names]

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """Return references to the spaces, or to the storage of the collections."""
        config = _config_of(properties)
        if config.are_spaces:
            return [Reference("space", name, "properties.spaces") for name in config.names]
        return StorageHandler.references(properties)

    @staticmethod
    def collections(space: Space, properties: dict[str, Any]) -> list[SpaceCollection]:
        """Return all collections that the space stores features in."""
        config = _config_of(properties)
        return [
            stored
            for name in ([] if config.are_spaces else config.names)
            for stored in StorageHandler.collections(space, _properties_for(properties, name))
        ]

    async def process(self, event: Event) -> Any:
        match event.request:
            case ReadFeatures() as request:
                return await self._read(event, request)
            case CountFeatures() as request:
                stack = await self._stack(event, request.ref)
                return Count(await layered_reads.count(stack, request.query, hiding=False))
            case WriteFeatures() as request:
                return await self._write(event, request)
            case DeleteFeatures() as request:
                _check_head(request.ref)
                found = await self._read(event, ReadFeatures(query=request.query))
                deletion = await deletion_of(found, request.message)
                return deleted_by(await self._write(event, deletion))
            case FindStorages():
                return FeatureStorages(await storages_of(event, self._layers))
            case GetVersion() as request if self._collections:
                return await self._layers[0].send(event, request)
        raise NotImplementedHere(
            "A space that splits features by type does not support the request "
            f"{type(event.request).__name__}; send it to one of its collections or spaces"
        )

    async def _read(self, event: Event, request: ReadFeatures) -> Features:
        stack = await self._stack(event, request.ref)
        query = request.query
        if query.space is None:
            query = msgspec.structs.replace(query, space=event.space.id)
        return await layered_reads.read(stack, query, hiding=False, paged=request.paged)

    async def _stack(self, event: Event, ref: str) -> LayerStack:
        if not is_head(ref):
            await check_version(event, self._layers, ref)
        return LayerStack(event, self._layers, ref)

    # ---- Writing -----------------------------------------------------------------------------

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        _check_head(request.ref)
        request = with_ids(request)
        if self._collections:
            return await self._write_collections(event, request)
        return await self._write_spaces(event, request)

    def _plan(self, heads: Heads, request: WriteFeatures) -> TypePlan:
        plan = TypePlan(self._types, heads, request)
        for one in request.modifications:
            plan.add(one)
        return plan

    async def _write_collections(self, event: Event, request: WriteFeatures) -> Written:
        targets = [await each.target() for each in self._collections]
        storage = targets[0].storage

        async def work(session: WriteSession) -> Written:
            if not await is_first_delivery(session, request):
                return Written()
            await session.close_gates(await self._present(session))
            plan = self._plan(await self._heads(session, all_ids_of(request)), request)
            responses = [
                await plan.refusals.of(
                    write_in_session(
                        session,
                        targets[part.place],
                        slice_request(request, part),
                        event.context,
                        event.space.id,
                    )
                )
                for part in plan.parts
            ]
            written = plan.response_of(responses)
            if written.inserted:  # moved features do not increase the count
                await WritePermissions(event.context).check_count(
                    session, await self._present(session)
                )
            return written

        actor = event.context.actor
        written = await storage.run(work, actor.app_id, actor.author)
        if written.txn is None:
            return written
        version = await published_version(targets[0], written.txn)
        return msgspec.structs.replace(written, version=version)

    async def _present(self, session: WriteSession) -> list[str]:
        """Return the collections that exist."""
        existing = {info.id for info in await session.collections()}
        return [id for id in self._collection_ids if id in existing]

    @property
    def _collection_ids(self) -> list[str]:
        return [each.collection_id for each in self._collections]

    async def _heads(
        self, session: WriteSession, ids: Sequence[str]
    ) -> dict[str, tuple[int, State]]:
        heads: dict[str, tuple[int, State]] = {}
        for place, collection in enumerate(self._collection_ids):
            try:
                page = await session.page(collection, Query(ids=tuple(ids)))
            except CollectionNotFound:
                continue
            heads |= {state.id: (place, state) for state in page.states}
        return heads

    async def _write_spaces(self, event: Event, request: WriteFeatures) -> Written:
        """Write each space separately; see `carry_out`."""
        stack = LayerStack(event, self._layers, "")
        ids = all_ids_of(request)
        heads = {
            state.id: (place, state)
            for place, layer in enumerate(self._layers)
            for state in await stack.find(layer, ids)
        }
        return await carry_out(self._plan(heads, request), event, self._layers, request)


def _config_of(properties: dict[str, Any]) -> TypeSplitterConfig:
    """Parse the configuration of a connector.

    Raises:
        InvalidArgument: It is not valid.
    """
    are_spaces = "spaces" in properties
    field = "spaces" if are_spaces else "collections"
    names_by_type = properties.get(field)
    if (
        not isinstance(names_by_type, dict)
        or not names_by_type
        or not all(isinstance(name, str) and name for name in names_by_type.values())
        or (are_spaces and "collections" in properties)
    ):
        raise InvalidArgument(
            "A type splitter needs either properties.collections or properties.spaces: an object "
            "that maps types to names",
            field=f"properties.{field}",
        )
    otherwise = properties.get("otherwise")
    if otherwise is not None and not isinstance(otherwise, str):
        raise InvalidArgument(
            "properties.otherwise must be the name of a collection or space, not "
            f"{value_text(otherwise)}",
            field="properties.otherwise",
        )
    names = list(dict.fromkeys([*names_by_type.values(), *([otherwise] if otherwise else [])]))
    if len(names) > limits.VIEW_LAYERS_MAX:
        raise InvalidArgument(
            f"The type splitter has {len(names)} {field}; the maximum is {limits.VIEW_LAYERS_MAX}",
            field=f"properties.{field}",
        )
    types = TypeRouting(
        path_of(properties.get("property"), "properties.property"),
        {value: names.index(name) for value, name in names_by_type.items()},
        None if otherwise is None else names.index(otherwise),
    )
    return TypeSplitterConfig(types, tuple(names), are_spaces)


def _check_head(ref: str) -> None:
    if not is_head(ref):
        raise NotSupported(
            "A space that splits features by type has no branches; write to main",
            field="versionRef",
        )


def _properties_for(properties: dict[str, Any], collection: str) -> dict[str, Any]:
    kept: dict[str, Any] = {
        name: properties[name]
        for name in ("storageId", "autoCreateCollection", "autoDeleteCollection")
        if name in properties
    }
    return {**kept, "collection": {"id": collection}}


def _connector_for(setup: Setup, collection: str) -> Any:
    properties = _properties_for(setup.connector.properties, collection)
    return msgspec.structs.replace(setup.connector, properties=properties)

"""Configuration of a realm at one commit: the pipelines of its spaces, and its roles."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from naksha.catalog.entities import EntitySnapshot
from naksha.catalog.objects import ObjectRef
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.roles import Roles
from naksha.hub.config.objects import Connector, Space, StorageObject, key_of
from naksha.hub.config.references import processors_of, stored_by
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.pipeline.default_pipeline import own_connectors, space_rules
from naksha.hub.pipeline.handler_registry import handler_class
from naksha.hub.pipeline.pipeline import (
    Handler,
    HubServices,
    Observe,
    Pipeline,
    Setup,
    Stage,
    ignore_event,
)
from naksha.hub.pipeline.request_context import Actor
from naksha.model.errors import InvalidArgument, NakshaError, NotFound

_AUTHORIZATION: Final = "authorization"


class Configuration:
    """Configuration of a realm at one commit.

    Each pipeline is built at the first request to its space. A request keeps the configuration that
    it was resolved with, so all of its steps see the same one.
    """

    def __init__(
        self, snapshot: EntitySnapshot, hub: HubServices, observe: Observe = ignore_event
    ) -> None:
        self.commit: Final[ObjectRef | None] = (
            None if snapshot.commit is None else snapshot.commit.ref
        )
        """The commit; None for a realm that has none yet."""
        self._snapshot = snapshot
        self._hub = hub
        self._observe = observe
        self._built: dict[str, Pipeline] = {}
        self._roles = Roles(snapshot)

    async def granted(self, actor: Actor) -> Actor:
        """Return the actor with the rights of their roles added."""
        return await self._roles.granted(actor)

    async def pipeline(self, space_id: str) -> Pipeline:
        """Return the pipeline of a space, else raise NotFound."""
        built = self._built.get(space_id)
        if built is None:
            built = self._built[space_id] = await self._build(space_id)
        return built

    async def _build(self, space_id: str) -> Pipeline:
        found = await self._snapshot.get(key_of(Space, space_id), Space)
        if found is None:
            raise NotFound(
                f"The space {space_id!r} does not exist; correct its id, or create it",
                field="space",
            )
        space = found.value
        connectors = await self._connectors(space)
        features = await self._features(space, connectors)
        stages = [Stage(_AUTHORIZATION, Authorization(space, features))]
        stages += [
            Stage(connector.id, construct_handler(Setup(connector, space, self._hub)))
            for connector in connectors
            if connector.active
        ]
        fingerprint = sha256(msgspec.json.encode([space, *connectors], order="sorted")).digest()
        return Pipeline(space, stages, self._hub, self._observe, fingerprint=fingerprint)

    async def _features(self, space: Space, connectors: Sequence[Connector]) -> Resource:
        """Describe the features of a space for rights.

        A storage or collection is an attribute only if it contains all features of the space:
        otherwise rights on one storage would include features in another.
        """
        stored = stored_by(space, connectors)
        storage_ids = {each.storage_id for each in stored}
        places = {each.place for each in stored}
        if len(storage_ids) != 1:
            return resources.features(space.resource())
        (storage_id,) = storage_ids
        storage = await self._snapshot.get(key_of(StorageObject, storage_id), StorageObject)
        return resources.features(
            space.resource(),
            storage_id=storage_id,
            storage_tags=() if storage is None else storage.value.tags,
            collection_id=stored[0].collection.id if len(places) == 1 else None,
        )

    async def _connectors(self, space: Space) -> Sequence[Connector]:
        processors = await processors_of(self._snapshot, space)
        if not space.event_handler_ids:
            rules = len(space_rules(space))
            own = own_connectors(space)
            return [*own[:rules], *processors, *own[rules:]]
        keys = [key_of(Connector, id) for id in space.event_handler_ids]
        found = await self._snapshot.get_many(keys, Connector)
        missing = [
            id for id, one in zip(space.event_handler_ids, found, strict=True) if one is None
        ]
        if missing:
            raise NotFound(
                f"The space {space.id!r} names connectors that do not exist: {', '.join(missing)}",
                field="eventHandlerIds",
            )
        connectors = [one.value for one in found if one is not None]
        return [*space_rules(space), *processors, *connectors]


def construct_handler(setup: Setup) -> Handler:
    """Construct the handler of a connector; raise InvalidArgument if its properties are invalid."""
    try:
        return handler_class(setup.connector.handler_name)(setup)
    except NakshaError as error:
        error.handler = setup.connector.id
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise InvalidArgument(
            f"The connector {setup.connector.id!r} has invalid properties: {error!r}",
            field="properties",
        ) from error

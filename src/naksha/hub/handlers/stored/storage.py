"""Storage handler, the last one of most pipelines: a collection of a storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.config.objects import Space
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.hub.config.references import Reference
from naksha.hub.config.space_collections import (
    SpaceCollection,
    collection_of,
    scope_of,
    space_collection,
)
from naksha.hub.handlers.stored.meta import META_ANSWERS
from naksha.hub.handlers.stored.reads import READ_ANSWERS
from naksha.hub.handlers.stored.versions import VERSION_ANSWERS
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    FindStorages,
    PurgeFeatures,
    ReadFeatures,
    Request,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import (
    Count,
    Deleted,
    Features,
    Purged,
    Whereabouts,
    Written,
    closing,
)
from naksha.hub.pipeline.targets import Target, check_version, place
from naksha.hub.write import delete_features, purge_features, write_features
from naksha.hub.write.conflicted_branches import is_for_solving, shown
from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.version import AtSeq, VersionSelector
from naksha.spi.storage import Reader
from naksha.spi.support import chunks
from naksha.versioning import NameScope

Read = Callable[[Features, Reader, str, Query, VersionSelector], AsyncIterator[Sequence[State]]]


class StorageHandler:
    """Handler for all requests about one collection."""

    metric_name: ClassVar[str] = "StorageHandler"

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._hub = setup.hub
        self._storage_id = str(properties.get("storageId") or DEFAULT_STORAGE)
        self._collection = collection_of(setup.space, properties)
        self._auto_create = bool(properties.get("autoCreateCollection", True))
        space = scope_of(setup.hub.realm_id, setup.space.id)
        self._scope = NameScope(space=space, collections=(self._collection.id,))
        self._min_version = setup.space.min_version
        self._dateline = setup.space.dateline
        self._target: Target | None = None

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """Return the reference to the storage, the default one if none is named."""
        named = properties.get("storageId")
        if named is not None and not isinstance(named, str):
            raise InvalidArgument("storageId must be a string", field="properties.storageId")
        id = named or DEFAULT_STORAGE
        return [Reference("storage", id, "properties.storageId", is_implicit=not named)]

    @staticmethod
    def collections(space: Space, properties: dict[str, Any]) -> list[SpaceCollection]:
        """Return the one collection."""
        return [
            space_collection(space, str(properties.get("storageId") or DEFAULT_STORAGE), properties)
        ]

    @property
    def collection_id(self) -> str:
        """Id of the collection."""
        return self._collection.id

    async def process(self, event: Event) -> Any:
        answer = ANSWERS.get(type(event.request))
        if answer is None:
            return await event.send_upstream()
        return await answer(await self.target(), event.request, event)

    async def target(self) -> Target:
        """Return the open storage and the collection in it.

        It is cached, because a change of the storage's configuration creates a new handler.
        """
        if self._target is None:
            storage = await self._hub.storage(self._storage_id)
            self._target = Target(
                storage,
                self._collection,
                self._scope,
                self._min_version,
                self._auto_create,
                self._storage_id,
                self._dateline,
            )
        return self._target


async def read_features(target: Target, request: ReadFeatures, event: Event) -> Features:
    """Return the features of a query; none before the first write to the collection."""
    reader, at = await place(target, request.ref)
    query = request.query
    if query.space is None:
        query = msgspec.structs.replace(query, space=event.space.id)
    collection = target.collection.id
    read: Read = _pages if request.paged else _some
    if is_for_solving(request.ref):
        read = _marked(read)
    if query.states is States.ALL and target.min_version:
        read = _kept(read, (await target.storage.resolve(AtSeq(target.min_version))).txn)
    try:
        return await Features.begun(lambda answer: read(answer, reader, collection, query, at))
    except CollectionNotFound:
        await check_version(target, at)
        return Features.of(())


async def _some(
    _: Features, reader: Reader, collection: str, query: Query, at: VersionSelector
) -> AsyncIterator[Sequence[State]]:
    """Yield features up to the limit, in any order."""
    async with closing(reader.chunks(collection, query, at)) as found:
        async for states in found:
            yield states


async def _pages(
    answer: Features, reader: Reader, collection: str, query: Query, at: VersionSelector
) -> AsyncIterator[Sequence[State]]:
    """Yield features by id in pages of growing size; the last page sets the cursor."""
    left = limits.PAGE_DEFAULT if query.limit is None else query.limit
    size = chunks.FIRST
    while left > 0:
        some = min(left, size)
        page = await reader.page(collection, msgspec.structs.replace(query, limit=some), at)
        left -= len(page.states)
        answer.cursor = page.cursor
        if page.states:
            yield page.states
        if page.cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.cursor)
        size = chunks.size_after(page.states)


def _marked(read: Read) -> Read:
    """Wrap a read so that features are marked for clients that resolve conflicts."""

    async def states_shown(
        answer: Features, reader: Reader, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[Sequence[State]]:
        async with closing(read(answer, reader, collection, query, at)) as found:
            async for states in found:
                yield [shown(state) for state in states]

    return states_shown


def _kept(read: Read, oldest_txn: int) -> Read:
    """Wrap a read so that states which ended before the oldest kept version are left out."""

    async def states_kept(
        answer: Features, reader: Reader, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[Sequence[State]]:
        async with closing(read(answer, reader, collection, query, at)) as found:
            async for states in found:
                ends = [(int(state.xyz.get("txn_next") or 0), state) for state in states]
                yield [state for end, state in ends if end == 0 or end > oldest_txn]

    return states_kept


async def count_features(target: Target, request: CountFeatures, event: Event) -> Count:
    """Count the features that match a query."""
    reader, at = await place(target, request.ref)
    try:
        return Count(await reader.count(target.collection.id, request.query, at))
    except CollectionNotFound:
        await check_version(target, at)
        return Count(0)


async def write(target: Target, request: WriteFeatures, event: Event) -> Written:
    """Modify features."""
    return await write_features(target, request, event.context, event.space.id)


async def delete(target: Target, request: DeleteFeatures, event: Event) -> Deleted:
    """Delete the features that match a query."""
    return await delete_features(target, request, event.context)


async def purge(target: Target, request: PurgeFeatures, event: Event) -> Purged:
    """Remove tombstones."""
    return await purge_features(target, request, event.context)


async def find_storages(target: Target, request: FindStorages, event: Event) -> Whereabouts:
    """Return the storage of the collection."""
    return Whereabouts((f"{target.storage.id} ({target.storage.number})",))


ANSWERS: Final[dict[type[Request[Any]], Callable[[Target, Any, Event], Awaitable[Any]]]] = {
    ReadFeatures: read_features,
    CountFeatures: count_features,
    FindStorages: find_storages,
    WriteFeatures: write,
    DeleteFeatures: delete,
    PurgeFeatures: purge,
    **READ_ANSWERS,
    **META_ANSWERS,
    **VERSION_ANSWERS,
}
"""Function for each request; other requests are sent upstream."""

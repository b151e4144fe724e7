"""Storage handler, the last one of most pipelines: a collection of a storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, TypeVar

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
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.handlers.read_only import ReadOnlyHandler
from naksha.hub.handlers.stored.meta import META_FUNCTIONS
from naksha.hub.handlers.stored.reads import READ_FUNCTIONS
from naksha.hub.handlers.stored.versions import VERSION_FUNCTIONS
from naksha.hub.pipeline.pipeline import Event, Pipeline, Setup
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    FindStorages,
    GetVersion,
    PurgeFeatures,
    ReadFeatures,
    Request,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import (
    Count,
    Deleted,
    Features,
    FeatureStorages,
    FixedVersion,
    Purged,
    Written,
    closing,
)
from naksha.hub.pipeline.targets import CollectionTarget, ResolvedTarget, fixed_version, resolve
from naksha.hub.write import delete_features, purge_features, write_features
from naksha.hub.write.conflicted_branches import is_for_solving, shown
from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.version import HEAD, AtSeq, VersionSelector
from naksha.spi.storage import StorageReader
from naksha.spi.support import chunks
from naksha.versioning import NameScope

R = TypeVar("R")
Read = Callable[
    [Features, StorageReader, str, Query, VersionSelector], AsyncIterator[Sequence[State]]
]


class StorageHandler:
    """Handler for all requests about one collection."""

    metric_name: ClassVar[str] = "StorageHandler"
    keeps_json: ClassVar[bool] = True

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
        self._target: CollectionTarget | None = None

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """Return the reference to the storage, the default one if none is named."""
        named = properties.get("storageId")
        if named is not None and not isinstance(named, str):
            raise InvalidArgument(
                "properties.storageId must be a string", field="properties.storageId"
            )
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
        kind = type(event.request)
        if kind not in _VERSION_READS and kind not in FUNCTIONS:
            return await event.send_upstream()
        return await self.answer(event.request, event)

    async def answer(self, request: Request[R], event: Event) -> R:
        """Return the response to a request that this handler supports."""
        kind = type(request)
        if kind in _VERSION_READS:
            read: R = await _VERSION_READS[kind](
                await self.resolved(event.context, request.ref), request, event
            )
            return read
        answer: R = await FUNCTIONS[kind](await self.target(), request, event)
        return answer

    async def resolved(self, context: RequestContext, ref: str) -> ResolvedTarget:
        """Return the collection at the version of a reference.

        A request resolves a reference to a fixed version once.
        """
        key = (self, ref)
        known: ResolvedTarget | None = context.targets.get(key)
        if known is None:
            known = await resolve(await self.target(), ref)
            if known.at != HEAD:
                context.targets[key] = known
        return known

    async def target(self) -> CollectionTarget:
        """Return the open storage and the collection in it.

        It is cached, because a change of the storage's configuration creates a new handler.
        """
        if self._target is None:
            storage = await self._hub.storage(self._storage_id)
            self._target = CollectionTarget(
                storage,
                self._collection,
                self._scope,
                self._min_version,
                self._auto_create,
                self._storage_id,
                self._dateline,
            )
        return self._target


async def read_features(resolved: ResolvedTarget, request: ReadFeatures, event: Event) -> Features:
    """Return the features of a query; none before the first write to the collection."""
    target, query = resolved.target, request.query
    if query.space is None:
        query = msgspec.structs.replace(query, space=event.space.id)
    read: Read = _pages if request.paged else _any_order
    if is_for_solving(request.ref):
        read = _with_conflict_marks(read)
    if query.states is States.ALL and target.min_version:
        read = _ended_after(read, (await target.storage.resolve(AtSeq(target.min_version))).txn)
    try:
        return await Features.with_first_read(
            lambda answer: read(answer, resolved.reader, resolved.collection_id, query, resolved.at)
        )
    except CollectionNotFound:
        await resolved.check_version()
        return Features.of(())


def _any_order(
    _: Features, reader: StorageReader, collection: str, query: Query, at: VersionSelector
) -> AsyncIterator[Sequence[State]]:
    """Return features up to the limit, in any order."""
    return reader.chunks(collection, query, at)


async def _pages(
    answer: Features, reader: StorageReader, collection: str, query: Query, at: VersionSelector
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


def _with_conflict_marks(read: Read) -> Read:
    """Wrap a read so that features are marked for clients that resolve conflicts."""

    async def states_shown(
        answer: Features, reader: StorageReader, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[Sequence[State]]:
        async with closing(read(answer, reader, collection, query, at)) as found:
            async for states in found:
                yield [shown(state) for state in states]

    return states_shown


def _ended_after(read: Read, oldest_txn: int) -> Read:
    """Wrap a read so that states which ended before the oldest kept version are left out."""

    async def states_kept(
        answer: Features, reader: StorageReader, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[Sequence[State]]:
        async with closing(read(answer, reader, collection, query, at)) as found:
            async for states in found:
                ends = [(int(state.xyz.get("txn_next") or 0), state) for state in states]
                yield [state for end, state in ends if end == 0 or end > oldest_txn]

    return states_kept


async def _count_features(read: ResolvedTarget, request: CountFeatures, event: Event) -> Count:
    """Count the features that match a query."""
    try:
        return Count(await read.reader.count(read.collection_id, request.query, read.at))
    except CollectionNotFound:
        await read.check_version()
        return Count(0)


async def write(target: CollectionTarget, request: WriteFeatures, event: Event) -> Written:
    """Modify features."""
    return await write_features(target, request, event.context, event.space.id)


async def delete(target: CollectionTarget, request: DeleteFeatures, event: Event) -> Deleted:
    """Delete the features that match a query."""
    return await delete_features(target, request, event.context)


async def purge(target: CollectionTarget, request: PurgeFeatures, event: Event) -> Purged:
    """Remove tombstones."""
    return await purge_features(target, request, event.context)


async def _find_storages(
    target: CollectionTarget, request: FindStorages, event: Event
) -> FeatureStorages:
    """Return the storage of the collection."""
    return FeatureStorages((f"{target.storage.id} ({target.storage.number})",))


async def version(
    target: CollectionTarget, request: GetVersion, event: Event
) -> FixedVersion | None:
    """Look up the version of a reference."""
    return await fixed_version(target, request)


_VERSION_READS: Final[
    dict[type[Request[Any]], Callable[[ResolvedTarget, Any, Event], Awaitable[Any]]]
] = {
    ReadFeatures: read_features,
    CountFeatures: _count_features,
    **READ_FUNCTIONS,
}
"""Function for each request that reads one version."""
FUNCTIONS: Final[
    dict[type[Request[Any]], Callable[[CollectionTarget, Any, Event], Awaitable[Any]]]
] = {
    FindStorages: _find_storages,
    GetVersion: version,
    WriteFeatures: write,
    DeleteFeatures: delete,
    PurgeFeatures: purge,
    **META_FUNCTIONS,
    **VERSION_FUNCTIONS,
}
"""Function for each of the other requests; a request without any is sent upstream."""


_PLAIN: Final = (Authorization, ReadOnlyHandler, StorageHandler)
"""Handlers that show all features of the space's collection, unchanged."""


def plain_storage(pipeline: Pipeline) -> StorageHandler | None:
    """Return the storage handler of a pipeline without handlers that change or hide features."""
    handlers = [stage.handler for stage in pipeline.stages]
    last = handlers[-1] if handlers else None
    if isinstance(last, StorageHandler) and all(isinstance(each, _PLAIN) for each in handlers):
        return last
    return None

"""A branch with the interface of a storage, so that the storage suite can run on it.

Collections are made and changed on main, each in a transaction of its own; the branch of a
collection begins when it was made. Everything else is what the branch does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.transaction import MAIN, MAIN_LOG, LogFilter, Transaction
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.storage import BranchLayer, Split, StatePage, Storage, WriteSession
from naksha.testing.storage.suite_support import APP, point

T = TypeVar("T")


class BranchStorage:
    """See the module. `begins` (the txn that each branch begins at) may be shared by several."""

    def __init__(self, main: Storage, overlay: int, begins: dict[str, int], *, stirs: bool) -> None:
        self.main = main
        self.overlay = overlay
        self.begins = begins
        self._stirs = stirs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view(None), name)

    def _view(self, collection: str | None) -> Storage:
        last = max(self.begins.values(), default=0)
        begin = self.begins.get(collection or "", last)
        return self.main.on_branch((BranchLayer(self.overlay, None), BranchLayer(MAIN, begin)))

    async def made(self, info: CollectionInfo) -> CollectionInfo:
        """A collection on main, where something then comes and goes, unseen by the branch."""
        made = await self.main.run(lambda session: session.create_collection(info), APP)
        self.begins[info.id] = (await self.main.resolve(HEAD)).txn
        if self._stirs:
            await self._stir(info)
        return made

    async def _stir(self, info: CollectionInfo) -> None:
        ids = ("x", "y", "a", "b", "k001")
        steps: tuple[Callable[[WriteSession], Awaitable[object]], ...] = (
            lambda s: s.create(info.id, [point(key, 1, 1, n="main") for key in ids]),
            lambda s: s.delete(info.id, ids),
            lambda s: s.purge(info.id, ids),
        )
        for step in steps:
            await self.main.run(step, APP)

    async def close(self) -> None:
        await self.main.close()

    # ---- As the branch of a collection sees it -----------------------------------------------

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        return await self._view(collection).collection(collection, dropped=dropped)

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        return await self._view(collection).page(collection, query, at)

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        async for state in self._view(collection).states(collection, query, at):
            yield state

    async def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        async for states in self._view(collection).chunks(collection, query, at):
            yield states

    async def found(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        view = self._view(collection)
        return await view.matching_states(collection, query, at, sort=sort, after=after)

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        return await self._view(collection).count(collection, query, at)

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        return await self._view(collection).tile(collection, query, at, tile)

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        return await self._view(collection).statistics(collection, at, fast=fast)

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        return await self._view(collection).resolve(at, collection)

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        return await self._view(collection).plan(collection, query, at, hidden=hidden)

    async def feature_size(self, collection: str) -> int:
        return await self._view(collection).feature_size(collection)

    async def partitioning(self, collection: str) -> dict[str, int]:
        return await self._view(collection).partitioning(collection)

    async def transactions(
        self, after: int = 0, limit: int = 1000, where: LogFilter = MAIN_LOG, **how: Any
    ) -> list[Transaction]:
        """Of main as well, where collections are made: versions have no holes."""
        if where.overlays == MAIN_LOG.overlays:
            where = msgspec.structs.replace(where, overlays=None)
        return await self.main.transactions(after, limit, where, **how)

    # ---- Writing -----------------------------------------------------------------------------

    @asynccontextmanager
    async def write(self, *who: Any, **when: Any) -> AsyncIterator[WriteSession]:
        async with self._view(None).write(*who, **when) as session:
            yield _session(self, session)

    async def run(self, work: Callable[[WriteSession], Awaitable[T]], *who: Any, **when: Any) -> T:
        return await self._view(None).run(
            lambda session: work(_session(self, session)), *who, **when
        )


class BranchSession:
    """A session on the branch whose changes of collections go to main."""

    def __init__(self, storage: BranchStorage, session: WriteSession) -> None:
        self._storage = storage
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        return await self._storage.made(info)

    async def change_collection(self, name: str, change: CollectionChange) -> CollectionInfo:
        return await self._storage.main.run(
            lambda session: session.change_collection(name, change), APP
        )


def _session(storage: BranchStorage, session: WriteSession) -> WriteSession:
    return cast(WriteSession, BranchSession(storage, session))

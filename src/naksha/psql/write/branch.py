"""View of a storage through a branch.

It uses the same connections and versions, reads through the branch's layers and writes to its top
overlay.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from naksha.model.identity.names import collection_not_found
from naksha.model.query import Query
from naksha.model.version import HEAD, VersionSelector
from naksha.psql.bulk import splits
from naksha.psql.bulk.apply_staged import StagedWrites
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.maintenance.partitioning import sampled_size
from naksha.psql.read import versions
from naksha.psql.read.layers import Branch, sources_of
from naksha.psql.read.statements import needs
from naksha.spi.branches import BranchView
from naksha.spi.query.plan import check_hidden
from naksha.spi.storage import Split

if TYPE_CHECKING:
    from naksha.psql.storage import PsqlStorage


class PsqlBranch(BranchView, StagedWrites):
    """Storage as seen from a branch; see `Storage.on_branch`.

    Replicas are not used: one that knows a version may still lack the tables of an overlay.
    """

    def __init__(
        self, main: PsqlStorage, branch: Branch, collections: Collection[str] | None
    ) -> None:
        super().__init__(main._facts)
        self._main: PsqlStorage = main
        self._branch = branch
        self._scope = collections
        self._connections = main._connections
        self._streams = main._streams
        self._info = main._info
        self._sequencer = main._sequencer
        self._clock = main._clock
        self._connect = main._connect
        self._days = main._days
        self._growth = main._growth

    async def close(self) -> None:
        """Do nothing: the storage is closed by its owner."""

    @property
    def _overlay(self) -> int:
        return self._branch[0].overlay

    @property
    def _server(self) -> DatabaseServer:
        return self._main._server

    async def _byte_size(self, collection: str, txn: int) -> int:
        async with self._connection() as connection:
            sources = await sources_of(connection, self._branch, collection, txn)
            return max([await sampled_size(connection, source.table) for source in sources])

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        check_hidden(query, hidden)
        await self._publish()
        async with self._connection() as connection:
            if await self._read_collection(connection, collection) is None:
                raise collection_not_found(collection)
            version = await versions.resolve(connection, at)
            sources = await sources_of(connection, self._branch, collection, version.txn)
            await versions.check_histories(connection, needs(sources, query))
            return await splits.plan_layers(
                connection, self._info.key, collection, query, version.txn, sources, hidden=hidden
            )

"""Bulk path of a staged write: fill 16 new tables of a collection that is new or empty.

One session draws the number and finally attaches the tables; meanwhile other connections fill and
index them, one leaf each. The tables are invisible until the session commits; if it does not, they
have no owner, and are swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, Retryable
from naksha.model.geo.tile_cells import merged
from naksha.psql.bulk.lanes import LANES, Lanes
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.sql import queries
from naksha.psql.write.session import PsqlSession

TABLES_AT_ONCE: Final = 100
"""Parts that one transaction reads from: each of them is locked until its end."""
FEATURES_PER_LANE: Final = 20_000
"""Features per connection below which a further connection is not worth it."""


@dataclass(frozen=True)
class StagedTable:
    """A staged part: its table, and its number of features in each leaf."""

    table: str
    counts: list[int]


async def fill(
    session: PsqlSession,
    server: DatabaseServer,
    info: CollectionInfo,
    parts: Sequence[StagedTable],
    *,
    is_new: bool,
) -> int:
    """Fill the collection, and return the number of features.

    Raises:
        Retryable: The collection is not new or not empty any more.
    """
    lanes = await Lanes.open(server, _lanes_for(parts))
    try:
        load = await lanes.own()
        return await _CollectionFill(session, lanes, load, info, parts).run(is_new)
    finally:
        # Tables that are not attached by then have no owner any more, and are swept.
        await lanes.close()


def _lanes_for(parts: Sequence[StagedTable]) -> int:
    features = sum(sum(part.counts) for part in parts)
    return max(1, min(LANES, features // FEATURES_PER_LANE))


class _CollectionFill:
    """One load; its number is part of the names of its tables."""

    def __init__(
        self,
        session: PsqlSession,
        lanes: Lanes,
        load: int,
        info: CollectionInfo,
        parts: Sequence[StagedTable],
    ) -> None:
        self._session = session
        self._lanes = lanes
        self._load = load
        self._info = info
        self._parts = parts

    async def run(self, is_new: bool) -> int:
        begun = await self._begin(is_new)
        totals = [sum(part.counts[leaf] for part in self._parts) for leaf in range(len(LEAVES))]
        firsts = [begun["first_i"] + before for before in accumulate(totals, initial=0)]

        async def work(connection: Direct, leaf: int) -> Any:
            await connection.fetchval(queries()["stage_create_leaf"], self._load, LEAVES[leaf])
            await self._fill(connection, leaf, firsts[leaf], begun)
            return await connection.fetchrow(
                queries()["staged_index"], self._load, LEAVES[leaf], self._info.points_only
            )

        loaded = await self._lanes.each(work)
        features: int = sum(row["features"] for row in loaded)
        await self._session.call(
            "bulk_finish",
            self._info.id,
            self._info.id,
            self._load,
            firsts[-1] - 1,
            features,
            [row["area"] for row in loaded],
            _merged_cells(loaded),
        )
        return features

    async def _begin(self, is_new: bool) -> Any:
        settings = msgspec.json.encode(self._info).decode()
        known = None if is_new else settings
        try:
            (begun,) = await self._session.call(
                "bulk_begin", self._info.id, self._info.id, settings, known
            )
        except Conflict as error:
            raise Retryable(
                f"Another transaction wrote to collection {self._info.id!r} during the load; "
                "repeat the load",
                collection_id=self._info.id,
            ) from error
        return begun

    async def _fill(self, connection: Direct, leaf: int, first_i: int, begun: Any) -> None:
        """Fill a leaf from all parts, in groups whose tables one transaction can lock."""
        for start in range(0, len(self._parts), TABLES_AT_ONCE):
            some = self._parts[start : start + TABLES_AT_ONCE]
            counts = [part.counts[leaf] for part in some]
            numbers = [first_i + before for before in accumulate(counts, initial=0)]
            first_i = numbers.pop()
            await connection.fetchval(
                queries()["staged_fill"],
                self._load,
                LEAVES[leaf],
                [part.table for part in some],
                numbers,
                counts,
                begun["mark"],
                begun["after_i"],
            )


def _merged_cells(loaded: Iterable[Any]) -> list[int]:
    """Return the tile cells of all leaves."""
    return sorted(merged(cell for row in loaded for cell in row["cells"]))

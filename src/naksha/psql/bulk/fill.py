"""Filling a collection that is new or empty with what is staged: the bulk path of 16 tables.

One session draws the number and in the end attaches the tables; other connections fill and index
them meanwhile, each leaf on its own. Nobody sees them before the session commits; when it does not,
they belong to nobody, and are swept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, Retryable
from naksha.psql.bulk.bulk_writer import LANES, Lanes
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.servers import Server
from naksha.psql.sql import queries
from naksha.psql.write.session import PsqlSession

TABLES_AT_ONCE: Final = 100
"""Parts that one transaction reads from: each of them is locked until its end."""
FEATURES_PER_LANE: Final = 20_000
"""For fewer features than that a further connection is not worth it."""


@dataclass(frozen=True)
class Part:
    """A part that is there: its table, and how many features it has of each leaf."""

    table: str
    counts: list[int]


async def fill(
    session: PsqlSession,
    server: Server,
    info: CollectionInfo,
    parts: Sequence[Part],
    *,
    is_new: bool,
) -> int:
    """Fill the collection; gives the number of features. When it is not new or not empty any more
    that is Retryable."""
    lanes = await Lanes.open(server, _lanes_for(parts))
    try:
        load = await lanes.own()
        return await _Filling(session, lanes, load, info, parts).run(is_new)
    finally:
        # What is not attached by then has no owner any more, and is swept.
        await lanes.close()


def _lanes_for(parts: Sequence[Part]) -> int:
    features = sum(sum(part.counts) for part in parts)
    return max(1, min(LANES, features // FEATURES_PER_LANE))


class _Filling:
    """One load; its number is that of its tables."""

    def __init__(
        self,
        session: PsqlSession,
        lanes: Lanes,
        load: int,
        info: CollectionInfo,
        parts: Sequence[Part],
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
        areas = [row["area"] for row in loaded]
        await self._session.call(
            "bulk_finish", self._info.id, self._info.id, self._load, firsts[-1] - 1, features, areas
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
                "Somebody else wrote to the collection", collection_id=self._info.id
            ) from error
        return begun

    async def _fill(self, connection: Direct, leaf: int, first_i: int, begun: Any) -> None:
        """What is staged for a leaf, each time from so many parts that their locks can be had."""
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

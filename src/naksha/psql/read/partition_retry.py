"""Consistent reads of a history that gets new partitions.

A statement is planned before it takes its snapshot. When a partition for a new day is created in
between, the rows that moved there are gone from HEAD, and the plan does not contain the partition:
they would be missing from the result. A transaction that has read the history before does not
notice new partitions at all. So a reader compares the partitions after the read with those before,
and reads again if they differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from naksha.psql.connection.driver import Connection
from naksha.psql.read.versions import Partitions, check_histories

T = TypeVar("T")


class SteadyHistory:
    """Known partitions of each collection.

    A transaction that lasts longer than a statement needs one of its own.
    """

    def __init__(self) -> None:
        self._known: dict[str, Partitions] = {}

    async def read(
        self,
        connection: Connection,
        wanted: Sequence[tuple[str, int | None]],
        read: Callable[[], Awaitable[T]],
    ) -> T:
        """Run `read` until it has seen all partitions of some tables; return its result.

        Each table comes with the transaction that it is read at.

        Raises:
            Expired: History that is needed was dropped, perhaps during the read.
        """
        if not all(table in self._known for table, _ in wanted):
            self._known |= await check_histories(connection, wanted)
        known = {table: self._known[table] for table, _ in wanted}
        while True:
            result = await read()
            now = await check_histories(connection, wanted)
            self._known |= now
            if now == known:
                return result
            known = now

"""Reading the history while it gets new partitions.

A statement is planned before it takes its snapshot. When a day of the history is made in between,
the rows that went there are gone from HEAD and the plan does not know the day: they would be
missing from the answer. And a transaction that has read the history before does not notice new
partitions of it at all. So who reads looks afterwards whether the partitions are those that were
there before, and reads again if not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from naksha.psql.connection.driver import Connection
from naksha.psql.read.versions import Partitions, check_histories

T = TypeVar("T")


class SteadyHistory:
    """What is known of the partitions of each collection; one for each transaction that lasts
    longer than a statement."""

    def __init__(self) -> None:
        self._known: dict[str, Partitions] = {}

    async def read(
        self,
        connection: Connection,
        wanted: Sequence[tuple[str, int | None]],
        read: Callable[[], Awaitable[T]],
    ) -> T:
        """What `read` gives, done with all the partitions there are of some tables, each with the
        transaction that it is read at.

        Raises:
            Expired: History that is wanted was dropped, perhaps while we read.
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

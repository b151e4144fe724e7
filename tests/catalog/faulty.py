"""A catalog in memory whose conditional writes of objects fail as a test specifies."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable

from naksha.memory import MemoryCatalog
from naksha.model.errors import OutcomeUnknown, Unavailable
from naksha.spi.catalog import ObjectRow


class Fault(enum.Enum):
    """Outcome of a call."""

    REFUSED = "it is not carried out, and fails with an error"
    LOST = "it is not carried out, and the caller cannot know"
    APPLIED = "it is carried out, and the caller cannot know"
    LATE = "it is carried out some time later, and the caller cannot know"
    HANGS = "it never returns"


class Faulty(MemoryCatalog):
    """The next conditional writes have these faults; the others have none."""

    def __init__(self, catalog: MemoryCatalog, *faults: Fault | None) -> None:
        super().__init__(catalog._tables)
        self.faults = list(faults)
        self._late: list[Callable[[], Awaitable[bool]]] = []

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return await self._call(lambda: MemoryCatalog.insert(self, realm, row))

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        return await self._call(lambda: MemoryCatalog.replace(self, realm, row, expected_token))

    async def come_true(self) -> list[bool]:
        """Carry out what is late."""
        late, self._late = self._late, []
        return [await call() for call in late]

    async def _call(self, call: Callable[[], Awaitable[bool]]) -> bool:
        fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            return await call()
        if fault is Fault.REFUSED:
            raise Unavailable("The database is away")
        if fault is Fault.HANGS:
            await asyncio.Event().wait()
        if fault is Fault.APPLIED:
            await call()
        if fault is Fault.LATE:
            self._late.append(call)
        raise OutcomeUnknown("The answer is lost")

"""A catalog backend that injects the failures of a database behind a network.

    backend = FaultyCatalog(real, random_faults(Random(7), rate=0.05))

It wraps any backend; calls that are reported as applied are applied to that backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from enum import Enum, auto
from random import Random
from typing import TypeVar

from naksha.model.errors import OutcomeUnknown, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow, PointerRow, Scanned

T = TypeVar("T")


class Fault(Enum):
    """Kinds of faults of a call."""

    REFUSED = auto()
    """Nothing was done, and the caller knows it."""
    LOST_REQUEST = auto()
    """Nothing was done, but the caller cannot know."""
    LOST_ANSWER = auto()
    """The call was applied, but the caller cannot know."""
    LATE = auto()
    """The caller cannot know, and the call is applied some time later."""
    PARTIAL = auto()
    """A bulk write stopped half-way; for other calls the same as LOST_REQUEST."""
    DELAY = auto()
    """The call succeeds after a delay."""


FaultPlan = Callable[[str], Fault | None]
"""Returns the fault of the next call of the given name, or None."""
DELAY_S = 0.01


def random_faults(random: Random, rate: float) -> FaultPlan:
    """Return a plan with a random fault in the given share of all calls."""
    faults = list(Fault)
    return lambda _: random.choice(faults) if random.random() < rate else None


def scripted_faults(**faults: Sequence[Fault | None]) -> FaultPlan:
    """Return a plan with the given faults for the first calls by name, and none afterwards."""
    left = {name: list(script) for name, script in faults.items()}
    return lambda name: left[name].pop(0) if left.get(name) else None


class FaultyCatalog:
    """A backend whose calls fail according to a plan."""

    def __init__(self, backend: CatalogBackend, plan: FaultPlan) -> None:
        self.name = backend.name
        self.deletes_realms = backend.deletes_realms
        self.plan = plan
        self.injected = 0
        self._backend = backend
        self._late: set[asyncio.Task[object]] = set()

    async def settled(self) -> None:
        """Wait until all late calls are applied."""
        while self._late:
            await asyncio.wait(self._late)

    async def close(self) -> None:
        await self.settled()
        await self._backend.close()

    async def now_us(self) -> int:
        return await self._backend.now_us()

    # ---- Reads -------------------------------------------------------------------------------

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        await self._reading("fetch_pointers")
        return await self._backend.fetch_pointers(realm, names)

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        await self._reading("list_pointers")
        return await self._backend.list_pointers(realm, prefix, after, limit)

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        await self._reading("fetch")
        return await self._backend.fetch(realm, keys)

    def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        return self._backend.scan()

    async def _reading(self, name: str) -> None:
        fault = self.plan(name)
        if fault is None:
            return
        self.injected += 1
        await asyncio.sleep(DELAY_S)
        if fault is not Fault.DELAY:
            raise Unavailable(f"{name}: injected")

    # ---- Writes ------------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self._writing("create_pointer", self._backend.create_pointer, realm, row)

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        return await self._writing("create_pointers", self._backend.create_pointers, realm, rows)

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        swap = self._backend.swap_pointer
        return await self._writing("swap_pointer", swap, realm, expected, row)

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        return await self._writing("delete_pointer", self._backend.delete_pointer, realm, expected)

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        async def partly() -> None:
            await self._backend.write(realm, rows[: len(rows) // 2])

        await self._writing("write", self._backend.write, realm, rows, partly=partly)

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        await self._writing("delete", self._backend.delete, realm, keys)

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return await self._writing("insert", self._backend.insert, realm, row)

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        return await self._writing("replace", self._backend.replace, realm, row, expected_token)

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        return await self._writing("delete_if", self._backend.delete_if, realm, key, expected_token)

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        async def partly() -> None:
            await self._backend.write(realm, rows[: len(rows) // 2])

        publish = self._backend.publish
        return await self._writing("publish", publish, realm, rows, expected, row, partly=partly)

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        return await self._writing("delete_scanned", self._backend.delete_scanned, rows)

    async def delete_realms(self, realms: Collection[str]) -> None:
        await self._writing("delete_realms", self._backend.delete_realms, realms)

    async def _writing(
        self,
        name: str,
        call: Callable[..., Awaitable[T]],
        *arguments: object,
        partly: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        fault = self.plan(name)
        if fault is None:
            return await call(*arguments)
        self.injected += 1
        if fault is Fault.DELAY:
            await asyncio.sleep(DELAY_S)
            return await call(*arguments)
        if fault is Fault.REFUSED:
            raise Unavailable(f"{name}: injected")
        if fault is Fault.LOST_ANSWER:
            await call(*arguments)
        elif fault is Fault.PARTIAL and partly is not None:
            await partly()
        elif fault is Fault.LATE:
            self._do_late(call, arguments)
        raise OutcomeUnknown(f"{name}: injected {fault.name}")

    def _do_late(self, call: Callable[..., Awaitable[T]], arguments: Sequence[object]) -> None:
        async def later() -> None:
            await asyncio.sleep(DELAY_S)
            await call(*arguments)

        task: asyncio.Task[object] = asyncio.create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

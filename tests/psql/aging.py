"""A storage that ages fast: its clock is moved day by day while features are written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query, States
from naksha.model.version import AtSeq, Version
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.storage import WriteSession
from tests.psql.support import connect_to

Snapshot = dict[str, list[bytes]]


def ms(day: date, hour: int = 12) -> int:
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp() * 1000)


def place(feature_id: str, n: int) -> dict[str, Any]:
    where = {"type": "Point", "coordinates": [(n * 37) % 360 - 180, (n * 17) % 180 - 90]}
    return {"type": "Feature", "id": feature_id, "geometry": where, "properties": {"n": n}}


class DayClock:
    """Stands at noon of a day."""

    def __init__(self, day: date) -> None:
        self.day = day

    def now_ms(self) -> int:
        return ms(self.day)


class Aging:
    """A storage with its clock, a connection for plain SQL, and all versions written so far."""

    def __init__(self, dsn: str, storage: PsqlStorage, clock: DayClock, plain: Direct) -> None:
        self.dsn = dsn
        self.storage = storage
        self.clock = clock
        self._begun: set[str] = set()
        self.plain = plain
        self.versions: list[Version] = []

    async def create(self, name: str = "roads", **settings: Any) -> None:
        info = CollectionInfo(id=name, **settings)
        await self.storage.run(lambda session: session.create_collection(info), "app")

    async def write(self, name: str = "roads") -> Version:
        """One transaction on the clock's day: a feature that always changes, one that is new, one
        that is deleted, and one that comes back. The history has a partition of the first day,
        although new features would not make it."""
        n = len(self.versions)
        if name not in self._begun:
            self._begun.add(name)
            values = (name, self.clock.now_ms())
            await self.plain.execute("SELECT naksha_prepare_history($1, 0, $2)", *values)

        async def work(session: WriteSession) -> int:
            await session.upsert(name, [place("always", n), place(f"new-{n}", n)])
            await session.delete(name, [f"new-{n - 2}"])
            await session.upsert(name, [place(f"new-{n - 4}", n)])
            assert session.txn is not None
            return session.txn

        txn = await self.storage.run(work, "app")
        version = await self.storage.wait_published(txn)
        assert version is not None
        self.versions.append(version)
        return version

    async def write_days(self, first: date, count: int, step: int = 1, name: str = "roads") -> None:
        for n in range(count):
            self.clock.day = first + timedelta(days=n * step)
            await self.write(name)

    async def at(self, version: Version, name: str = "roads") -> Snapshot:
        """Everything that can be read of a collection at a version."""
        found = {}
        for kind in States:
            page = await self.storage.page(name, Query(states=kind), AtSeq(version.seq_number))
            found[kind.name] = sorted(state.raw for state in page.states)
        return found

    async def everything(self, name: str = "roads") -> list[Snapshot]:
        return [await self.at(version, name) for version in self.versions]

    async def partitions(self, parent: str = "roads_hst") -> list[str]:
        """The partitions' names without the parent's."""
        rows = await self.plain.fetch("SELECT name FROM naksha_partitions($1)", parent)
        return [row["name"].removeprefix(parent + "_") for row in rows]

    async def tables(self) -> set[str]:
        rows = await self.plain.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'naksha'::regnamespace"
            " AND relkind IN ('r', 'p')"
        )
        return {row["relname"] for row in rows}


@asynccontextmanager
async def aging_storage(dsn: str, first: date) -> AsyncIterator[Aging]:
    clock = DayClock(first)
    storage = await PsqlStorage.open(dsn, "test", clock=clock)
    plain = await connect_to(dsn)
    try:
        yield Aging(dsn, storage, clock, plain)
    finally:
        plain.terminate()
        await storage.close()

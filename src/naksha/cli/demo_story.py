"""Steps of the demonstration, and their results: a small town, edited by four people."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from naksha.cli import demo_town as town
from naksha.cli import plain_sql
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, NotSupported
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import Transaction
from naksha.model.version import HEAD, AtSeq, Version, VersionSelector
from naksha.spi.storage import Storage, WriteSession

T = TypeVar("T")
COLLECTION: Final = "town"
WATCHED: Final = "town-hall"
"""The feature whose history is shown."""
_HISTORY_MAX: Final = 100


class DemoLogEntry(msgspec.Struct, frozen=True):
    """An entry of the change log."""

    version: int | None
    txn: str
    started_ms: int
    app_id: str
    author: str | None
    message: str | None
    created: int
    updated: int
    deleted: int


class TownSnapshot(msgspec.Struct, frozen=True):
    """The whole map at a version."""

    version: int
    features: list[dict[str, Any]]


class DemoConflict(msgspec.Struct, frozen=True):
    """A conflict: the error, the state that was sent, and the current state."""

    code: str
    message: str
    sent: dict[str, Any]
    head: dict[str, Any] | None


class PlainEdit(msgspec.Struct, frozen=True):
    """The edit through the database's shell; `skipped` says why it was not possible."""

    script: str
    skipped: str | None = None


class Timing(msgspec.Struct, frozen=True):
    """Duration of a step; `count` is the number of features written or read."""

    step: str
    count: int
    ms: float


class DemoResults(msgspec.Struct, kw_only=True):
    """All results of the demonstration."""

    storage: str
    location: str
    schema: str | None
    collection: str
    changes: list[DemoLogEntry]
    then: TownSnapshot
    now: TownSnapshot
    history: list[dict[str, Any]]
    clash: DemoConflict
    plain_edit: PlainEdit
    timings: list[Timing]


class DemoRunner:
    """Runs the demonstration step by step and measures each step."""

    def __init__(self, storage: Storage, location: str, schema: str | None) -> None:
        self._storage = storage
        self._location = location
        self._schema = schema
        self._collection = COLLECTION
        self._timings: list[Timing] = []

    async def run(self, shown_location: str) -> DemoResults:
        self._collection = await self._free_name()
        before = await self._storage.resolve(HEAD)
        first = await self._found_town()
        before_plain = await self._edit_town(first)
        plain_edit = await self._edit_plainly()
        clash = await self._clash(before_plain)
        then = await self._snapshot("read the whole map at an older version", AtSeq(first))
        now = await self._snapshot("read the whole map at the last version", HEAD)
        history = await self._history()
        changes = await self._changes(before)
        return DemoResults(
            storage=self._storage.id,
            location=shown_location,
            schema=self._schema,
            collection=self._collection,
            changes=changes,
            then=then,
            now=now,
            history=history,
            clash=clash,
            plain_edit=plain_edit,
            timings=self._timings,
        )

    async def _free_name(self) -> str:
        """Return a collection name that is free, also if the demonstration has run before."""
        taken = {info.id for info in await self._storage.collections(dropped=True)}
        names = (COLLECTION, *(f"{COLLECTION}_{n}" for n in range(2, len(taken) + 3)))
        return next(name for name in names if name not in taken)

    async def _timed(self, step: str, count: int, work: Awaitable[T]) -> T:
        begin = time.perf_counter()
        result = await work
        self._timings.append(Timing(step, count, round((time.perf_counter() - begin) * 1000, 1)))
        return result

    async def _write(
        self,
        step: str,
        actor: tuple[str, str],
        message: str,
        count: int,
        work: Callable[[WriteSession], Awaitable[Any]],
    ) -> int:
        """Run one transaction and return its number."""

        async def all_of_it(session: WriteSession) -> int:
            await work(session)
            await session.message("why", message)
            assert session.txn is not None
            return session.txn

        app_id, author = actor
        return await self._timed(step, count, self._storage.run(all_of_it, app_id, author))

    async def _found_town(self) -> int:
        """Write the first three transactions; return the version after them."""
        name = self._collection
        firsts = [*town.streets(), *town.houses(), town.town_hall()]

        async def survey(session: WriteSession) -> None:
            await session.create_collection(CollectionInfo(id=name))
            await session.create(name, firsts)

        async def open_shops(session: WriteSession) -> None:
            await session.create(name, town.shops())
            renamed = town.place(WATCHED, "hall", "Old Town Hall", town.LANE_X + 2, 2)
            await session.update(name, [renamed])

        await self._write(
            "create the collection and its first features",
            ("survey", "anna"),
            "First survey",
            len(firsts),
            survey,
        )
        await self._write(
            "create trees",
            ("tree-register", "ben"),
            "The avenue, from the tree register",
            len(town.trees()),
            lambda session: session.create(name, town.trees()),
        )
        txn = await self._write(
            "create shops, update the town hall",
            ("editor", "chen"),
            "Shops opened",
            len(town.shops()) + 1,
            open_shops,
        )
        published = await self._timed(
            "wait until the last transaction is published", 0, self._storage.wait_published(txn)
        )
        assert published is not None
        return published.seq_number

    async def _edit_town(self, first: int) -> State:
        """Delete, restore and move features; return the watched one as of the version `first`."""
        name = self._collection
        felled = [*(tree["id"] for tree in town.trees()), "house-1", "house-2"]
        moved = town.place("shop-4", "shop", "Flowers", town.WIDTH - 4, 8)

        async def build_road(session: WriteSession) -> None:
            await session.create(name, [town.new_road()])
            await session.delete(name, felled)

        await self._write(
            "create a road, delete the features in its way",
            ("editor", "anna"),
            "New Road: the avenue and two houses go",
            len(felled) + 1,
            build_road,
        )
        await self._write(
            "restore three trees",
            ("editor", "ben"),
            "Three trees may stay",
            3,
            lambda session: session.restore(name, ["tree-1", "tree-2", "tree-3"]),
        )
        await self._write(
            "move a shop",
            ("editor", "chen"),
            "Flowers moved to New Road",
            1,
            lambda session: session.update(name, [moved]),
        )
        return (await self._read(Query(ids=(WATCHED,)), AtSeq(first)))[0]

    async def _edit_plainly(self) -> PlainEdit:
        variables = {"schema": self._schema or "", "collection": self._collection}
        script = plain_sql.script(self._location, "plain_edit", variables)
        try:
            work = plain_sql.run(self._location, script)
            await self._timed(f"edit through {script.shell}, including process start", 2, work)
        except NotSupported as error:
            return PlainEdit(script.text, error.message)
        return PlainEdit(script.text)

    async def _clash(self, base: State) -> DemoConflict:
        """Write a state that is based on an outdated one, which must fail."""
        if await self._head_is(base):
            newer = town.place(WATCHED, "hall", "Fire Station", town.LANE_X + 2, 2)
            await self._write(
                "update the town hall",
                ("editor", "dora"),
                "The fire station moves into the town hall",
                1,
                lambda session: session.update(self._collection, [newer]),
            )
        sent = msgspec.json.decode(base.raw)
        sent["properties"]["name"] = "Museum"
        try:
            async with self._storage.write("editor", "ben") as session:
                await session.update(self._collection, [sent])
        except Conflict as error:
            return DemoConflict(error.code, error.message, sent, error.head)
        raise AssertionError("a state that is not HEAD was overwritten")

    async def _head_is(self, base: State) -> bool:
        head = await self._read(Query(ids=(WATCHED,)), HEAD)
        return head[0].uuid == base.uuid

    async def _read(self, query: Query, at: VersionSelector) -> list[State]:
        return (await self._storage.page(self._collection, query, at)).states

    async def _snapshot(self, step: str, at: VersionSelector) -> TownSnapshot:
        version = await self._storage.resolve(at, self._collection)
        begin = time.perf_counter()
        states = await self._read(Query(), AtSeq(version.seq_number))
        ms = round((time.perf_counter() - begin) * 1000, 1)
        self._timings.append(Timing(step, len(states), ms))
        features = sorted((state.feature for state in states), key=lambda f: str(f["id"]))
        return TownSnapshot(version.seq_number, features)

    async def _history(self) -> list[dict[str, Any]]:
        query = Query(ids=(WATCHED,), states=States.ALL, limit=_HISTORY_MAX)
        states = await self._timed("read the history of one feature", 1, self._read(query, HEAD))
        return [state.feature for state in states]

    async def _changes(self, before: Version) -> list[DemoLogEntry]:
        work = self._storage.transactions(before.seq_number)
        log = await self._timed("read the change log", 0, work)
        return [change_of(entry) for entry in log]


def change_of(transaction: Transaction) -> DemoLogEntry:
    """Convert a transaction to an entry of the change log."""
    signals: Sequence[Any] = transaction.signals
    texts = [signal.text for signal in signals if signal.action == "MESSAGE" and signal.text]
    return DemoLogEntry(
        version=transaction.seq_number,
        txn=str(transaction.txn),
        started_ms=transaction.started_ms,
        app_id=transaction.app_id,
        author=transaction.author,
        message="; ".join(texts) or None,
        created=sum(signal.created for signal in signals),
        updated=sum(signal.updated for signal in signals),
        deleted=sum(signal.deleted for signal in signals),
    )

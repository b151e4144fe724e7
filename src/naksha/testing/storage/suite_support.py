"""Helpers of the conformance tests: handles, features, a clock, and shared fixtures.

A storage joins the suite by providing the fixtures `storage` and `make_storage` (`StorageMaker`);
see `naksha.testing.storage.suite`.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State, WriteOutcome
from naksha.model.transaction import Transaction
from naksha.model.version import HEAD, AtSeq, Version, VersionSelector
from naksha.spi.clock import Clock
from naksha.spi.storage import Feature, Storage, WriteSession

T = TypeVar("T")
APP = "test-app"
SECONDS = 1_000
DAY_MS = 86_400_000

SUITE_CHECKS_OFF = (
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.differing_executors,
)
"""Each example needs a few round trips to a server, on data that is shared on purpose.

One run may also contain the suite several times, once for each storage.
"""

_numbers = itertools.count(1)


class StorageMaker(Protocol):
    """Opens storages for a test and closes them when it ends."""

    async def __call__(
        self, *, beside: Storage | None = None, clock: Clock | None = None
    ) -> Storage:
        """Open a second instance on the data of `beside`, or a storage with new, empty data."""


class MovableClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def fresh_name(stem: str = "c") -> str:
    """Return a collection id that no other test uses."""
    return f"{stem}_{next(_numbers)}_x{uuid.uuid4().hex[:6]}x"


def feature(
    feature_id: str | None,
    geometry: Mapping[str, Any] | None = None,
    xyz: Mapping[str, Any] | None = None,
    **properties: Any,
) -> dict[str, Any]:
    """Return a feature; `properties` by name, without the client's namespace."""
    made: dict[str, Any] = {"type": "Feature", "geometry": geometry}
    if feature_id is not None:
        made["id"] = feature_id
    made["properties"] = properties if xyz is None else properties | {XYZ: dict(xyz)}
    return made


def point(feature_id: str, lon: float = 8.5, lat: float = 50.25, **properties: Any) -> Any:
    """Return a feature with a 2D point."""
    return feature(feature_id, {"type": "Point", "coordinates": [lon, lat]}, **properties)


def with_xyz(plain: Mapping[str, Any], **xyz: Any) -> dict[str, Any]:
    """Return the feature with members added to the client's namespace."""
    properties = dict(plain["properties"])
    return dict(plain) | {"properties": properties | {XYZ: properties.get(XYZ, {}) | xyz}}


def content(state: State | Mapping[str, Any]) -> dict[str, Any]:
    """Return a feature without its namespace."""
    plain = dict(state.feature if isinstance(state, State) else state)
    properties = dict(plain["properties"])
    properties.pop(XYZ, None)
    return plain | {"properties": properties}


def ids_of(states: Sequence[State]) -> list[str]:
    return [state.id for state in states]


def in_order(states: Iterable[State]) -> list[State]:
    """Return the states in the order of a query with a limit: by id, then by txn."""
    return sorted(states, key=lambda state: (state.id, state.txn))


def raw_of(states: Sequence[State]) -> list[bytes]:
    return [state.raw for state in states]


class Handle:
    """One collection of a storage, with short calls that each are one transaction."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = name

    # ---- Writing -----------------------------------------------------------------------------

    async def write(
        self,
        work: Callable[[WriteSession], Awaitable[T]],
        app: str = APP,
        author: str | None = None,
    ) -> T:
        return await self.storage.run(work, app, author)

    async def create(
        self, *features: Feature, app: str = APP, author: str | None = None
    ) -> list[WriteOutcome]:
        return await self.write(
            lambda session: session.create(self.name, features, returning=True, commit=True),
            app,
            author,
        )

    async def update(
        self, *features: Feature, app: str = APP, author: str | None = None, merge: bool = False
    ) -> list[WriteOutcome]:
        return await self.write(
            lambda session: session.update(
                self.name, features, merge=merge, returning=True, commit=True
            ),
            app,
            author,
        )

    async def upsert(
        self, *features: Feature, app: str = APP, author: str | None = None, merge: bool = False
    ) -> list[WriteOutcome]:
        return await self.write(
            lambda session: session.upsert(
                self.name, features, merge=merge, returning=True, commit=True
            ),
            app,
            author,
        )

    async def delete(
        self,
        *ids: str,
        app: str = APP,
        author: str | None = None,
        uuids: Sequence[str | None] | None = None,
    ) -> list[WriteOutcome]:
        return await self.write(
            lambda session: session.delete(
                self.name, ids, uuids=uuids, returning=True, commit=True
            ),
            app,
            author,
        )

    async def restore(
        self, *ids: str, app: str = APP, author: str | None = None
    ) -> list[WriteOutcome]:
        return await self.write(
            lambda session: session.restore(self.name, ids, returning=True, commit=True),
            app,
            author,
        )

    async def purge(self, *ids: str, app: str = APP) -> list[WriteOutcome]:
        await self.published()
        return await self.write(lambda session: session.purge(self.name, ids, commit=True), app)

    async def change(self, **changes: Any) -> CollectionInfo:
        change = CollectionChange(**changes)
        return await self.write(lambda session: session.change_collection(self.name, change))

    # ---- Reading -----------------------------------------------------------------------------

    async def states(self, query: Query | None = None, at: VersionSelector = HEAD) -> list[State]:
        query = query or Query()
        found = [state async for state in self.storage.states(self.name, query, at)]
        # Without a limit the order is unspecified.
        return found if query.limit is not None else in_order(found)

    async def live(self, at: VersionSelector = HEAD) -> list[State]:
        return await self.states(Query(), at)

    async def deleted(self, at: VersionSelector = HEAD) -> list[State]:
        return await self.states(Query(states=States.DELETED), at)

    async def all(self, at: VersionSelector = HEAD) -> list[State]:
        return await self.states(Query(states=States.ALL), at)

    async def get(self, feature_id: str, at: VersionSelector = HEAD) -> State:
        found = await self.states(Query(ids=(feature_id,)), at)
        assert ids_of(found) == [feature_id]
        return found[0]

    async def published(self) -> Version:
        """Wait for and return the version of the current committed state."""
        return await published(self.storage)


async def published(storage: Storage) -> Version:
    """Return the last version, once every committed transaction is published."""
    for _ in range(100):
        status = await storage.publication()
        if status.unpublished == 0:
            return await storage.resolve(HEAD)
        await storage.wait_published(status.last_txn + 1, 0.1)
    raise AssertionError(f"publication is held back: {await storage.publication()}")


async def new_collection(storage: Storage, **settings: Any) -> Handle:
    """Create a collection with a unique name."""
    info = CollectionInfo(id=settings.pop("id", None) or fresh_name(), **settings)
    await storage.run(lambda session: session.create_collection(info), APP)
    return Handle(storage, info.id)


async def log_after(storage: Storage, version: Version) -> list[Transaction]:
    """Return the transactions published after a version."""
    await published(storage)
    return await storage.transactions(version.seq_number)


async def one_transaction(storage: Storage, version: Version) -> Transaction:
    """Return the only transaction published after a version."""
    (transaction,) = await log_after(storage, version)
    return transaction


class _RolledBack(Exception):
    """Raised to leave a session and roll it back."""


async def rolled_back(
    storage: Storage, work: Callable[[WriteSession], Awaitable[object]], app: str = APP
) -> None:
    """Run `work` in a session and roll it back."""
    with contextlib.suppress(_RolledBack):
        async with storage.write(app) as session:
            await work(session)
            raise _RolledBack


def seq(version: Version) -> AtSeq:
    return AtSeq(version.seq_number)


# ---- Fixtures --------------------------------------------------------------------------------


@pytest.fixture
async def places(storage: Storage) -> Handle:
    """A new, empty collection with history."""
    return await new_collection(storage)


@pytest.fixture(scope="class")
async def shared(storage: Storage) -> Handle:
    """A collection shared by the tests of a class that write nothing or own their ids."""
    return await new_collection(storage)


@pytest.fixture
async def empty_storage(make_storage: StorageMaker) -> Storage:
    """A storage without any writes."""
    return await make_storage()

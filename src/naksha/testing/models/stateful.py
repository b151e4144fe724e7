"""A state machine that runs the same random operations on a storage and on the oracle.

Every result is compared: outcomes, errors, reads inside the session, concurrent reads outside it,
every published version, queries, pages and the log. Hypothesis shrinks a difference to a short
sequence that can be replayed. `run_machine` is the entry point; tests pass it a function that
opens an empty storage.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Conflict, Expired, InvalidArgument, NakshaError, NotFound
from naksha.model.query import Query, States
from naksha.model.state import State, WriteOutcome
from naksha.model.version import HEAD, AtSeq, VersionSelector
from naksha.spi.storage import Storage, StorageReader, WriteSession
from naksha.testing.models import strategies
from naksha.testing.models.brute_force import select
from naksha.testing.models.oracle import Oracle, OracleOutcome, OracleSession, short_id
from naksha.testing.models.oracle_state import OracleCollection
from naksha.testing.models.stateful_support import CoroutineRunner, OracleBinding, error_of
from naksha.testing.storage.suite_support import in_order, published, with_xyz

NAMES = ("a", "b", "c")
IDS = ("x", "y", "é", "e\u0301", "O'Brien", "p:x")
APPS = ("app-1", "app-2")
AUTHORS = (None, "ann", "bob")
PREFIX = "p:"
QUERIES = strategies.queries(IDS, [*APPS, "ann", "bob", "owner"])
FAR_FUTURE_MS = 4_102_444_800_000
ELSEWHERE = "elsewhere:a:2023:1:30:7"

# Operations and their weights. They are drawn in one rule, because Hypothesis would choose among
# several rules evenly and disable some for a whole example: hardly anything would be committed.
INSIDE = {
    "create": 8,
    "update": 10,
    "upsert": 8,
    "delete": 6,
    "restore": 4,
    "purge": 3,
    "make": 2,
    "switch_history": 1,
    "change_author": 1,
    "drop_or_restore": 1,
    "message": 2,
    "read_inside": 3,
    "end": 8,
}
OUTSIDE = {"begin": 30, "maintain": 1}
ANYWHERE = {"read_outside": 4, "ask": 4, "list_collections": 1}


class StorageMachine(RuleBasedStateMachine):
    """One example, on collections of a storage that earlier examples have used."""

    opener: ClassVar[Callable[[], Awaitable[Storage]]]
    driver: ClassVar[CoroutineRunner]
    storage: ClassVar[Storage]
    examples: ClassVar[itertools.count[int]]

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.binding = OracleBinding(self.storage.id)
        self.marked = f"m{next(self.examples)}_"
        self.base = self.driver(published(self.storage)).seq_number
        self.session: WriteSession | None = None
        self.mirror: OracleSession | None = None
        self.context: AbstractAsyncContextManager[WriteSession] | None = None

    # ---- Helpers -----------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the collections visible to the open session, or at HEAD without one."""
        return sorted(self.mirror.work if self.mirror else self.oracle.head)

    def work(self, name: str) -> OracleCollection:
        """Return a collection as the open session sees it."""
        assert self.mirror is not None
        return self.mirror.work[name]

    def names_with(self, what: str) -> list[str]:
        """Return the session's collections that have live or deleted features."""
        if self.mirror is None:
            return []
        return sorted(name for name, c in self.mirror.work.items() if getattr(c, what))

    def draw_name(self, data: st.DataObject, what: str | None = None) -> str:
        names = self.names_with(what) if what else self.names()
        return data.draw(st.sampled_from(names), label="collection")

    def draw_ids(self, data: st.DataObject, likely: list[str]) -> list[str]:
        """Draw some ids, mostly ones on which the operation has an effect."""
        some = bool(likely) and data.draw(st.sampled_from([True] * 9 + [False]), label="likely")
        pool = st.sampled_from(likely if some else IDS)
        return data.draw(st.lists(pool, min_size=1, max_size=3, unique=True), label="ids")

    def both(
        self,
        expect: Callable[[OracleSession], Any],
        call: Callable[[WriteSession], Any],
        count: int = 1,
    ) -> tuple[Any, Any] | None:
        """Run an operation on both; an error must be the same on both sides, and ends the session.

        If several features are wrong, either of their errors may be reported.
        """
        assert self.mirror is not None
        assert self.session is not None
        wanted, wanted_error = error_of(lambda: expect(self.mirror))
        found, error = error_of(lambda: self.driver(call(self.session)))
        if count == 1 or error is None or wanted_error is None:
            assert type(error) is type(wanted_error), (error, wanted_error)
        if error is None:
            return wanted, found
        assert isinstance(error, InvalidArgument | NotFound | Conflict), error
        self.leave(error)
        return None

    def leave(self, error: NakshaError | None = None) -> None:
        """Leave the session: roll it back after an error, otherwise commit it."""
        assert self.context is not None
        arguments = (None, None, None) if error is None else (type(error), error, None)
        context, self.session, self.context, self.mirror = self.context, None, None, None
        _, raised = error_of(lambda: self.driver(_left(context, *arguments)))
        assert raised is error
        self.binding.keep(error is None)

    def outcomes(
        self, collection: str, wanted: list[OracleOutcome], found: list[WriteOutcome]
    ) -> None:
        assert self.session is not None
        assert self.mirror is not None
        self.know_session()
        assert [(o.id, o.action) for o in found] == [(w[0], w[1]) for w in wanted]
        for (_, action, state), outcome in zip(wanted, found, strict=True):
            if state is None or (action == "RETAINED" and state.action == "DELETE"):
                continue
            assert outcome.version == state.version
            assert outcome.uuid is not None
            self.binding.bind(state.identity, outcome.uuid)
            if outcome.state is not None:
                self.binding.check(state, outcome.state, collection)

    def know_session(self) -> None:
        """Learn the open session's transaction number once it has written something."""
        if self.session is not None and self.mirror is not None:
            txn = self.session.txn
            if txn is not None:
                self.binding.txns[self.mirror.number] = txn

    def read(
        self, reader: StorageReader, name: str, query: Query, at: VersionSelector
    ) -> list[State]:
        async def read() -> list[State]:
            return in_order([state async for state in reader.states(name, query, at)])

        return self.driver(read())

    def draw_version(self, data: st.DataObject) -> int | None:
        """Draw HEAD, 0 or the number of any transaction of this example."""
        numbers = st.none() | st.integers(0, self.oracle.last)
        return data.draw(numbers, label="version")

    def selector(self, number: int | None) -> VersionSelector:
        return HEAD if number is None else AtSeq(self.base + number)

    def compare(self, name: str, kind: States, number: int | None) -> list[State] | None:
        """Read outside the session and compare; return None if both sides raise."""
        wanted, wanted_error = error_of(lambda: self.oracle.read(name, kind, number))
        at = self.selector(number)
        found, error = error_of(lambda: self.read(self.storage, name, Query(states=kind), at))
        assert type(error) is type(wanted_error), (error, wanted_error)
        if isinstance(error, Expired) and isinstance(wanted_error, Expired):
            assert error.oldest == self.base + (wanted_error.oldest or 0)
        if error is not None:
            return None
        self.binding.check_all(wanted, found, name)
        states: list[State] = found
        return states

    # ---- Transactions ------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        """Begin with one collection, so that operations have an effect from the start."""
        self.enter("app-1", None)
        self.make_collection(OracleCollection(self.marked + "a"))
        self.commit()

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Run a random operation that is possible now."""
        possible = ANYWHERE | (OUTSIDE if self.mirror is None else INSIDE)
        if self.mirror is not None:
            lacking = {
                "make": len(self.names()) == len(NAMES),
                "update": not self.names_with("live"),
                "delete": not self.names_with("live"),
                "restore": not self.names_with("deleted"),
                "purge": not self.names_with("deleted"),
            }
            possible = {name: n for name, n in possible.items() if not lacking.get(name)}
        names = [name for name, weight in possible.items() for _ in range(weight)]
        getattr(self, data.draw(st.sampled_from(names), label="action"))(data)

    def begin(self, data: st.DataObject) -> None:
        self.enter(
            data.draw(st.sampled_from(APPS), label="app"),
            data.draw(st.sampled_from(AUTHORS), label="author"),
        )

    def enter(self, app: str, author: str | None) -> None:
        self.context = self.storage.write(app, author)
        self.session = self.driver(_entered(self.context))
        self.mirror = self.oracle.begin(app, author)

    def end(self, data: st.DataObject) -> None:
        if data.draw(st.sampled_from([True] * 4 + [False]), label="commit"):
            self.commit()
        else:
            self.rollback()

    def commit(self) -> None:
        assert self.session is not None
        assert self.mirror is not None
        txn, mirror = self.session.txn, self.mirror
        self.leave()
        number = mirror.commit()
        last = self.driver(published(self.storage))
        assert last.seq_number == self.base + self.oracle.last
        if number is not None:
            assert txn == last.txn
            self.binding.txns[number] = txn
            transaction = self.driver(self.storage.transaction(txn))
            self.binding.times[number] = transaction.started_ms
            self.binding.check_transaction(mirror.transaction, transaction)

    def rollback(self) -> None:
        self.leave(NakshaError("rolled back on purpose"))

    # ---- Collections -------------------------------------------------------------------------

    def make(self, data: st.DataObject) -> None:
        made = OracleCollection(
            self.marked + data.draw(st.sampled_from(NAMES), label="letter"),
            history=data.draw(st.sampled_from([True, True, True, False]), label="history"),
            author=data.draw(st.sampled_from([None, "owner"]), label="author"),
            id_prefix=data.draw(st.sampled_from([None, None, PREFIX]), label="prefix"),
        )
        self.make_collection(made)

    def make_collection(self, made: OracleCollection) -> None:
        info = CollectionInfo(
            id=made.id,
            history_enabled=made.history,
            author=made.author,
            id_prefix=made.id_prefix,
        )
        self.both(
            lambda mirror: mirror.create_collection(made),
            lambda session: session.create_collection(info),
        )

    def switch_history(self, data: st.DataObject) -> None:
        name = self.draw_name(data)
        history = data.draw(st.sampled_from([True, True, False]), label="history")
        change = CollectionChange(history_enabled=history)
        self.both(
            lambda mirror: mirror.change_collection(name, history=history),
            lambda session: session.change_collection(name, change),
        )

    def change_author(self, data: st.DataObject) -> None:
        name = self.draw_name(data)
        author = data.draw(st.sampled_from([None, "owner", "heir"]), label="author")
        self.both(
            lambda mirror: mirror.change_collection(name, author=author),
            lambda session: session.change_collection(name, CollectionChange(author=author)),
        )

    def drop_or_restore(self, data: st.DataObject) -> None:
        name = self.draw_name(data)
        if self.work(name).dropped:
            self.both(
                lambda mirror: mirror.restore_collection(name),
                lambda session: session.restore_collection(name),
            )
        elif data.draw(st.integers(0, 3), label="really?") == 0:
            self.both(
                lambda mirror: mirror.drop_collection(name),
                lambda session: session.drop_collection(name, FAR_FUTURE_MS),
            )

    # ---- Features ----------------------------------------------------------------------------

    def create(self, data: st.DataObject) -> None:
        name = self.draw_name(data)
        self.put(data, name, "create", sorted(set(IDS) - set(self.work(name).live)))

    def update(self, data: st.DataObject) -> None:
        name = self.draw_name(data, "live")
        self.put(data, name, "update", sorted(self.work(name).live))

    def upsert(self, data: st.DataObject) -> None:
        self.put(data, self.draw_name(data), "upsert", sorted(IDS))

    def put(self, data: st.DataObject, name: str, mode: str, likely: list[str]) -> None:
        """Create, update or upsert some features."""
        ids = self.draw_ids(data, likely)
        made = [data.draw(strategies.few_features(st.just(key)), label="feature") for key in ids]
        locks: list[int | None] = [None] * len(ids)
        arguments: dict[str, bool] = {}
        if mode != "create":
            locks = [self.draw_lock(data, name, key) for key in ids]
            arguments["merge"] = data.draw(st.sampled_from([True, True, False]), label="merge")
        if arguments.get("merge"):
            made = [self.edited(*pair) for pair in zip(made, locks, strict=True)]
        sent = [self.locked(data, *pair) for pair in zip(made, locks, strict=True)]
        returning = data.draw(st.booleans(), label="returning")
        done = self.both(
            lambda mirror: getattr(mirror, mode)(name, made, locks, **arguments),
            lambda session: getattr(session, mode)(name, sent, returning=returning, **arguments),
            len(ids),
        )
        if done is not None:
            self.outcomes(name, *done)

    def edited(self, made: dict[str, Any], lock: int | None) -> dict[str, Any]:
        """Return a small change of the client's base state, so that merges succeed."""
        if lock is None:
            return made
        base = self.oracle.by_identity[lock]
        properties = base.rest["properties"] | {"mine": made["properties"].get("a")}
        return made | base.rest | {"geometry": base.geometry, "properties": properties}

    def draw_lock(self, data: st.DataObject, name: str, key: str) -> int | None:
        """Draw no lock, the right one, or an outdated one."""
        collection = self.work(name)
        key = key.removeprefix(collection.id_prefix or "")
        head = collection.live.get(key)
        old = [state.identity for state in collection.past if state.id == key]
        choice = data.draw(st.sampled_from(["none", "none", "none", "head", "old"]), label="lock")
        if choice == "head" and head is not None:
            return head.identity
        if choice == "old" and old and head is not None:
            return data.draw(st.sampled_from(old), label="which")
        return None

    def locked(self, data: st.DataObject, made: dict[str, Any], lock: int | None) -> dict[str, Any]:
        """Return the feature as sent: with its lock, or with one that has no effect here."""
        uuid = self.binding.uuid(lock)
        if uuid is None and data.draw(st.integers(0, 7), label="foreign") == 0:
            uuid = ELSEWHERE
        return made if uuid is None else with_xyz(made, uuid=uuid)

    def delete(self, data: st.DataObject) -> None:
        name = self.draw_name(data, "live")
        ids = self.draw_ids(data, sorted(self.work(name).live))
        locks = [self.draw_lock(data, name, key) for key in ids]
        if len({short_id(self.work(name), key) for key in ids}) < len(ids):
            locks = [None] * len(ids)  # the contract leaves open which of two locks counts
        uuids = [self.binding.uuid(lock) for lock in locks]
        done = self.both(
            lambda mirror: mirror.delete(name, ids, locks),
            lambda session: session.delete(name, ids, uuids=uuids, returning=True),
            len(ids),
        )
        if done is not None:
            self.outcomes(name, *done)

    def restore(self, data: st.DataObject) -> None:
        name = self.draw_name(data, "deleted")
        ids = self.draw_ids(data, sorted(self.work(name).deleted))
        done = self.both(
            lambda mirror: mirror.restore(name, ids),
            lambda session: session.restore(name, ids, returning=True),
        )
        if done is not None:
            self.outcomes(name, *done)

    def purge(self, data: st.DataObject) -> None:
        """Purge published tombstones only; the contract leaves the session's own open."""
        assert self.mirror is not None
        name = self.draw_name(data, "deleted")
        collection, number = self.work(name), self.mirror.number
        own = {key for key, state in collection.deleted.items() if state.txn == number}
        ids = self.draw_ids(data, sorted(set(collection.deleted) - own))
        if own & {key.removeprefix(collection.id_prefix or "") for key in ids}:
            return
        done = self.both(
            lambda mirror: mirror.purge(name, ids), lambda session: session.purge(name, ids)
        )
        if done is not None:
            self.know_session()
            assert [(o.id, o.action) for o in done[1]] == [(w[0], w[1]) for w in done[0]]

    def message(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(["note", "O'Brien"]), label="id")
        text = data.draw(st.none() | st.sampled_from(strategies.NASTY_TEXTS), label="text")
        json = data.draw(st.sampled_from(strategies.SMALL_VALUES), label="json")
        binary = data.draw(st.none() | st.binary(max_size=4), label="binary")
        self.both(
            lambda mirror: mirror.message(key, text, json, binary),
            lambda session: session.message(key, text, json=json, binary=binary),
        )

    # ---- Reading -----------------------------------------------------------------------------

    def read_inside(self, data: st.DataObject) -> None:
        """Check that the session sees its own writes."""
        kind = data.draw(st.sampled_from(States), label="states")
        name = self.draw_name(data)
        self.know_session()

        async def read(session: WriteSession) -> list[State]:
            return in_order((await session.page(name, Query(states=kind))).states)

        done = self.both(lambda mirror: mirror.read(name, kind), read)
        if done is not None:
            self.binding.check_all(*done, name)

    def read_outside(self, data: st.DataObject) -> None:
        """Check reads outside the session: committed states, at HEAD and at every version."""
        kind = data.draw(st.sampled_from(States), label="states")
        self.compare(self.draw_name(data), kind, self.draw_version(data))

    def ask(self, data: st.DataObject) -> None:
        """Compare queries with brute force over the listing that `read_outside` has checked."""
        kind = data.draw(st.sampled_from(States), label="states")
        query = data.draw(QUERIES, label="query")
        limit = data.draw(st.none() | st.integers(1, 3), label="limit")
        name, number = self.draw_name(data), self.draw_version(data)
        everything = self.compare(name, kind, number)
        if everything is None:
            return
        filters = {field: getattr(query, field) for field in query.__struct_fields__}
        requested = Query(**filters | {"states": kind, "limit": limit})
        wanted = [state.uuid for state in select(everything, query)]
        found = self.driver(_paged(self.storage, name, requested, self.selector(number)))
        assert [state.uuid for state in (in_order(found) if limit is None else found)] == wanted
        at = self.selector(number)
        assert self.driver(self.storage.count(name, requested, at)) == len(wanted)

    def maintain(self, _: st.DataObject) -> None:
        """Run maintenance; nothing is old enough to expire, so nothing may change."""
        self.driver(self.storage.maintain())

    def list_collections(self, _: st.DataObject) -> None:
        for dropped in (False, True):
            found = self.driver(self.storage.collections(dropped=dropped))
            mine = [info.id for info in found if info.id.startswith(self.marked)]
            assert mine == self.oracle.collections(dropped=dropped)

    def teardown(self) -> None:
        """Check all reads again: every earlier version still reads the same."""
        if self.session is not None:
            self.rollback()
        for name in sorted(self.oracle.head):
            for kind in States:
                for number in (None, *range(self.oracle.last + 1)):
                    self.compare(name, kind, number)
        for transaction in self.oracle.log:
            txn = self.binding.txns[transaction.number]
            found = self.driver(self.storage.transaction(txn))
            assert found.seq_number == self.base + transaction.number
            self.binding.check_transaction(transaction, found)
        self.driver(self.storage.run(self.clear, "app-1"))

    async def clear(self, session: WriteSession) -> None:
        """Drop the collections; maintenance of a later example removes their data."""
        for name in self.oracle.collections():
            await session.drop_collection(name, 1)


async def _entered(context: AbstractAsyncContextManager[WriteSession]) -> WriteSession:
    return await context.__aenter__()


async def _left(context: AbstractAsyncContextManager[WriteSession], *error: Any) -> None:
    if not await context.__aexit__(*error) and error[1] is not None:
        raise error[1]


async def _paged(storage: Storage, name: str, query: Query, at: VersionSelector) -> list[State]:
    """Return all pages of a query."""
    found: list[State] = []
    while True:
        page = await storage.page(name, query, at)
        found += page.states
        if page.cursor is None:
            return found
        fields = {field: getattr(query, field) for field in query.__struct_fields__}
        query = Query(**fields | {"cursor": page.cursor})


def run_machine(opener: Callable[[], Awaitable[Storage]], *, long: bool = False) -> None:
    """Run many examples against one storage that `opener` opens, in their own event loop."""
    driver = CoroutineRunner()
    try:
        storage = driver(_awaited(opener))
        try:
            machine = type(
                "BoundStorageMachine",
                (StorageMachine,),
                {"driver": driver, "storage": storage, "examples": itertools.count(1)},
            )
            run_state_machine_as_test(machine, settings=_settings(long))
        finally:
            driver(_closed(storage))
    finally:
        driver.close()


def _settings(long: bool) -> settings:
    """Return settings: normal runs are repeatable and take about ten seconds, long ones random."""
    return settings(
        max_examples=1_000 if long else 10,
        stateful_step_count=80 if long else 60,
        derandomize=not long,
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


async def _awaited(opener: Callable[[], Awaitable[Storage]]) -> Storage:
    return await opener()


async def _closed(storage: Storage) -> None:
    await storage.close()
    await asyncio.sleep(0)

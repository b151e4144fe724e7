"""Support of the state machine: a driver for async code, and the comparison with the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from naksha.model.errors import NakshaError
from naksha.model.identity.guid import Guid
from naksha.model.state import XYZ, State
from naksha.model.transaction import Signal, Transaction
from naksha.testing.models.brute_force import union
from naksha.testing.models.json_values import same
from naksha.testing.models.oracle_state import OracleCounts, OracleState, OracleTransaction

T = TypeVar("T")


class CoroutineRunner:
    """Runner of coroutines, one after the other, all in one task of one event loop.

    It uses one task because a session that is entered in one call and left in another may hold
    resources that are bound to its task.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: asyncio.Queue[tuple[Awaitable[Any], asyncio.Future[Any]] | None] = (
            asyncio.Queue()
        )
        self._worker = self._loop.create_task(self._work())

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._calls.put_nowait((coroutine, done))
        return self._loop.run_until_complete(done)

    async def _work(self) -> None:
        while (call := await self._calls.get()) is not None:
            coroutine, done = call
            try:
                done.set_result(await coroutine)
            except BaseException as error:  # noqa: BLE001
                # Pass every BaseException to the caller, which would otherwise wait for ever:
                # pytest's timeout, for one, is not an Exception.
                done.set_exception(error)

    def close(self) -> None:
        self._calls.put_nowait(None)
        self._loop.run_until_complete(self._worker)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class OracleBinding:
    """Mapping of the oracle's numbers to the storage's txns, times and GUIDs."""

    def __init__(self, storage_id: str) -> None:
        self._storage_id = storage_id
        self._uuids: dict[int, str] = {}
        self._identities: dict[str, int] = {}
        self._tentative: list[int] = []
        self.txns: dict[int, int] = {0: 0}
        self.times: dict[int, int] = {}

    def uuid(self, identity: int | None) -> str | None:
        return None if identity is None else self._uuids[identity]

    def bind(self, identity: int, uuid: str) -> None:
        """Record a state's GUID, or check that it equals the recorded one."""
        if identity not in self._uuids:
            self._tentative.append(identity)
        assert self._uuids.setdefault(identity, uuid) == uuid
        assert self._identities.setdefault(uuid, identity) == identity

    def keep(self, committed: bool) -> None:
        """Forget what the last session recorded unless it committed: its GUIDs may be reused."""
        for identity in [] if committed else self._tentative:
            del self._identities[self._uuids.pop(identity)]
        self._tentative.clear()

    def check(self, wanted: OracleState, found: State, collection: str) -> None:
        """Check that the storage's state equals the oracle's in every member."""
        plain = dict(found.feature)
        geometry = plain.pop("geometry")
        properties = dict(plain["properties"])
        xyz = properties.pop(XYZ)
        assert found.id == wanted.id
        assert same(plain | {"properties": properties}, wanted.rest)
        assert same(geometry, wanted.geometry)
        self._check_namespace(wanted, xyz)
        guid = Guid.parse(xyz["uuid"])
        assert (guid.storage_id, guid.collection_id) == (self._storage_id, collection)

    def _check_namespace(self, wanted: OracleState, xyz: dict[str, Any]) -> None:
        assert (xyz["action"], xyz["version"]) == (wanted.action, wanted.version)
        assert (xyz["author"], xyz["appId"]) == (wanted.author, wanted.app_id)
        assert tuple(sorted(xyz.get("tags") or ())) == wanted.tags
        assert (xyz.get("crid"), xyz.get("qrid")) == (wanted.crid, wanted.qrid)
        assert xyz.get("mrid") == wanted.mrid
        self.bind(wanted.identity, xyz["uuid"])
        assert xyz["puuid"] == self.uuid(wanted.previous)
        assert xyz["muuid"] == self.uuid(wanted.merged)
        assert xyz["txn"] == str(self.txns[wanted.txn])
        assert xyz["txn_next"] == str(self.txns[wanted.txn_next])
        for key, number in (("createdAt", wanted.created_in), ("updatedAt", wanted.txn)):
            assert xyz[key] == self.times.get(number, xyz[key])
        assert "space" not in xyz

    def check_all(
        self, wanted: Sequence[OracleState], found: Sequence[State], collection: str
    ) -> None:
        assert [state.id for state in found] == [state.id for state in wanted]
        for expected, state in zip(wanted, found, strict=True):
            self.check(expected, state, collection)

    def check_transaction(self, wanted: OracleTransaction, found: Transaction) -> None:
        """Check a log entry against the oracle, where the contract leaves no choice."""
        assert found.txn == self.txns[wanted.number]
        assert (found.app_id, found.author) == (wanted.app_id, wanted.author)
        keys = [("MODIFY_FEATURES", name) for name in wanted.features]
        keys += [("MODIFY_COLLECTION", name) for name in wanted.collections]
        keys += [("MESSAGE", name) for name in wanted.messages]
        signals = {(signal.action, signal.id): signal for signal in found.signals}
        assert len(signals) == len(found.signals)
        assert sorted(signals) == sorted(keys)
        for name, changes in wanted.features.items():
            _check_changes(changes, signals["MODIFY_FEATURES", name])
        for name, message in wanted.messages.items():
            signal = signals["MESSAGE", name]
            assert (signal.text, signal.binary) == (message.text, message.binary)
            assert same(signal.json, message.json)


def _check_changes(changes: OracleCounts, signal: Signal) -> None:
    assert signal.purged == changes.purged
    if changes.plain:
        counts = (signal.created, signal.updated, signal.deleted)
        assert counts == (changes.created, changes.updated, changes.deleted)
        assert signal.bbox == union(changes.boxes)


def error_of(call: Any) -> tuple[Any, NakshaError | None]:
    """Return the result of a call and its error, one of them None."""
    try:
        return call(), None
    except NakshaError as error:
        return None, error

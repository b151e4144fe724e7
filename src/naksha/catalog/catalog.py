"""An open catalog: this process is one of its nodes, with ids, a cache, and links to its peers.

catalog = await Catalog.open(backend)
realm = await catalog.realm("maps")
await realm.entities("config").commit(change)
await catalog.close()
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

import msgspec

from naksha.catalog.cache import CatalogCache
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.database_time import DatabaseTime
from naksha.catalog.cluster.nodes import LeaseTimes, Node
from naksha.catalog.cluster.peer_messages import PeerWire, PointerMove, load_secret
from naksha.catalog.cluster.peers import Peers, into_cache
from naksha.catalog.cluster.pointer_moves import Listener, PointerMoves
from naksha.catalog.cluster.snowflake import load_spec
from naksha.catalog.entities import Entities
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.catalog.realms import Realm, RealmFence, Realms, RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.model.errors import RealmInactive, RealmNotFound
from naksha.spi.catalog import CatalogBackend


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that differ between installations, and in tests."""

    cache_bytes_max: int = limits.CACHE_BYTES_MAX
    pointer_seconds: float = limits.POINTER_SECONDS_MAX
    lease: LeaseTimes = LeaseTimes()
    quarantine_seconds: float = limits.REALM_QUARANTINE_SECONDS
    listen: str = ""
    """Address to receive messages of peers on, for example 127.0.0.1.

    If it is empty, caches are only refreshed by their time limits.
    """


class OpenRealm:
    """A serving realm as this process uses it; all commits to one pointer share one queue."""

    def __init__(self, persistence: Persistence, realm: Realm) -> None:
        self.persistence = persistence
        self.realm = realm
        self._entities: dict[str, Entities] = {}

    def entities(self, pointer: str) -> Entities:
        """Return the entities behind a pointer, which must exist."""
        found = self._entities.get(pointer)
        if found is None:
            found = self._entities[pointer] = Entities(self.persistence, pointer)
        return found


class Catalog:
    """A node of a catalog, for one event loop. Use `Catalog.open` to create it."""

    def __init__(
        self,
        backend: CatalogBackend,
        node: Node,
        clock: MonotonicClock,
        cache: CatalogCache,
        moves: PointerMoves,
        tuning: Tuning,
        closing: AsyncExitStack,
    ) -> None:
        self.backend = backend
        self.node = node
        self.clock = clock
        self.cache = cache
        self.moves = moves
        self.system = self._persistence(SYSTEM_REALM, None)
        self.realms = Realms(self.system, quarantine_s=tuning.quarantine_seconds)
        self._closing = closing
        # Each realm is open once, so that each pointer has a single commit queue. The most recently
        # used realms are kept.
        self._open: WeakValueDictionary[str, OpenRealm] = WeakValueDictionary()
        self._kept: OrderedDict[str, OpenRealm] = OrderedDict()
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(
        cls,
        backend: CatalogBackend,
        *,
        identity: str = "",
        tuning: Tuning | None = None,
        clock: MonotonicClock | None = None,
        joins: bool = True,
    ) -> Catalog:
        """Join the catalog in a database; closing the catalog closes the database.

        `identity` identifies this process across restarts. A process that does not join can only
        read, and writes nothing to a catalog that is set up.
        """
        tuning = tuning or Tuning()
        clock = clock or MonotonicClock()
        cache = CatalogCache(
            clock, bytes_max=tuning.cache_bytes_max, pointer_seconds=tuning.pointer_seconds
        )
        moves = PointerMoves()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            database_time = DatabaseTime(backend, clock)
            await database_time.start()
            spec = await load_spec(backend, clock)
            peers, address = None, ""
            if tuning.listen and joins:
                wire = PeerWire(await load_secret(backend, clock))
                peers = Peers(wire, _move_receiver(cache, moves))
                stack.push_async_callback(peers.close)
                address = await peers.listen(tuning.listen)
            node = Node(
                *(backend, spec, clock),
                identity=identity,
                address=address,
                times=tuning.lease,
                database_time=database_time,
            )
            if joins:
                await node.start()
                stack.push_async_callback(node.close)
            if peers is not None:
                peers.start(node.instance, node.peers)
                moves.listeners.append(_move_sender(peers))
            catalog = cls(backend, node, clock, cache, moves, tuning, stack)
            if joins:
                await catalog.realms.setup()
            catalog._closing = stack.pop_all()
        return catalog

    async def close(self) -> None:
        """Release the node and close the database."""
        await self._closing.aclose()

    async def realm(self, id: str) -> OpenRealm:
        """Return a serving realm, else raise RealmInactive or RealmNotFound.

        Its cached data may be a few seconds old; writes are always checked against the database.
        """
        known = self._open.get(id)
        if known is None or await self.realms.recent(id) != known.realm:
            async with self._opening.setdefault(id, asyncio.Lock()):
                known = await self._current_realm(id)
        self._keep(id, known)
        return known

    async def _current_realm(self, id: str) -> OpenRealm:
        """Return a realm as it is now: the open one, unless its state has changed."""
        try:
            fence = await self.realms.open_fence(id)
        except (RealmInactive, RealmNotFound):
            self._open.pop(id, None)
            self._kept.pop(id, None)
            raise
        known = self._open.get(id)
        if known is None or known.realm.epoch != fence.epoch:
            known = self._open[id] = OpenRealm(self._persistence(id, fence), fence.realm)
        known.realm = fence.realm
        return known

    def _keep(self, id: str, realm: OpenRealm) -> None:
        self._kept[id] = realm
        self._kept.move_to_end(id)
        if len(self._kept) > limits.OPEN_REALMS_MAX:
            self._kept.popitem(last=False)

    async def realm_for_setup(self, realm: Realm) -> Persistence:
        """Return a realm that does not serve yet, for setting it up or importing it."""
        if realm.status not in (RealmStatus.LOADING, RealmStatus.INITIALIZING):
            raise RealmInactive(
                f"The realm {realm.id!r} is {realm.status}; it must be LOADING or INITIALIZING to"
                " be set up"
            )
        return await self.persistence_of(realm)

    async def persistence_of(self, realm: Realm) -> Persistence:
        """Return a realm in the state in which it was found, for maintenance.

        Raises:
            RealmInactive, RealmChanged: The realm has left that state.
        """
        return self._persistence(realm.id, await self.realms.reopen_fence(realm))

    def _persistence(self, realm: str, fence: RealmFence | None) -> Persistence:
        return Persistence(
            self.backend, realm, self.node.ids, self.clock, self.cache, self.moves, fence
        )


def _move_receiver(cache: CatalogCache, moves: PointerMoves) -> Callable[[PointerMove], None]:
    keep_up = into_cache(cache)

    def receive(move: PointerMove) -> None:
        keep_up(move)
        moves.wake(move.realm, move.row.name)

    return receive


def _move_sender(peers: Peers) -> Listener:
    def send(realm: str, pointer: Pointer, sequence: int | None) -> None:
        # Report a move with an unknown order as deleted, so that peers read the pointer again.
        peers.send(PointerMove(realm, pointer.to_row(), sequence or 0, is_deleted=sequence is None))

    return send

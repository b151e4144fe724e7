"""An open catalog: this process is one of its nodes, with ids, a cache, and ways to the others.

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
from naksha.catalog.cluster.peer_messages import Move, PeerWire, load_secret
from naksha.catalog.cluster.peers import Peers, into_cache
from naksha.catalog.cluster.pointer_moves import Listener, Moves
from naksha.catalog.cluster.snowflake import load_spec
from naksha.catalog.entities import Entities
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.catalog.realms import Realm, RealmFence, Realms, Status
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.model.errors import RealmInactive, RealmNotFound
from naksha.spi.catalog import CatalogBackend


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between installations, and in tests."""

    cache_bytes_max: int = limits.CACHE_BYTES_MAX
    pointer_seconds: float = limits.POINTER_SECONDS_MAX
    lease: LeaseTimes = LeaseTimes()
    quarantine_seconds: float = limits.REALM_QUARANTINE_SECONDS
    listen: str = ""
    """Where other instances send their messages, for example 127.0.0.1; none: only time heals."""


class OpenRealm:
    """A realm that serves, and what is done in it by this process: everything that commits to one
    pointer waits in one line."""

    def __init__(self, persistence: Persistence, realm: Realm) -> None:
        self.persistence = persistence
        self.realm = realm
        self._entities: dict[str, Entities] = {}

    def entities(self, pointer: str) -> Entities:
        """The entities behind a pointer, which must exist."""
        found = self._entities.get(pointer)
        if found is None:
            found = self._entities[pointer] = Entities(self.persistence, pointer)
        return found


class Catalog:
    """A node of a catalog, for one event loop. Made by `Catalog.open`."""

    def __init__(
        self,
        backend: CatalogBackend,
        node: Node,
        clock: MonotonicClock,
        cache: CatalogCache,
        moves: Moves,
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
        # A realm is open once, so that there is one line for each pointer. The used last are kept.
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
    ) -> Catalog:
        """Join the catalog in a database, which is closed with it. `identity` is what this process
        has in common with its next life."""
        tuning = tuning or Tuning()
        clock = clock or MonotonicClock()
        cache = CatalogCache(
            clock, bytes_max=tuning.cache_bytes_max, pointer_seconds=tuning.pointer_seconds
        )
        moves = Moves()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            database_time = DatabaseTime(backend, clock)
            await database_time.start()
            spec = await load_spec(backend, clock)
            peers, address = None, ""
            if tuning.listen:
                wire = PeerWire(await load_secret(backend, clock))
                peers = Peers(wire, _hearing(cache, moves))
                stack.push_async_callback(peers.close)
                address = await peers.listen(tuning.listen)
            node = Node(
                *(backend, spec, clock),
                identity=identity,
                address=address,
                times=tuning.lease,
                database_time=database_time,
            )
            await node.start()
            stack.push_async_callback(node.close)
            if peers is not None:
                peers.start(node.instance, node.peers)
                moves.listeners.append(_telling(peers))
            catalog = cls(backend, node, clock, cache, moves, tuning, stack)
            await catalog.realms.setup()
            catalog._closing = stack.pop_all()
        return catalog

    async def close(self) -> None:
        """Give the node back, and close the database."""
        await self._closing.aclose()

    async def realm(self, id: str) -> OpenRealm:
        """A realm that serves, else RealmInactive or RealmNotFound. What is cached of it may be a
        few seconds old; writes are exact."""
        known = self._open.get(id)
        if known is None or await self.realms.recent(id) != known.realm:
            async with self._opening.setdefault(id, asyncio.Lock()):
                known = await self._opened(id)
        self._keep(id, known)
        return known

    async def _opened(self, id: str) -> OpenRealm:
        """A realm as it is now: the open one, unless it has changed its state."""
        try:
            fence = await self.realms.opened(id)
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

    async def realm_in_the_making(self, realm: Realm) -> Persistence:
        """A realm that does not serve yet, for those who set it up or import it."""
        if realm.status not in (Status.LOADING, Status.INITIALIZING):
            raise RealmInactive(f"The realm {realm.id!r} is {realm.status}, nobody makes it now")
        return await self.persistence_of(realm)

    async def persistence_of(self, realm: Realm) -> Persistence:
        """A realm in the state in which it was found, whatever that is, for its maintenance;
        RealmInactive or RealmChanged if it has left that."""
        return self._persistence(realm.id, await self.realms.reopened(realm))

    def _persistence(self, realm: str, fence: RealmFence | None) -> Persistence:
        return Persistence(
            self.backend, realm, self.node.ids, self.clock, self.cache, self.moves, fence
        )


def _hearing(cache: CatalogCache, moves: Moves) -> Callable[[Move], None]:
    keep_up = into_cache(cache)

    def hear(move: Move) -> None:
        keep_up(move)
        moves.wake(move.realm, move.row.name)

    return hear


def _telling(peers: Peers) -> Listener:
    def tell(realm: str, pointer: Pointer, sequence: int | None) -> None:
        # A move whose order is not known makes the others read it anew.
        peers.tell(Move(realm, pointer.to_row(), sequence or 0, is_deleted=sequence is None))

    return tell

"""In-memory cache of a catalog: immutable objects without expiry, pointers for a limited time.

The cache has a limit in bytes and evicts the least recently used entries first.

A pointer that moves while it is read must not enter the cache. Before reading one from the database
the caller therefore takes a stamp, and the result is stored only if nothing happened to the pointer
since:

    stamp = cache.stamp(realm, name)
    pointer = …                                  # from the database
    cache.put_pointer(realm, name, pointer, stamp)

The time limit of a pointer starts at that stamp. Neither cache hits nor messages of other instances
extend it: it bounds how stale a reader can be when messages are lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from naksha.catalog.objects import Object, known_type, type_id
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.spi.clock import Clock


class AbsentPointer:
    """Cache value for a pointer that does not exist."""


ABSENT: Final = AbsentPointer()


class ReadStamp(NamedTuple):
    """Start of a read from the database: the time, and the epoch of the pointer's slot."""

    epoch: int
    at_ms: int


class CacheCounts(NamedTuple):
    """Statistics of a cache."""

    hits: int
    misses: int
    evictions: int
    """Entries evicted to make room for others."""
    expirations: int
    fenced: int
    """Pointers that were not stored because they may have moved while they were read."""
    bytes: int
    entries: int


class _Entry:
    """A cached value. `sequence` is the state number of a pointer, if known."""

    __slots__ = ("expires_ms", "sequence", "size", "value")

    def __init__(self, value: Any, size: int, expires_ms: int, sequence: int | None) -> None:
        self.value = value
        self.size = size
        self.expires_ms = expires_ms
        self.sequence = sequence


class CatalogCache:
    """Cache of one process; must only be used in the thread of the event loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        bytes_max: int = limits.CACHE_BYTES_MAX,
        pointer_seconds: float = limits.POINTER_SECONDS_MAX,
        absent_seconds: float = 0,
    ) -> None:
        self._now_ms = clock.now_ms
        self._bytes_max = bytes_max
        self._pointer_ms = int(pointer_seconds * 1000)
        self._absent_ms = int(absent_seconds * 1000)
        # Objects by realm and id, pointers by realm and name; the least recently used is first.
        self._entries: OrderedDict[tuple[str, int | str], _Entry] = OrderedDict()
        self._bytes = 0
        self._epochs = [0] * limits.CACHE_EPOCHS
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.expirations = 0
        self.fenced = 0

    @property
    def counts(self) -> CacheCounts:
        return CacheCounts(
            hits=self.hits,
            misses=self.misses,
            evictions=self.evictions,
            expirations=self.expirations,
            fenced=self.fenced,
            bytes=self._bytes,
            entries=len(self._entries),
        )

    # ---- Objects -----------------------------------------------------------------------------

    def get(self, realm: str, id: int) -> Object[Any] | None:
        """Return the cached object, or None."""
        entry = self._entries.get((realm, id))
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end((realm, id))
        found: Object[Any] = entry.value
        return found

    def put(self, realm: str, found: Object[Any], size: int) -> None:
        """Store an object whose encoding has `size` bytes.

        Objects that may change are not stored: those of uncached or unknown types, and those that
        were written conditionally.
        """
        known = known_type(type_id(found.value))
        if known is not None and known.is_cached and found.token is None:
            self._put((realm, found.id), _Entry(found, size, 0, None))

    def evict(self, realm: str, id: int) -> None:
        """Evict an object that was deleted."""
        self._drop((realm, id))

    # ---- Pointers ----------------------------------------------------------------------------

    def pointer(self, realm: str, name: str) -> Pointer | AbsentPointer | None:
        """Return the cached pointer, or None if it is absent or expired and must be read."""
        key = (realm, name)
        entry = self._entries.get(key)
        if entry is not None and self._now_ms() >= entry.expires_ms:
            self.expirations += 1
            self._drop(key)
            entry = None
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        found: Pointer | AbsentPointer = entry.value
        return found

    def stamp(self, realm: str, name: str) -> ReadStamp:
        """Return a stamp; call this before reading or moving a pointer in the database."""
        return ReadStamp(self._epochs[self._slot(realm, name)], self._now_ms())

    def put_pointer(
        self,
        realm: str,
        name: str,
        pointer: Pointer | None,
        stamp: ReadStamp,
        sequence: int | None = None,
    ) -> None:
        """Store a pointer that was read after the stamp; None means that it does not exist.

        It is discarded if the pointer was evicted, moved or read by another task since the stamp.
        """
        slot = self._slot(realm, name)
        if self._epochs[slot] != stamp.epoch:
            self.fenced += 1
            return
        # A writer that took its stamp before this read cannot tell whether its own move or this
        # state is the later one, so invalidate its stamp.
        self._epochs[slot] += 1
        if pointer is not None:
            self._put_state(realm, pointer, sequence, stamp.at_ms + self._pointer_ms)
        elif self._absent_ms:
            expires_ms = stamp.at_ms + self._absent_ms
            self._put((realm, name), _Entry(ABSENT, len(name), expires_ms, None))

    def pointer_moved(
        self, realm: str, pointer: Pointer, sequence: int, stamp: ReadStamp | None = None
    ) -> None:
        """Record that a pointer reached the state `sequence` of its life.

        With `stamp`, the move was made here after it; otherwise another instance reported it,
        possibly late. Concurrent reads are not stored.
        """
        key = (realm, pointer.name)
        slot = self._slot(realm, pointer.name)
        is_latest = stamp is not None and stamp.epoch == self._epochs[slot]
        self._epochs[slot] += 1
        entry = self._entries.get(key)
        if stamp is not None and is_latest:
            self._put_state(realm, pointer, sequence, stamp.at_ms + self._pointer_ms)
        elif entry is None:
            return  # A late message may be outdated, and there is no entry to compare it with.
        elif isinstance(entry.value, AbsentPointer) or entry.sequence is None:
            self._drop(key)
        elif entry.value.created != pointer.created:
            self._drop(key)  # Another life of the name; only the database knows the later one.
        elif sequence > entry.sequence:
            self._put_state(realm, pointer, sequence, entry.expires_ms)

    def evict_pointer(self, realm: str, name: str) -> None:
        """Evict a pointer that was deleted, or whose move failed or may have failed.

        Concurrent reads do not store it again.
        """
        self._epochs[self._slot(realm, name)] += 1
        self._drop((realm, name))

    def evict_realm(self, realm: str) -> None:
        """Evict everything of a realm."""
        self._epochs = [epoch + 1 for epoch in self._epochs]
        for key in [key for key in self._entries if key[0] == realm]:
            self._drop(key)

    def _put_state(
        self, realm: str, pointer: Pointer, sequence: int | None, expires_ms: int
    ) -> None:
        row = pointer.to_row()
        size = len(row.name) + len(row.target) + len(row.previous)
        self._put((realm, pointer.name), _Entry(pointer, size, expires_ms, sequence))

    def _slot(self, realm: str, name: str) -> int:
        return hash((realm, name)) % limits.CACHE_EPOCHS

    # ---- Room --------------------------------------------------------------------------------

    def _put(self, key: tuple[str, int | str], entry: _Entry) -> None:
        entry.size += limits.CACHE_ENTRY_BYTES
        self._drop(key)
        if entry.size > self._bytes_max // 2:
            return  # It would evict too many other entries.
        self._bytes += entry.size
        self._entries[key] = entry
        while self._bytes > self._bytes_max:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size
            self.evictions += 1

    def _drop(self, key: tuple[str, int | str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size

"""What a catalog keeps in memory: immutable objects for ever, pointers for a limited time; together
never more than a number of bytes, the least recently used go first.

A pointer that is read while it moves must not stay in the cache. So whoever reads one from the
database takes a mark before, and what was read is kept only if nothing happened to it since:

    mark = cache.mark(realm, name)
    pointer = …                                  # from the database
    cache.put_pointer(realm, name, pointer, mark)

The time limit of a pointer counts from that mark. Neither being read from the cache nor messages of
other instances prolong it: it is how stale a reader can be when messages are lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from naksha.catalog.objects import Object, known_type, type_id
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.spi.clock import Clock


class Absent:
    """That there is no pointer of a name, where that is kept."""


ABSENT: Final = Absent()


class Mark(NamedTuple):
    """When a read from the database began, and what had been evicted by then."""

    epoch: int
    at_ms: int


class CacheCounts(NamedTuple):
    """What a cache has done."""

    hits: int
    misses: int
    evictions: int
    """Entries that made room for others."""
    expirations: int
    fenced: int
    """Pointers that were not kept because they may have moved while they were read."""
    bytes: int
    entries: int


class _Entry:
    """`sequence`: which state of the pointer it is, when that is known."""

    __slots__ = ("expires_ms", "sequence", "size", "value")

    def __init__(self, value: Any, size: int, expires_ms: int, sequence: int | None) -> None:
        self.value = value
        self.size = size
        self.expires_ms = expires_ms
        self.sequence = sequence


class CatalogCache:
    """A cache of one process, for the event loop's thread."""

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
        """The object, if it is here."""
        entry = self._entries.get((realm, id))
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end((realm, id))
        found: Object[Any] = entry.value
        return found

    def put(self, realm: str, found: Object[Any], size: int) -> None:
        """Keep an object whose encoding has `size` bytes. One that may change is not kept: of a
        type that says so, of an unknown type, or written conditionally."""
        known = known_type(type_id(found.value))
        if known is not None and known.is_cached and found.token is None:
            self._put((realm, found.id), _Entry(found, size, 0, None))

    def evict(self, realm: str, id: int) -> None:
        """Forget an object, because it was deleted."""
        self._drop((realm, id))

    # ---- Pointers ----------------------------------------------------------------------------

    def pointer(self, realm: str, name: str) -> Pointer | Absent | None:
        """The pointer, if it is here and not too old; None: ask the database."""
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
        found: Pointer | Absent = entry.value
        return found

    def mark(self, realm: str, name: str) -> Mark:
        """To be taken before a pointer is read from the database, or moved there."""
        return Mark(self._epochs[self._slot(realm, name)], self._now_ms())

    def put_pointer(
        self,
        realm: str,
        name: str,
        pointer: Pointer | None,
        mark: Mark,
        sequence: int | None = None,
    ) -> None:
        """Keep a pointer as it was read after the mark (None: there was none), unless it was
        evicted, moved or read by somebody else since."""
        slot = self._slot(realm, name)
        if self._epochs[slot] != mark.epoch:
            self.fenced += 1
            return
        # A writer who took its mark before cannot know whether this state is after its own.
        self._epochs[slot] += 1
        if pointer is not None:
            self._put_state(realm, pointer, sequence, mark.at_ms + self._pointer_ms)
        elif self._absent_ms:
            expires_ms = mark.at_ms + self._absent_ms
            self._put((realm, name), _Entry(ABSENT, len(name), expires_ms, None))

    def pointer_moved(
        self, realm: str, pointer: Pointer, sequence: int, mark: Mark | None = None
    ) -> None:
        """A pointer is at the state `sequence` of its life: moved here after the mark, or as
        another instance says, which may be late. Reads that are under way do not get in."""
        key = (realm, pointer.name)
        slot = self._slot(realm, pointer.name)
        is_latest = mark is not None and mark.epoch == self._epochs[slot]
        self._epochs[slot] += 1
        entry = self._entries.get(key)
        if mark is not None and is_latest:
            self._put_state(realm, pointer, sequence, mark.at_ms + self._pointer_ms)
        elif entry is None:
            return  # what a late message says may be old already, and there is nothing to compare
        elif isinstance(entry.value, Absent) or entry.sequence is None:
            self._drop(key)
        elif entry.value.created != pointer.created:
            self._drop(key)  # of another life; which one is the later one only the database knows
        elif sequence > entry.sequence:
            self._put_state(realm, pointer, sequence, entry.expires_ms)

    def evict_pointer(self, realm: str, name: str) -> None:
        """Forget a pointer: it was deleted, or a move of it failed or may have failed. Reads that
        are under way do not bring it back."""
        self._epochs[self._slot(realm, name)] += 1
        self._drop((realm, name))

    def evict_realm(self, realm: str) -> None:
        """Forget all of a realm."""
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
            return  # it would cost too many others their place
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

"""Moves of pointers, as this process knows of them: who waits for one is woken, who wants to hear
of all is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from naksha.catalog.pointers import Pointer

Listener = Callable[[str, Pointer, int | None], None]
"""Gets the realm, the pointer, and which state of its life it is, if it has a log."""


class Moves:
    """Wakes and tells, for the event loop's thread."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._next: WeakValueDictionary[tuple[str, str], asyncio.Event] = WeakValueDictionary()

    def next_of(self, realm: str, name: str) -> asyncio.Event:
        """Is set with the next move; to be taken before looking where the pointer is."""
        event = self._next.get((realm, name))
        if event is None:
            event = self._next[realm, name] = asyncio.Event()
        return event

    def tell(self, realm: str, pointer: Pointer, sequence: int | None) -> None:
        """A pointer was moved here."""
        self.wake(realm, pointer.name)
        for listener in self.listeners:
            listener(realm, pointer, sequence)

    def wake(self, realm: str, name: str) -> None:
        """A pointer was moved, here or elsewhere."""
        event = self._next.pop((realm, name), None)
        if event is not None:
            event.set()

"""Moves of pointers known to this process: wake waiting tasks and notify listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from naksha.catalog.pointers import Pointer

Listener = Callable[[str, Pointer, int | None], None]
"""Receives the realm, the pointer, and its state number if it has a log."""


class PointerMoves:
    """Wakes waiting tasks and notifies listeners, in the thread of the event loop."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._next: WeakValueDictionary[tuple[str, str], asyncio.Event] = WeakValueDictionary()

    def next_of(self, realm: str, name: str) -> asyncio.Event:
        """Return an event that the next move sets; get it before reading the pointer."""
        event = self._next.get((realm, name))
        if event is None:
            event = self._next[realm, name] = asyncio.Event()
        return event

    def report_move(self, realm: str, pointer: Pointer, sequence: int | None) -> None:
        """Report a pointer that this process moved."""
        self.wake(realm, pointer.name)
        for listener in self.listeners:
            listener(realm, pointer, sequence)

    def wake(self, realm: str, name: str) -> None:
        """Wake the tasks that wait for a pointer moved here or elsewhere."""
        event = self._next.pop((realm, name), None)
        if event is not None:
            event.set()

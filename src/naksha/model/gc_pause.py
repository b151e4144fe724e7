"""Pause of Python's cyclic garbage collector while a batch is processed.

A batch allocates hundreds of thousands of objects, all of them needed and none in a cycle. Their
number triggers full collections, several per batch, which took a fifth of the time of a large
write.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Pause:
    """Reference-counted pause, shared by all threads; it ends when the last user has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._was_enabled:
                gc.enable()


_pause = _Pause()


def uncollected(work: Callable[P, R]) -> Callable[P, R]:
    """Decorate a batch function: no garbage collection while any such function runs."""

    @wraps(work)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        with _pause:
            return work(*args, **kwargs)

    return paused

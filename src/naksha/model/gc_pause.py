"""Pausing Python's collection of cyclic garbage while a batch is worked on.

A batch makes hundreds of thousands of objects in one go, all of them needed and none in a cycle.
The collector takes their number for a reason to look through everything that is alive, several
times per batch, which cost a fifth of the time of a large write.
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
    """One pause for all who need one, in whatever thread; it ends with the last of them."""

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
    """Decorates a function that works on a batch: no collection until all such have ended."""

    @wraps(work)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        with _pause:
            return work(*args, **kwargs)

    return paused

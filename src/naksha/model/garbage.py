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

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


def _pause() -> None:
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1


def _go_on() -> None:
    global _pauses
    with _lock:
        _pauses -= 1
        if _pauses == 0 and _was_enabled:
            gc.enable()


def uncollected(work: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that works on a batch: no collection until all such have ended."""

    @wraps(work)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        _pause()
        try:
            return work(*args, **kwargs)
        finally:
            _go_on()

    return paused

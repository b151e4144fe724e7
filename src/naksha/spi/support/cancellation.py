"""Cancellation of tasks that retry after any error.

A cancellation is an exception like others: cleanup code that fails, for example on a broken
connection, replaces it by another one. A loop that catches that one and retries would never end.
"""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Return whether the current task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_cancelled() -> None:
    """Raise a hidden cancellation; to be called before a retry.

    Raises:
        CancelledError: In place of the error that has hidden it.
    """
    if is_cancelled():
        raise asyncio.CancelledError

"""Ending a task that tries again whatever goes wrong.

A cancellation is an exception like others: whoever cleans up on the way out, on a connection that
is gone, raises another one in its place. Who catches that and goes on would never end.
"""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether somebody wants this task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_cancelled() -> None:
    """Before trying again: end, if that is what somebody wants.

    Raises:
        CancelledError: In place of the error that has hidden it.
    """
    if is_cancelled():
        raise asyncio.CancelledError

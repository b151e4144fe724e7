"""Fenced writes of rows that have no older row to compare: write, check the realm, then undo.

A swap compares the epoch inside its row. A new row has nothing to compare, so the writer reads the
realm's record afterwards. If it still has the old epoch, the write preceded the change of state and
counts; otherwise it must be undone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from naksha.model.errors import NakshaError, OutcomeUnknown, RealmChanged

Step = Callable[[], Awaitable[bool]]


class EpochFence(Protocol):
    """The state of the realm when it was opened."""

    @property
    def epoch(self) -> int: ...

    async def check(self) -> None:
        """Read the realm's record now; raise RealmChanged if its epoch differs."""


class Unfenced:
    """Fence of a realm that always serves."""

    epoch: Final = 0

    async def check(self) -> None:
        """Do nothing: the realm never changes its state."""


async def write_fenced(fence: EpochFence, write: Step, undo: Step) -> bool:
    """Write, and return whether a row was written that is valid.

    `undo` returns whether nothing of the write is left and no other client uses it.

    Raises:
        RealmChanged: The write was undone.
        OutcomeUnknown: The write may exist, or may still take effect.
    """
    try:
        is_written = await write()
    except OutcomeUnknown:
        # Undo the write if it took effect already. One that takes effect later cannot be undone.
        with contextlib.suppress(NakshaError):
            await check_written(fence, undo)
        raise
    if is_written:
        await check_written(fence, undo)
    return is_written


async def check_written(fence: EpochFence, undo: Step) -> None:
    """Check the realm after a write.

    Only RealmChanged may report that nothing was written.
    """
    try:
        await fence.check()
    except RealmChanged as changed:
        if await _is_undone(undo):
            raise
        raise OutcomeUnknown(
            "The state of the realm changed during the write, and other clients already use what "
            "was written; open the realm again and read the object before you repeat the write"
        ) from changed
    except NakshaError as error:
        raise OutcomeUnknown(
            "The write was stored, but its realm may have been deactivated or purged meanwhile: "
            f"the catalog did not respond ({error.message}); read the object back before you "
            "repeat the write"
        ) from error


async def _is_undone(undo: Step) -> bool:
    try:
        return await undo()
    except NakshaError as error:
        raise OutcomeUnknown(
            "The state of the realm changed during the write, and the write could not be undone; "
            "open the realm again and read the object before you repeat the write"
        ) from error

"""Writing what no older row can fence: first written, then the realm is looked at, then taken back.

A swap compares the epoch inside its row. A new row has nothing to compare, so whoever makes one
looks at the realm's record afterwards. If that still had the old epoch, the write was before the
change of state; otherwise it must not count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from naksha.model.errors import NakshaError, OutcomeUnknown, RealmChanged

Step = Callable[[], Awaitable[bool]]


class Fence(Protocol):
    """What is known of the realm since it was opened."""

    @property
    def epoch(self) -> int: ...

    async def check(self) -> None:
        """Look at the realm's record now: RealmChanged if its epoch is another one."""


class Unfenced:
    """The fence of a realm that always serves."""

    epoch: Final = 0

    async def check(self) -> None:
        """Nothing to look at."""


async def write_fenced(fence: Fence, write: Step, undo: Step) -> bool:
    """Whether something was written, and counts. `undo` says whether nothing of it is left and
    nobody has built on it.

    Raises:
        RealmChanged: It was taken back.
        OutcomeUnknown: It may be there, or may be yet.
    """
    try:
        is_written = await write()
    except OutcomeUnknown:
        # What may be there is taken back; what may come later can not be.
        with contextlib.suppress(NakshaError):
            await check_written(fence, undo)
        raise
    if is_written:
        await check_written(fence, undo)
    return is_written


async def check_written(fence: Fence, undo: Step) -> None:
    """Look at the realm after something was written. No error but RealmChanged may say that nothing
    was."""
    try:
        await fence.check()
    except RealmChanged as changed:
        if await _is_undone(undo):
            raise
        raise OutcomeUnknown(
            "The realm changed while this was written, and others have used it already"
        ) from changed
    except NakshaError as error:
        raise OutcomeUnknown(
            "It was written, but whether the realm still served is not known; look before it is "
            "repeated"
        ) from error


async def _is_undone(undo: Step) -> bool:
    try:
        return await undo()
    except NakshaError as error:
        raise OutcomeUnknown(
            "The realm changed while this was written, and it could not be taken back"
        ) from error

"""Planning what to write and writing it, again when somebody else was faster.

What is planned is read before the session that writes it, so that this is short. Who was overtaken
too often does both in one session, with the gates of the collections closed: that ends, however
busy others are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from naksha.model import limits
from naksha.model.errors import Conflict, MergeConflict, Retryable, Unavailable
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.records import Signed

P = TypeVar("P")
T = TypeVar("T")
_random = random.SystemRandom()


async def settle(
    opened: Callable[[], Awaitable[Storage]],
    signed: Signed,
    plan: Callable[[WriteSession | None], Awaitable[P]],
    write: Callable[[WriteSession, P], Awaitable[T]],
    touched: Callable[[P], set[str]],
) -> T:
    """Do what is planned, as one transaction.

    Args:
        opened: What is written to, main or a branch, as it is now.
        signed: Who.
        plan: Says what to write. With a session all of it must be read there.
        write: Writes it. A Conflict or Retryable means that somebody was faster.
        touched: The collections of a plan.
    """
    contested: set[str] = set()
    for attempt in range(limits.RETRY_COUNT_MAX):
        storage = await opened()
        try:
            if attempt < limits.RETRY_GATE_COUNT:
                planned = await plan(None)
                contested |= touched(planned)
                async with storage.write(signed.app_id, signed.author) as session:
                    done = await write(session, planned)
            else:
                async with storage.write(signed.app_id, signed.author) as session:
                    await session.close_gates(sorted(contested))
                    planned = await plan(session)
                    contested |= touched(planned)
                    done = await write(session, planned)
        except (MergeConflict, Unavailable):
            raise
        except (Conflict, Retryable):
            if attempt + 1 == limits.RETRY_COUNT_MAX:
                raise
        else:
            return done
        pause = limits.RETRY_DELAY_MS_MIN * 2**attempt * _random.random()
        await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
    raise AssertionError("unreachable")

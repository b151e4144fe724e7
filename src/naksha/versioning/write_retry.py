"""Plan writes and execute them, with retries when another writer was faster.

The plan is read before the session that writes it is opened, so that the session is short. After
several conflicts, plan and write run in one session with the gates of the collections closed: no
other writer can interfere then, so the retries terminate however busy the storage is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from naksha.model import limits
from naksha.model.errors import Conflict, MergeConflict, Retryable, Unavailable
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.records import Attribution

P = TypeVar("P")
T = TypeVar("T")
_random = random.SystemRandom()


async def write_with_retries(
    open_storage: Callable[[], Awaitable[Storage]],
    signed: Attribution,
    plan: Callable[[WriteSession | None], Awaitable[P]],
    write: Callable[[WriteSession, P], Awaitable[T]],
    touched: Callable[[P], set[str]],
) -> T:
    """Execute a plan as one transaction, with retries.

    Args:
        opened: Return the storage to write to, main or a branch, as it is now.
        signed: App id and author.
        plan: Compute what to write. If it is given a session, it must read everything there.
        write: Write the plan. A Conflict or Retryable means that another writer was faster.
        touched: Return the collections of a plan.
    """
    contested: set[str] = set()
    for attempt in range(limits.RETRY_COUNT_MAX):
        storage = await open_storage()
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

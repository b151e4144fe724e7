"""Calls to a database server, and what it means when one gets no answer.

    async def swap(session: MySession) -> bool:
        return await session.execute("swap", changes=True)

    await server.call(swap)

`Server` keeps a bounded number of sessions, gives each call one of its own and a time to end, and
sorts out every failure: `Unavailable` when nothing that changes anything was under way,
`OutcomeUnknown` when something was. A session that was left in the middle of a call, by an error,
by the time running out or by cancellation, is closed and never used again, so that no call reads
the answer to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

from naksha.model.errors import NakshaError, OutcomeUnknown, Unavailable

IDLE_SECONDS_MAX: Final = 0.05
"""A session that was idle for longer is asked whether it still lives before it is used: a server
that was restarted meanwhile shall not make a call fail."""


class Session(Protocol):
    """One connection to a server, used by one call at a time.

    A driver's errors come out of it as two kinds: OSError means that the connection is lost,
    NakshaError that the server has answered, so that the session can be used further.
    """

    is_at_risk: bool
    """Whether a change is under way: what was sent may be carried out, and no answer came yet."""

    async def is_alive(self) -> bool:
        """Whether the server still answers; OSError is as good as False."""

    async def close(self) -> None:
        """Break the connection off, at once and whatever state it is in; wait for nobody."""


S = TypeVar("S", bound=Session)
R = TypeVar("R")


class Server(Generic[S]):
    """Sessions with one server."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[S]],
        *,
        sessions_max: int,
        call_seconds_max: float,
    ) -> None:
        self._name = name
        self._connect = connect
        self._call_seconds_max = call_seconds_max
        self._slots = asyncio.Semaphore(sessions_max)
        self._idle: list[tuple[S, float]] = []
        self._is_closed = False

    async def close(self) -> None:
        """Close all sessions; those in use when their calls end."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop()[0].close()

    async def call(self, run: Callable[[S], Awaitable[R]]) -> R:
        """What `run` returns for a session, within the time that a call has."""
        session: S | None = None
        try:
            async with asyncio.timeout(self._call_seconds_max), self._slots:
                session = await self._take()
                result = await run(session)
        except NakshaError:
            if session is not None:
                await self._give_back(session)
            raise
        except OSError as error:  # which a TimeoutError is, too
            if session is not None:
                await session.close()
                if session.is_at_risk:
                    message = f"{self._name} gave no answer: {_reason(error)}"
                    raise OutcomeUnknown(message) from error
            raise Unavailable(f"{self._name} cannot be reached: {_reason(error)}") from error
        except BaseException:
            if session is not None:
                await session.close()
            raise
        await self._give_back(session)
        return result

    async def _take(self) -> S:
        """The session that was used last, or a new one."""
        self._check_open()
        while self._idle:
            session, since = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS_MAX or await _lives(session):
                return session
        session = await self._connect()
        if self._is_closed:
            await session.close()
        self._check_open()
        return session

    async def _give_back(self, session: S) -> None:
        if self._is_closed:
            await session.close()
        else:
            self._idle.append((session, time.monotonic()))

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable(f"The catalog on {self._name} is closed")


async def _lives(session: Session) -> bool:
    """Whether it can be used; it is closed if not."""
    alive = False
    try:
        alive = await session.is_alive()
    except OSError:
        pass
    finally:
        if not alive:
            await session.close()
    return alive


def _reason(error: OSError) -> str:
    return str(error) or type(error).__name__


class Progress:
    """What an error means for a call that is carried out piece by piece: when a piece is done, a
    later one that changed nothing no longer says that the call changed nothing."""

    def __init__(self) -> None:
        self._has_changed = False

    async def step(self, piece: Awaitable[R]) -> R:
        try:
            result = await piece
        except Unavailable as error:
            if self._has_changed:
                raise OutcomeUnknown(f"Only a part was carried out: {error}") from error
            raise
        self._has_changed = True
        return result

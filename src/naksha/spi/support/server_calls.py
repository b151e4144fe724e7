"""Calls to a database server, and classification of their failures.

    async def swap(session: MySession) -> bool:
        return await session.execute("swap", changes=True)

    await server.call(swap)

`SessionPool` bounds the number of sessions, runs each call in its own session with a timeout, and
classifies every failure: `Unavailable` when no change was in flight, `OutcomeUnknown` when one
was. A session that was interrupted during a call, by an error, a timeout or cancellation, is closed
and never used again, so that no call reads the response to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

from naksha.model.errors import NakshaError, OutcomeUnknown, Unavailable

IDLE_SECONDS_MAX: Final = 0.05
"""A session that was idle for longer is checked before use, so that a restart of the server does
not make a call fail."""


class ServerSession(Protocol):
    """Connection to a server, used by one call at a time.

    Errors of a driver are converted to two kinds: OSError means that the connection is lost,
    NakshaError that the server has responded, so that the session remains usable.
    """

    is_at_risk: bool
    """Whether a change is in flight: it was sent and may be executed, but has no response yet."""

    async def is_alive(self) -> bool:
        """Return whether the server still responds; OSError counts as False."""

    async def close(self) -> None:
        """Close the connection at once, whatever its state, without waiting for the server."""


S = TypeVar("S", bound=ServerSession)
R = TypeVar("R")


class SessionPool(Generic[S]):
    """Pool of sessions with one server."""

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
        """Close all sessions; those in use are closed when their calls end."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop()[0].close()

    async def call(self, run: Callable[[S], Awaitable[R]]) -> R:
        """Return the result of `run` with a session, within the time limit of a call."""
        session: S | None = None
        try:
            async with asyncio.timeout(self._call_seconds_max), self._slots:
                session = await self._take()
                result = await run(session)
        except NakshaError:
            if session is not None:
                await self._give_back(session)
            raise
        except OSError as error:  # includes TimeoutError
            if session is not None:
                await session.close()
                if session.is_at_risk:
                    message = (
                        f"{self._name} did not respond, and the call may have been executed; "
                        f"check its result before repeating it: {_reason(error)}"
                    )
                    raise OutcomeUnknown(message) from error
            raise Unavailable(f"{self._name} cannot be reached: {_reason(error)}") from error
        except BaseException:
            if session is not None:
                await session.close()
            raise
        await self._give_back(session)
        return result

    async def _take(self) -> S:
        """Return the session that was used last, or a new one."""
        self._check_open()
        while self._idle:
            session, since = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS_MAX or await _is_alive(session):
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
            raise Unavailable(f"The catalog on {self._name} is closed; open it again")


async def _is_alive(session: ServerSession) -> bool:
    """Return whether a session is usable; close it if not."""
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
    return str(error) or ("timeout" if isinstance(error, TimeoutError) else type(error).__name__)


class CallProgress:
    """Error classification of a call that runs in several steps.

    Once a step has changed something, a later step that fails without a change no longer means that
    the call changed nothing.
    """

    def __init__(self) -> None:
        self._has_changed = False

    async def step(self, piece: Awaitable[R]) -> R:
        try:
            result = await piece
        except Unavailable as error:
            if self._has_changed:
                raise OutcomeUnknown(
                    "The call to the catalog was executed only in part; read the object back "
                    f"before you repeat the call: {error}"
                ) from error
            raise
        self._has_changed = True
        return result

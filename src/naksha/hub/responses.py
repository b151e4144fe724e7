"""What handlers answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from naksha.model.state import State

T = TypeVar("T")


class Features:
    """Features on their way out, some at a time, so that an answer of any size needs little memory.

    To be read once: `async for states in answer`. `cursor` is there only after the last of them,
    when there are more than were asked for."""

    def __init__(self, read: Callable[[Features], AsyncIterator[Sequence[State]]]) -> None:
        self.cursor: str | None = None
        self._chunks = read(self)
        self._first: Sequence[State] | None = None

    @classmethod
    async def begun(cls, read: Callable[[Features], AsyncIterator[Sequence[State]]]) -> Features:
        """An answer whose first features are there: what can go wrong mostly went wrong by then,
        while it can still be told."""
        answer = cls(read)
        answer._first = await anext(answer._chunks, ())
        return answer

    @classmethod
    def of(cls, states: Sequence[State], cursor: str | None = None) -> Features:
        """An answer that is in memory already."""
        answer = cls(_nothing)
        answer.cursor = cursor
        answer._first = states
        return answer

    async def __aiter__(self) -> AsyncIterator[Sequence[State]]:
        first, self._first = self._first, None
        if first:
            yield first
        async for states in self._chunks:
            yield states

    async def all(self) -> list[State]:
        """All of them at once, for those who know that they are few."""
        return [state async for states in self for state in states]

    async def aclose(self) -> None:
        """Nobody reads on."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


async def _nothing(_: Features) -> AsyncIterator[Sequence[State]]:
    return
    yield


async def begun(stream: AsyncIterator[T]) -> AsyncIterator[T]:
    """A stream whose first element is there, for the same reason as `Features.begun`."""
    try:
        first = await anext(stream)
    except StopAsyncIteration:
        return stream

    async def whole() -> AsyncIterator[T]:
        yield first
        async for each in stream:
            yield each

    return whole()


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one feature was not written. `position` is its place in the request."""

    id: str | None
    position: int | None
    message: str
    code: str
    field: str | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was done to a feature before it was written, and that its sender should know:
    for example that it was split at the date line."""

    id: str | None
    position: int | None
    message: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a write did. The lists have ids; `states` are those of what was inserted, updated or
    found unchanged, in the order of the request. `version` is the published one, when it was
    published in time."""

    inserted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    failed: tuple[Failure, ...] = ()
    notices: tuple[Notice, ...] = ()
    violations: tuple[dict[str, Any], ...] = ()
    txn: int | None = None
    version: int | None = None


class Count(msgspec.Struct, frozen=True):
    """How many features there are."""

    count: int
    estimated: bool = False

"""What handlers answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from naksha.model.state import Found, State
from naksha.model.statistics import Statistics

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
        # With a tuple in place of None, CPython takes it for the arguments of an exception.
        answer._first = await anext(answer._chunks, None)
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
        async with closing(self._chunks):
            pass


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """A stream that is over when the context is left, also when nobody read its end: what it holds
    open is not left to the garbage collector."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
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
    """Why one feature was not written. `position` is its place in the request, where the features
    and ids of all modifications are counted on; `code` is that of the error tree."""

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
    """What a write did. The lists have ids, each of them once; `retained` are those that were found
    unchanged, or were left alone, or were not there to be deleted. `states` are those of what was
    inserted, updated or retained, in the order of the request, and `tombstones` those of what was
    deleted, both when they were asked for, and with the space. `version` is the published one, when
    it was published in time.

    A client must not overlook that something failed, and existing clients look at nothing but the
    status of an answer, which must be 200 when something was written. So whoever answers over HTTP
    sends, when `failed` is not empty, `failed` with all its members, `failedCount`, and the header
    `Failed-Features` with the same number; and `notices` likewise. When everything failed
    it is an error in the first place: with the status of its kind, and with `error.failures`."""

    inserted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    tombstones: tuple[State, ...] = ()
    failed: tuple[Failure, ...] = ()
    notices: tuple[Notice, ...] = ()
    violations: tuple[dict[str, Any], ...] = ()
    txn: int | None = None
    version: int | None = None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion by query did. `ids` are all of them, or the first `limits.DELETED_IDS_MAX`;
    `count` is always their number."""

    count: int
    ids: tuple[str, ...] = ()
    txn: int | None = None
    version: int | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of purged features, and of those without a tombstone."""

    purged: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()


class Count(msgspec.Struct, frozen=True):
    """How many features there are."""

    count: int
    estimated: bool = False


class FixedVersion(msgspec.Struct, frozen=True):
    """A version that reads the same for ever."""

    ref: str
    """A reference that always means it."""
    line: str
    """What tells it from versions of the same number on other branches, also on former ones."""
    seq_number: int


class Findings(msgspec.Struct, frozen=True):
    """States without their content."""

    found: list[Found]


class TileBytes(msgspec.Struct, frozen=True):
    """A Mapbox Vector Tile; empty if nothing is in it."""

    mvt: bytes


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in a space, and of which versions it is. None is what is not known."""

    statistics: Statistics
    updated_at: int | None = None
    """When it was changed last, epoch milliseconds."""
    min_version: int | None = None
    max_version: int | None = None


class Whereabouts(msgspec.Struct, frozen=True):
    """The storages that a space has features in, by id and number."""

    storages: tuple[str, ...]

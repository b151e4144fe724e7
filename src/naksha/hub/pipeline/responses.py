"""Responses of handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics

T = TypeVar("T")


class Features:
    """Stream of features in chunks, so that a response of any size needs little memory.

    Iterate it once: `async for states in response`. `cursor` is set only after the last chunk, if
    there are more features than the request's limit.
    """

    def __init__(self, read: Callable[[Features], AsyncIterator[Sequence[State]]]) -> None:
        self.cursor: str | None = None
        self._chunks = read(self)
        self._read: list[Sequence[State]] = []
        """Chunks that have been read already."""

    @classmethod
    async def with_first_read(
        cls, read: Callable[[Features], AsyncIterator[Sequence[State]]]
    ) -> Features:
        """Return a stream whose first chunk has been read.

        Most errors occur before the first chunk, while an error response can still be sent.
        """
        response = cls(read)
        await response.has_more()
        return response

    @classmethod
    def of(cls, states: Sequence[State], cursor: str | None = None) -> Features:
        """Return a stream of states that are already in memory."""
        response = cls(_nothing)
        response.cursor = cursor
        response._read.append(states)
        return response

    async def has_more(self) -> bool:
        """Read one more chunk ahead; return whether there was one."""
        # None, not an empty tuple: CPython would use a tuple as the arguments of an exception.
        states = await anext(self._chunks, None)
        if states is not None:
            self._read.append(states)
        return states is not None

    async def is_small(self, bytes_max: int) -> bool:
        """Return whether all features are in memory, reading ahead if they are small so far."""
        size = sum([len(state.raw) for states in self._read for state in states])
        return size <= bytes_max and not await self.has_more()

    async def __aiter__(self) -> AsyncIterator[Sequence[State]]:
        while self._read:
            states = self._read.pop(0)
            if states:
                yield states
        async for states in self._chunks:
            yield states

    async def all(self) -> list[State]:
        """Read all features into memory; for small responses only."""
        found = [state for states in self._read for state in states]
        self._read.clear()
        async for states in self._chunks:
            found += states
        return found

    async def aclose(self) -> None:
        """Stop reading and release the source of the stream."""
        async with closing(self._chunks):
            pass


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a stream when the context is left, even if it was not read to its end.

    Its resources are released immediately, not by the garbage collector.
    """
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def _nothing(_: Features) -> AsyncIterator[Sequence[State]]:
    return
    yield


async def with_first_read(stream: AsyncIterator[T]) -> AsyncIterator[T]:
    """Return a stream whose first element has been read, as `Features.with_first_read` does."""
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
    """The reason why a feature was not written.

    `position` is its index in the request, counted over the features and ids of all modifications;
    `code` is an error code of the error tree.
    """

    id: str | None
    position: int | None
    message: str
    code: str
    field: str | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An adjustment of a feature before it was written, for example a split at the date line."""

    id: str | None
    position: int | None
    message: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a write.

    The lists contain each id once. `retained` are features that were unchanged, left alone, or did
    not exist when they were to be deleted. `states` are the states of inserted, updated and
    retained features in the order of the request, and `tombstones` those of deleted features; both
    only on request, and with `space` set. `version` is the published version, if it was published
    in time.

    Existing clients look only at the HTTP status, which must be 200 if anything was written, but a
    client must be able to notice failures. So if `failed` is not empty, the HTTP response contains
    `failed` with all its members, `failedCount`, and the header `Failed-Features` with the same
    number; likewise for `notices`. If everything failed, the response is an error with the status
    of the first failure's kind and with `error.failures`.
    """

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
    """Result of a deletion by query.

    `count` is the number of deleted features, `ids` their ids, at most `limits.DELETED_IDS_MAX`.
    """

    count: int
    ids: tuple[str, ...] = ()
    txn: int | None = None
    version: int | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a purge: ids of purged features, and of those without a tombstone (`retained`)."""

    purged: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()


class Count(msgspec.Struct, frozen=True):
    """Number of features."""

    count: int
    estimated: bool = False


class FixedVersion(msgspec.Struct, frozen=True):
    """A version whose content never changes."""

    ref: str
    """A version reference that always resolves to it."""
    line: str
    """Distinguishes it from versions with the same number on other branches, also deleted ones."""
    seq_number: int


class FoundFeatures(msgspec.Struct, frozen=True):
    """States without their content."""

    found: list[MatchingState]


class TileBytes(msgspec.Struct, frozen=True):
    """A Mapbox Vector Tile; empty if it contains no features."""

    mvt: bytes


class SpaceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics and version range of a space. None means unknown."""

    statistics: Statistics
    updated_at: int | None = None
    """Time of the last change, in epoch milliseconds."""
    min_version: int | None = None
    max_version: int | None = None


class FeatureStorages(msgspec.Struct, frozen=True):
    """The storages that contain features of a space, by id and number."""

    storages: tuple[str, ...]

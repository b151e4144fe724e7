"""Iteration sorted by properties: `sort=p.name:asc,p.height:desc`.

A space without changing handlers is sorted in its storage: each page costs the database a scan of
all features, and returns only the ids of the page. Handlers may change features, so other spaces
are sorted here: all features are read, and only the keys and ids of the best ones are kept. In both
cases the features of the page are then read by their ids.

The order is that of `SortKey`; equal features are ordered by id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from naksha.hub.pipeline.requests import FindFeatures, ReadFeatures
from naksha.hub.pipeline.responses import Features, FoundFeatures
from naksha.hub.query_language.properties import property_path
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState, State
from naksha.spi.query.sort_keys import json_values, rank_of

Send = Callable[[ReadFeatures], Awaitable[Features]]
Find = Callable[
    [ReadFeatures, Sequence[SortKey], MatchingState | None, int], Awaitable[list[MatchingState]]
]
"""Returns the first features of a read, up to a number, after a given one."""
_DIRECTIONS: Final = ("asc", "desc")


class SortCursor(msgspec.Struct, frozen=True, array_like=True):
    """The last feature of a page, and the version that it was read at."""

    ref: str
    last: MatchingState


class _Reversed:
    """Sort key with the opposite order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash((_Reversed, self.value))


Ranked = tuple[tuple[Any, ...], str, MatchingState]
"""The key of a feature, its id, and the found entry; ids are unique."""


def parse_sort(text: str) -> list[SortKey]:
    """Parse the parameter `sort`."""
    keys = [_sort_key(name) for name in text.split(",") if name]
    if not 1 <= len(keys) <= limits.SORT_KEYS_MAX:
        raise InvalidArgument(
            f'Parameter "sort" names {len(keys)} properties; it must name 1 to '
            f"{limits.SORT_KEYS_MAX}",
            field="sort",
        )
    return keys


def _sort_key(text: str) -> SortKey:
    name, _, direction = text.partition(":")
    if direction.lower() not in ("", *_DIRECTIONS) or not name.startswith(
        ("p.", "f.", "properties.")
    ):
        raise InvalidArgument(
            f"{text!r:.64} is not a valid sort key; write p.name, p.name:asc or f.id:desc",
            field="sort",
        )
    return SortKey(property_path(name), direction.lower() == "desc")


def decode_after(text: str) -> SortCursor:
    """Parse the cursor of a sorted page."""
    try:
        return msgspec.json.decode(text, type=SortCursor)
    except msgspec.DecodeError:
        raise InvalidArgument(
            "The handle does not come from a sorted iteration; restart without a handle",
            field="handle",
        ) from None


async def read_sorted(
    send: Send,
    find: Find,
    read: ReadFeatures,
    keys: Sequence[SortKey],
    after: SortCursor | None,
) -> Features:
    """Return a page. `read` names the version, which must be the same for all pages."""
    last = None if after is None else after.last
    if last is not None and len(last.values) != len(keys):
        raise InvalidArgument(
            "The handle comes from an iteration with another sort; restart without a handle",
            field="handle",
        )
    page_size = read.query.limit or limits.PAGE_DEFAULT
    # Ask for one more to see whether there are more; a page of the maximum size cannot tell.
    read_size = min(page_size + 1, limits.PAGE_MAX)
    best = await find(read, keys, last, read_size)
    more, best = len(best) > page_size or len(best) == limits.PAGE_MAX, best[:page_size]
    response = await Features.with_first_read(
        lambda _: _in_order(send, read, [one.id for one in best])
    )
    if more:
        response.cursor = msgspec.json.encode(SortCursor(read.ref, best[-1])).decode()
    return response


def sort_in_storage(find: Callable[[FindFeatures], Awaitable[FoundFeatures]]) -> Find:
    """Return a function that sorts in the storage."""

    async def found(
        read: ReadFeatures, keys: Sequence[SortKey], after: MatchingState | None, count: int
    ) -> list[MatchingState]:
        query = msgspec.structs.replace(read.query, limit=count)
        request = FindFeatures(query=query, ref=read.ref, sort=tuple(keys), after=after)
        return (await find(request)).found

    return found


def sort_in_memory(send: Send) -> Find:
    """Return a function that sorts the features that the pipeline returns."""

    async def found(
        read: ReadFeatures, keys: Sequence[SortKey], after: MatchingState | None, count: int
    ) -> list[MatchingState]:
        begin = None if after is None else (_key_of(after, keys), after.id)
        unpaged = msgspec.structs.replace(read.query, limit=None, cursor=None)
        response = await send(msgspec.structs.replace(read, query=unpaged, paged=False))
        best: list[Ranked] = []
        async for states in response:
            for state in states:
                values = _values(state, keys)
                key = _key(values, keys)
                if begin is None or begin < (key, state.id):
                    best.append((key, state.id, MatchingState(state.id, "", json_values(values))))
            if len(best) > 2 * count:
                best = _first(best, count)
        return [one for _, _, one in _first(best, count)]

    return found


def _first(ranked: list[Ranked], count: int) -> list[Ranked]:
    return sorted(ranked, key=lambda one: one[:2])[:count]


def _values(state: State, keys: Sequence[SortKey]) -> list[Any]:
    feature = state.feature
    return [_at(feature, key.path) for key in keys]


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _key_of(found: MatchingState, keys: Sequence[SortKey]) -> tuple[Any, ...]:
    try:
        values = [None if one is None else msgspec.json.decode(one) for one in found.values]
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidArgument(
            "The handle does not come from a sorted iteration; restart without a handle",
            field="handle",
        ) from None
    return _key(values, keys)


def _key(values: Sequence[Any], keys: Sequence[SortKey]) -> tuple[Any, ...]:
    return tuple(
        (1, 0)
        if value is None
        else (0, _Reversed(_rank(value)) if key.descending else _rank(value))
        for value, key in zip(values, keys, strict=True)
    )


def _rank(value: Any) -> tuple[int, Any]:
    """Return the rank of a value; objects and arrays are all equal."""
    return rank_of(value), 0 if isinstance(value, list | dict) else value


async def _in_order(
    send: Send, read: ReadFeatures, ids: Sequence[str]
) -> AsyncIterator[Sequence[State]]:
    """Yield the features with these ids, in this order."""
    for start in range(0, len(ids), limits.READ_CHUNK_FEATURES):
        some = tuple(ids[start : start + limits.READ_CHUNK_FEATURES])
        query = Query(ids=some, space=read.query.space)
        found = await send(msgspec.structs.replace(read, query=query, paged=False))
        by_id = {state.id: state for state in await found.all()}
        yield [by_id[id] for id in some if id in by_id]

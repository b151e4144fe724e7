"""An iteration in the order of properties: `sort=p.name:asc,p.height:desc`.

Storages page in the order of ids only, and handlers may change what they give. So a page in another
order is chosen from all features, of which only the best are kept, by their keys and ids; these are
then read again by id. It costs a read of the whole space for each page, and memory for one page.

Numbers come before texts, these before true and false, these before arrays and objects; what is
null or missing comes last, whichever the direction. Equal ones are in the order of their ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.language.properties import property_path
from naksha.hub.requests import ReadFeatures
from naksha.hub.responses import Features
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.state import State

Send = Callable[[ReadFeatures], Awaitable[Features]]
_DIRECTIONS: Final = ("asc", "desc")
_MISSING: Final = (1, 0)


class SortKey(NamedTuple):
    """A property, and in which direction."""

    path: tuple[str, ...]
    descending: bool


class After(msgspec.Struct, frozen=True, array_like=True):
    """The last feature of a page, and the version that it was read at."""

    ref: str
    values: list[Any]
    id: str


class _Reversed:
    """The opposite order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash((_Reversed, self.value))


Ranked = tuple[tuple[Any, ...], str, list[Any]]
"""The key of a feature, its id, and its values; no two have the same id."""


def parse_sort(text: str) -> list[SortKey]:
    """What `sort` means."""
    keys = [_sort_key(name) for name in text.split(",") if name]
    if not 1 <= len(keys) <= limits.SORT_KEYS_MAX:
        raise InvalidArgument(f"It names 1 to {limits.SORT_KEYS_MAX} properties", field="sort")
    return keys


def _sort_key(text: str) -> SortKey:
    name, _, direction = text.partition(":")
    if direction.lower() not in ("", *_DIRECTIONS) or not name.startswith(
        ("p.", "f.", "properties.")
    ):
        raise InvalidArgument(
            f"{text!r:.64} is nothing to sort by; write p.name, p.name:asc or f.id:desc",
            field="sort",
        )
    return SortKey(property_path(name), direction.lower() == "desc")


def decode_after(text: str) -> After:
    """Reads what an answer had as its cursor."""
    try:
        return msgspec.json.decode(text, type=After)
    except msgspec.DecodeError:
        raise InvalidArgument("It is no handle of a sorted iteration", field="handle") from None


async def read_sorted(
    send: Send,
    read: ReadFeatures,
    keys: Sequence[SortKey],
    after: After | None,
    takes: Callable[[str], bool] | None = None,
) -> Features:
    """A page. `read` says at which version, and that must be the same for all pages; `takes` says
    by its id whether a feature is of interest at all."""
    if after is not None and len(after.values) != len(keys):
        raise InvalidArgument("It is the handle of an iteration in another order", field="handle")
    wanted = read.query.limit or limits.PAGE_DEFAULT
    best = await _best(send, read, keys, after, takes, wanted + 1)
    more, best = len(best) > wanted, best[:wanted]
    answer = await Features.begun(lambda _: _in_order(send, read, [id for _, id, _ in best]))
    if more:
        _, id, values = best[-1]
        answer.cursor = msgspec.json.encode(After(read.ref, values, id)).decode()
    return answer


async def _best(
    send: Send,
    read: ReadFeatures,
    keys: Sequence[SortKey],
    after: After | None,
    takes: Callable[[str], bool] | None,
    count: int,
) -> list[Ranked]:
    """The first `count` features behind the last page."""
    everything = msgspec.structs.replace(read.query, limit=None, cursor=None)
    found = await send(msgspec.structs.replace(read, query=everything, paged=False))
    begin = None if after is None else (_key(after.values, keys), after.id)
    best: list[Ranked] = []
    async for states in found:
        for state in states:
            if takes is not None and not takes(state.id):
                continue
            values = _values(state, keys)
            ranked = (_key(values, keys), state.id, values)
            if begin is None or begin < ranked[:2]:
                best.append(ranked)
        if len(best) > 2 * count:
            best = _first(best, count)
    return _first(best, count)


def _first(ranked: list[Ranked], count: int) -> list[Ranked]:
    return sorted(ranked, key=lambda one: one[:2])[:count]


def _values(state: State, keys: Sequence[SortKey]) -> list[Any]:
    feature = msgspec.json.decode(state.raw)
    return [_at(feature, key.path) for key in keys]


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _key(values: Sequence[Any], keys: Sequence[SortKey]) -> tuple[Any, ...]:
    return tuple(
        _MISSING
        if value is None
        else (0, _Reversed(_rank(value)) if key.descending else _rank(value))
        for value, key in zip(values, keys, strict=True)
    )


def _rank(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, str):
        return 1, value
    return 3, msgspec.json.encode(value, order="sorted")


async def _in_order(
    send: Send, read: ReadFeatures, ids: Sequence[str]
) -> AsyncIterator[Sequence[State]]:
    """The features with these ids."""
    for start in range(0, len(ids), limits.READ_CHUNK_FEATURES):
        some = tuple(ids[start : start + limits.READ_CHUNK_FEATURES])
        query = Query(ids=some, space=read.query.space)
        found = await send(msgspec.structs.replace(read, query=query, paged=False))
        by_id = {state.id: state for state in await found.all()}
        yield [by_id[id] for id in some if id in by_id]

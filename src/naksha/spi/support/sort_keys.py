"""The order of states by their members, as all storages have it (see `SortKey`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.query import Query, SortKey, States
from naksha.model.state import Found

MISSING: Final = 4
"""The rank of what is null or absent, in either direction."""
_NUMBER, _TEXT, _BOOLEAN, _NESTED = range(MISSING)
_DIGITS_MAX: Final = 400
"""More than any double has before or behind its point."""

Fill: TypeAlias = Callable[..., str]
"""Fills a named fragment of a storage's SQL."""


class Place(NamedTuple):
    """Where something comes in the order of a key: by its rank, then by its value where those of
    its rank have one. `json` is the value as it was given."""

    rank: int
    value: str | int | float | None
    json: str


def check_found(query: Query, sort: Sequence[SortKey], after: Found | None) -> None:
    """Refuse what `Reader.found` cannot answer."""
    if query.states is States.ALL or query.replaced_since is not None:
        raise InvalidArgument("Of each feature only one state can be found", field="states")
    if len(sort) > limits.SORT_KEYS_MAX:
        raise LimitExceeded(f"More than {limits.SORT_KEYS_MAX} keys", field="sort")
    if after is not None and len(after.values) != len(sort):
        raise InvalidArgument("It was found in another order", field="after")


def place_of(json: str | None, key: SortKey) -> Place:
    """The place of a value of `Found.values`."""
    if json is None:
        return Place(MISSING, None, "null")
    try:
        value = msgspec.json.decode(json)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidArgument(
            "It was not found here: its values are no JSON", field="after"
        ) from None
    rank = rank_of(value)
    if rank == MISSING:
        return Place(MISSING, None, "null")
    if rank == _NUMBER:
        _check_number(json)
    if isinstance(value, list | dict):
        value = None
    return Place(_NESTED - rank if key.descending else rank, value, json)


def rank_of(value: Any) -> int:
    """Which kinds come before which others."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, int | float):
        return _NUMBER
    return _TEXT if isinstance(value, str) else _NESTED


def _check_number(json: str) -> None:
    """No storage has numbers that are larger than any double, or smaller."""
    try:
        is_one = abs(Decimal(json).adjusted()) < _DIGITS_MAX and len(json) < 2 * _DIGITS_MAX
    except InvalidOperation:
        is_one = False
    if not is_one:
        raise InvalidArgument("It was not found here: a value is no number", field="after")


class Last(NamedTuple):
    """A key in SQL (its rank and, where that does not say all, its value), and what the last
    state has there."""

    key: SortKey
    rank: str
    value: str | None
    then_rank: int
    then_value: str


def behind(fill: Fill, last: Sequence[Last], rest: str) -> str:
    """The condition that a state comes after the last one; `rest` decides where all is equal."""
    condition = rest
    for key, rank, value, then_rank, then_value in reversed(last):
        if value is not None:
            operator = "<" if key.descending else ">"
            condition = fill(
                "behind_value", value=value, then=then_value, operator=operator, rest=condition
            )
        condition = fill("behind_rank", rank=rank, then=str(then_rank), rest=condition)
    return condition


def json_values(values: Iterable[Any]) -> tuple[str | None, ...]:
    """Values as `Found` has them."""
    return tuple(
        None
        if value is None
        else "[]"
        if isinstance(value, list | dict)
        else msgspec.json.encode(value).decode()
        for value in values
    )

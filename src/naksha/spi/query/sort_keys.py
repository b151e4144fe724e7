"""Sort order of states by their members, the same for all storages (see `SortKey`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.query import Query, SortKey, States
from naksha.model.state import MatchingState
from naksha.spi.query.printer import Printer

MISSING: Final = 4
"""Rank of a null or absent value, in either direction."""
_NUMBER, _TEXT, _BOOLEAN, _NESTED = range(MISSING)
_DIGITS_MAX: Final = 400
"""More than any double has before or after its decimal point."""


class SortPosition(NamedTuple):
    """Position of a value in the order of a key: by rank, then by value if the rank has values.

    `json` is the value as given.
    """

    rank: int
    value: str | int | float | None
    json: str


def check_matching_query(
    query: Query, sort: Sequence[SortKey], after: MatchingState | None
) -> None:
    """Refuse arguments that `Reader.found` does not support."""
    if query.states is States.ALL or query.replaced_since is not None:
        raise InvalidArgument(
            "A sorted query returns one state of each feature; it supports neither all states nor "
            "replaced_since",
            field="states",
        )
    if len(sort) > limits.SORT_KEYS_MAX:
        raise LimitExceeded(
            f"The query has {len(sort)} sort keys, but at most {limits.SORT_KEYS_MAX} are allowed",
            field="sort",
        )
    if after is not None and len(after.values) != len(sort):
        raise InvalidArgument(
            f"The position to continue after has {len(after.values)} sort values, but the query "
            f"has {len(sort)} sort keys; repeat the sort order of the previous page",
            field="after",
        )


def sort_position_of(json: str | None, key: SortKey) -> SortPosition:
    """Return the position of a value of `MatchingState.values`."""
    if json is None:
        return SortPosition(MISSING, None, "null")
    try:
        value = msgspec.json.decode(json)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidArgument(
            f"The sort value {json!r:.64} of the position to continue after is not valid JSON; "
            "use the position of the previous page",
            field="after",
        ) from None
    rank = rank_of(value)
    if rank == MISSING:
        return SortPosition(MISSING, None, "null")
    if rank == _NUMBER:
        _check_number(json)
    if isinstance(value, list | dict):
        value = None
    return SortPosition(_NESTED - rank if key.descending else rank, value, json)


def rank_of(value: Any) -> int:
    """Return the rank of a value's type."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, int | float):
        return _NUMBER
    return _TEXT if isinstance(value, str) else _NESTED


def _check_number(json: str) -> None:
    """Refuse numbers beyond the range of doubles, which no storage can have stored."""
    try:
        is_one = abs(Decimal(json).adjusted()) < _DIGITS_MAX and len(json) < 2 * _DIGITS_MAX
    except InvalidOperation:
        is_one = False
    if not is_one:
        raise InvalidArgument(
            f"The sort value {json!r:.64} of the position to continue after is not a number in "
            "the range of a double; use the position of the previous page",
            field="after",
        )


def json_values(values: Iterable[Any]) -> tuple[str | None, ...]:
    """Convert values to the form of `MatchingState.values`."""
    return tuple(
        None
        if value is None
        else "[]"
        if isinstance(value, list | dict)
        else msgspec.json.encode(value).decode()
        for value in values
    )


# ---- In SQL ----------------------------------------------------------------------------------


def order_by(printer: Printer, sort: Sequence[SortKey]) -> str:
    """Return the sort expressions of the keys, each with a comma."""
    return "".join(
        printer.fill(
            "sort_by",
            n=str(n),
            rank=_rank(printer, n, key),
            number=printer.fill("sort_number", n=str(n)),
            text=printer.fill("sort_text", n=str(n)),
            direction="DESC" if key.descending else "ASC",
        )
        + " "
        for n, key in enumerate(sort)
    )


def sorted_after(printer: Printer, sort: Sequence[SortKey], after: MatchingState) -> str:
    """Return the condition that a state comes after the last one of a page."""
    condition = printer.fill("found_after_id", id=printer.text(after.id))
    last = list(enumerate(zip(sort, after.values, strict=True)))
    for n, (key, json) in reversed(last):
        position = sort_position_of(json, key)
        if position.value is not None:
            is_text = isinstance(position.value, str)
            condition = printer.fill(
                "behind_value",
                value=printer.fill("sort_text" if is_text else "sort_number", n=str(n)),
                then=_value(printer, position),
                operator="<" if key.descending else ">",
                rest=condition,
            )
        rank = _rank(printer, n, key)
        condition = printer.fill("behind_rank", rank=rank, then=str(position.rank), rest=condition)
    return condition


def _rank(printer: Printer, n: int, key: SortKey) -> str:
    return printer.fill("sort_rank_descending" if key.descending else "sort_rank", n=str(n))


def _value(printer: Printer, position: SortPosition) -> str:
    value = position.value
    if isinstance(value, str):
        return printer.text(value)
    return printer.decimal(str(int(value)) if isinstance(value, bool) else position.json)

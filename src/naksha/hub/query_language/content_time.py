"""Filter of space lists by the time of the last change: `contentUpdatedAt>1700000000000`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX

NAME: Final = "contentUpdatedAt"
Test = Callable[[int], bool]
_PAIR: Final = re.compile(rf"{NAME}(=gte=|=lte=|=gt=|=lt=|>=|<=|!=|>|<|=)([^=]*)=?")
_OPERATORS: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    **dict.fromkeys((">", "=gt="), operator.gt),
    **dict.fromkeys((">=", "=gte="), operator.ge),
    **dict.fromkeys(("<", "=lt="), operator.lt),
    **dict.fromkeys(("<=", "=lte="), operator.le),
}


def content_time_tests(raw: str | bytes) -> list[Test]:
    """Parse the conditions on the time (epoch milliseconds), all of which must hold.

    Of several values separated by commas one must match. Operators are those of property queries.
    """
    return [
        _test(pair)
        for pair in (decoded(pair, NAME) for pair in raw_pairs(raw))
        if re.match(rf"{NAME}($|\W)", pair)
    ]


def _test(pair: str) -> Test:
    found = _PAIR.fullmatch(pair)
    if found is None:
        raise InvalidArgument(
            f"{pair!r:.80} is not a valid condition; write for example {NAME}>1700000000000",
            field=NAME,
        )
    compare = _OPERATORS[found[1]]
    values = [_number(value) for value in found[2].split(",")]
    return lambda time: any(compare(time, value) for value in values)


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 19 or int(text) > INT8_MAX:
        raise InvalidArgument(
            f"{NAME} must be a time in epoch milliseconds, not {text!r:.40}", field=NAME
        )
    return int(text)

"""Values to compare with: checks, and the form in which storages compare them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.value_text import value_text


def check_text(text: str) -> None:
    """Refuse text that no stored text can be equal to."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"The text {text!r:.64} of the query must not contain an unpaired surrogate "
            "(U+D800 to U+DFFF)",
            field="query",
        ) from None
    if "\0" in text:
        raise InvalidArgument(
            f"The text {text!r:.64} of the query must not contain the character U+0000 (NUL)",
            field="query",
        )


def json_text(value: Any) -> str:
    """Encode a value to compare with as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"The number {value} of the predicate must be finite", field="where")
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"The value of the predicate, {value_text(value)}, is not valid JSON: {error}",
            field="where",
        ) from None


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text after all that begin with a prefix, or None if there is none.

    With it a prefix test becomes a range, which an index supports.
    """
    end = prefix.rstrip(chr(0x10FFFF))
    if not end:
        return None
    code = ord(end[-1])
    # Skip the surrogates, which are not characters.
    return end[:-1] + chr(0xE000 if code == 0xD7FF else code + 1)

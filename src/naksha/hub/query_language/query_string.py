"""Query strings as received: raw and encoded characters differ in meaning.

A raw comma separates values where an encoded one is data, and a raw `+` can join tags, so the
parsers of this package start from the raw text and decode as late as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

from naksha.model.errors import InvalidArgument


def _raw_text(raw: str | bytes) -> str:
    """Return a query string as text; other bytes than ASCII must be UTF-8."""
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("The query string is not valid UTF-8", field="query") from None


def raw_pairs(raw: str | bytes) -> Iterator[str]:
    """Yield the non-empty parts between ampersands without decoding them."""
    return filter(None, _raw_text(raw).removeprefix("?").split("&"))


def raw_values(raw: str | bytes, name: str) -> list[str]:
    """Return all values of a parameter without decoding them; its name may be encoded."""
    if not raw:
        return []
    pairs = (pair.partition("=") for pair in raw_pairs(raw))
    return [value for key, _, value in pairs if decoded(key, name) == name]


def decoded(text: str, field: str, *, plus_is_space: bool = True) -> str:
    """Decode percent-encoding, and refuse text that a storage cannot keep."""
    try:
        plain = (unquote_plus if plus_is_space else unquote)(text, errors="strict")
        plain.encode()
    except UnicodeError:
        raise InvalidArgument(
            f'Parameter "{field}" is not valid UTF-8 after percent-decoding', field=field
        ) from None
    if "\0" in plain:
        raise InvalidArgument(
            f'Parameter "{field}" contains the NUL character, which cannot be stored', field=field
        )
    return plain

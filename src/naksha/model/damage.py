"""Lenient reading of stored features that are damaged.

The write paths refuse such features. They come from plain SQL under an older version, from a writer
that disabled triggers, or from a damaged file. A read must survive them: otherwise one damaged
feature would block every page, version and subscription that contains it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from naksha.model.errors import StorageCorrupt
from naksha.model.limits import JSON_DEPTH_MAX

DAMAGED: Final = "@ns:naksha:damaged"
"""Member that marks a damaged feature and has the `field` and the `problem`. Clients cannot store
it; SQLite files contain it in place of a lost value (`naksha.sqlite.schema.shell`)."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that a JSON decoder raises for a damaged feature."""

BROKEN_GEOMETRY: Final = (
    f'null,"{DAMAGED}":{{"field":"geometry","problem":"the stored GeoJSON is broken"}}'
)
"""JSON text that replaces a geometry whose stored text is not GeoJSON."""

_NULL: Final = "null"
_TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<open>[\[{])|(?P<close>[\]}])|(?P<number>-?[0-9][-+.0-9eE]*)'
    r'|[^"\[\]{}0-9-]+|.',
    re.DOTALL,
)
_SHAPE: Final = bytes(
    {**dict.fromkeys(b"0123456789", ord("0")), ord("e"): ord("e"), ord("E"): ord("e")}.get(byte, 32)
    for byte in range(256)
)
"""Translation table: digits become `0`, exponent signs `e`, every other byte a blank."""
_LARGE: Final = (b"0e000", b"0" * 309)
"""A translated number that exceeds a double contains one of these; other texts may contain them,
too."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def decode_feature(raw: bytes | str) -> dict[str, Any]:
    """Parse a stored feature, replacing unreadable values by null.

    A geometry with an unreadable value becomes null as a whole. A feature in which a value was
    replaced gets the member `DAMAGED`.

    Raises:
        StorageCorrupt: The text is not JSON at all.
    """
    feature: dict[str, Any]
    try:
        feature = _decode(raw)
    except UNREADABLE as error:
        problem = str(error)
        text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
        try:
            feature = _decode("".join(map(_readable, _shallow(text))))
        except (*UNREADABLE, json.JSONDecodeError) as again:
            raise StorageCorrupt(
                f"A stored feature is not JSON: {again}; its text begins with {text!r:.80}"
            ) from error
        field = "document"
        if _NULL.encode() in _encode(feature.get("geometry") or {}):
            feature["geometry"], field = None, "geometry"
        feature.setdefault(DAMAGED, {"field": field, "problem": f"cannot be read: {problem}"})
    return feature


def may_overflow(raw: bytes) -> bool:
    """Return whether a feature may contain a number out of range; cheap, and rarely true."""
    shape = raw.translate(_SHAPE, b"+")
    return any(large in shape for large in _LARGE)


def _shallow(text: str) -> list[re.Match[str] | str]:
    """Split JSON into tokens, with null in place of values that are nested too deeply."""
    found: list[re.Match[str] | str] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += token.lastgroup == "open"
        if depth <= JSON_DEPTH_MAX:
            found.append(token)
        elif depth == JSON_DEPTH_MAX + 1 and token.lastgroup == "open":
            found.append(_NULL)
        depth -= token.lastgroup == "close"
    return found


def _readable(token: re.Match[str] | str) -> str:
    """Return the token, or a readable replacement.

    A number out of range becomes null; a string loses lone surrogates and control characters.
    """
    if isinstance(token, str):
        return token
    text = token[0]
    if token.lastgroup not in ("text", "number"):
        return text
    try:
        _decode(text)
    except UNREADABLE:
        if token.lastgroup == "number":
            return _NULL
        whole: str = json.loads(text, strict=False)
        return _encode(whole.encode("utf-8", "replace").decode()).decode()
    return text

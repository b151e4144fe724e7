"""Stored features that cannot be read as they are, and what is left of them.

The write paths refuse such features; only plain SQL under an older version, a writer that switched
triggers off, or a damaged file leaves one behind. Reading must survive it, or it would block every
page, version and subscription that contains it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from naksha.model.errors import StorageCorrupt
from naksha.model.limits import JSON_DEPTH_MAX

DAMAGED: Final = "@ns:naksha:damaged"
"""Member of a feature that cannot be read as it is stored: the `field` and the `problem`. Clients
cannot store it; SQLite files do, in the place of what was lost (`naksha.sqlite.schema.shell`)."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder that gets such a feature."""

BROKEN_GEOMETRY: Final = (
    f'null,"{DAMAGED}":{{"field":"geometry","problem":"the stored GeoJSON is broken"}}'
)
"""In the text of a feature, the place of a geometry whose stored text is not GeoJSON."""

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
"""Digits and exponents of a text, blanks for the rest."""
_LARGE: Final = (b"0e000", b"0" * 309)
"""Digits that every number out of range of a double contains; other texts may, too."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def decode_feature(raw: bytes | str) -> dict[str, Any]:
    """Parse a stored feature. When a value is unreadable it becomes null (a geometry as a whole),
    and the feature gets the member `DAMAGED`.

    Raises:
        StorageCorrupt: It is not JSON at all.
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
            raise StorageCorrupt(f"A stored feature is not JSON: {again}") from error
        field = "document"
        if _NULL.encode() in _encode(feature.get("geometry") or {}):
            feature["geometry"], field = None, "geometry"
        feature.setdefault(DAMAGED, {"field": field, "problem": f"cannot be read: {problem}"})
    return feature


def may_overflow(raw: bytes) -> bool:
    """Whether a feature may have a number that is out of range: cheap, and nearly never true."""
    shape = raw.translate(_SHAPE, b"+")
    return any(large in shape for large in _LARGE)


def _shallow(text: str) -> list[re.Match[str] | str]:
    """The tokens of JSON, with null for what is nested too deeply."""
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
    """A token, or what stands for it: null for a number out of range, and a text without lone
    surrogates and control characters."""
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

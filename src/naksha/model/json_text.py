"""Edits of JSON text: members are added to objects, or replaced, and all other text stays as it is.

Stored features are edited as text, because parsing and encoding them costs more than everything
else that is done with them. A member that is not found with certainty in the text (its name may
also occur inside of a string or further down) is found by parsing the levels above it.

Features of bulk loads are built from columns, with `properties` as the last member. There the place
of the namespace, the end of `properties`, is known without a search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from naksha.model.features import NAMESPACE

Members = dict[str, msgspec.Raw]

_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines
_members: Final = msgspec.json.Decoder(Members).decode
_FEATURE: Final = b'{"type":"Feature"'
_PROPERTIES: Final = b'"properties":{'
_ENDS: Final = (b'"txn_next":"', b'"txn_next": "')
_NAMESPACE: Final = re.compile(rf'"{re.escape(NAMESPACE)}": ?{{'.encode())


# ---- Any object ----------------------------------------------------------------------------------


def open_object(members: Mapping[str, Any]) -> bytes:
    """Return the JSON of an object with at least one member, up to its closing brace."""
    return _encode(members)[:-1]


def close_object(members: Mapping[str, Any]) -> bytes:
    """Return the text that adds members to an open object, and closes it."""
    return b"," + _encode(members)[1:] if members else b"}"


def with_first(text: bytes, name: str, value: bytes) -> bytes:
    """Return an object with one more member, in front of the others."""
    comma = b"" if text == b"{}" else b","
    return b'{"%b":%b%b%b' % (name.encode(), value, comma, text[1:])


def with_last(text: bytes, name: str, value: bytes) -> bytes:
    """Return an object with one more member, after the others."""
    comma = b"" if text == b"{}" else b","
    return b'%b%b"%b":%b}' % (text[:-1], comma, name.encode(), value)


# ---- Features ------------------------------------------------------------------------------------


def with_namespace(feature: bytes, namespace: bytes) -> bytes:
    """Return a feature that has no namespace with one, as the first of its properties.

    The feature is compact JSON with `properties`.
    """
    start, place, rest = feature.partition(_PROPERTIES)
    if not place or _PROPERTIES in rest:
        return _with_properties(feature, lambda text: with_first(text, NAMESPACE, namespace))
    comma = b"" if rest.startswith(b"}") else b","
    return b'%b%b"%b":%b%b%b' % (start, place, NAMESPACE.encode(), namespace, comma, rest)


def with_in_namespace(feature: bytes, name: str, value: bytes) -> bytes:
    """Return a feature with one more member in its namespace, in front of the others."""
    found = _NAMESPACE.search(feature)
    if found is None or _NAMESPACE.search(feature, found.end()) is not None:
        return _with_namespace(feature, lambda text: with_first(text, name, value))
    cut = found.end()
    comma = b"" if feature.startswith(b"}", cut) else b","
    return b'%b"%b":%b%b%b' % (feature[:cut], name.encode(), value, comma, feature[cut:])


def with_txn_next(feature: bytes, old: str, new: str) -> bytes:
    """Return a state of a feature with another `txn_next` in its namespace."""
    ends = [(b'%b%b"' % (start, old.encode()), b'%b%b"' % (start, new.encode())) for start in _ENDS]
    if sum(feature.count(before) for before, _ in ends) == 1:
        for before, after in ends:
            feature = feature.replace(before, after)
        return feature

    def changed(namespace: bytes) -> bytes:
        return _encode(_members(namespace) | {"txn_next": new})

    return _with_namespace(feature, changed)


def _with_namespace(feature: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    return _with_properties(feature, lambda text: _with_member(text, NAMESPACE, edit))


def _with_properties(feature: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    return _with_member(feature, "properties", edit)


def _with_member(text: bytes, name: str, edit: Callable[[bytes], bytes]) -> bytes:
    """Return an object with an edited member; the text of all other members stays."""
    members = _members(text)
    members[name] = msgspec.Raw(edit(bytes(members[name])))
    return _encode(members)


# ---- Features whose `properties` come last -------------------------------------------------------


def features_of(
    ids: Sequence[str],
    properties: Iterable[Mapping[str, Any] | None],
    members: Sequence[Mapping[str, Any] | None],
) -> list[bytes]:
    """Return features that are given as columns; `members` are all others, `type` excepted."""
    starts = [_FEATURE] * len(ids)
    if any(members):
        starts = [b"%b,%b" % (_FEATURE, _encode(m)[1:-1]) if m else _FEATURE for m in members]
    names = _encode_lines(ids).split(b"\n")
    bodies = _encode_lines([each or {} for each in properties]).split(b"\n")
    return [
        b'%b,"id":%b,"properties":%b}' % parts for parts in zip(starts, names, bodies, strict=False)
    ]


def open_properties(feature: bytes) -> bytes:
    """Return a feature up to the last brace of its `properties`, ready for one more of them."""
    # At this position only an empty object has its opening brace.
    return feature[:-2] if feature[-3:-2] == b"{" else feature[:-2] + b","


def close_namespace(tags: list[str] | None, crid: str | None, qrid: str | None) -> bytes:
    """Return the text that ends the namespace, as the last property, and with it the feature."""
    words = b"[]" if tags is None else _encode(tags)
    quad = b"null" if qrid is None else b'"%b"' % qrid.encode()
    own = _encode(crid or None)
    mrid = own if crid else quad
    return b'"tags":%b,"crid":%b,"qrid":%b,"mrid":%b}}}' % (words, own, quad, mrid)

"""Edits of JSON text: members are added to objects, or replaced, and all other text stays as it is.

Stored features are edited as text, because parsing and encoding them costs more than everything
else that is done with them. A member that is not found with certainty in the text (its name may
also occur inside of a string or further down) is found by parsing the levels above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from naksha.model.features import NAMESPACE

Members = dict[str, msgspec.Raw]

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(Members).decode
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

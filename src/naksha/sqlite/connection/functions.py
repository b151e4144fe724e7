"""SQL functions in Python, for tests that SQLite's own functions cannot express.

Only queries use them. Tables, indices and triggers use SQLite alone, so that other programs can use
the file without this code.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from hashlib import md5
from typing import Any

import msgspec
import shapely

from naksha.model.damage import UNREADABLE, decode_feature
from naksha.model.features import is_deep
from naksha.model.merge import ABSENT
from naksha.model.query import Test as PropertyTest
from naksha.model.query import id_hash
from naksha.spi.query.predicates import holds as holds_of
from naksha.spi.query.predicates import member_at

_decode_test = msgspec.json.Decoder(PropertyTest).decode


def add_functions(connection: sqlite3.Connection) -> None:
    """Register the functions on a connection."""
    connection.create_function("naksha_holds", 2, holds, deterministic=True)
    connection.create_function("naksha_has_text", 2, _has_text, deterministic=True)
    connection.create_function("naksha_member", 2, member, deterministic=True)
    connection.create_function("naksha_key", 2, key, deterministic=True)
    connection.create_function("naksha_id_hash", 1, _hash_start, deterministic=True)
    connection.create_function("naksha_same_geometry", 2, _same_geometry, deterministic=True)
    connection.create_function("naksha_is_readable", 1, _is_readable, deterministic=True)


def holds(jsondata: bytes, test: str) -> bool:
    """Return whether a test (as JSON) is true of a document; false for an absent member."""
    return holds_of(decode_feature(jsondata), _test(test))


def _has_text(text: str | None, part: str) -> bool:
    """Return whether a text contains another one, ignoring case; SQLite folds ASCII only."""
    return text is not None and part.lower() in text.lower()


def member(jsondata: bytes, path: str) -> str | None:
    """Return the member at a path (as JSON) of a document, as JSON."""
    found = member_at(decode_feature(jsondata), _path(path))
    return None if found is ABSENT else msgspec.json.encode(found).decode()


def key(jsondata: str | bytes, path: str) -> str | None:
    """Return the member at a path (as JSON) of a document in canonical form.

    Values that are equal as JSON have the same text. None for an absent member and for null.
    """
    found = member_at(decode_feature(jsondata), _path(path))
    if found is ABSENT or found is None:
        return None
    return msgspec.json.encode(_plain(found), order="sorted").decode()


def _plain(value: Any) -> Any:
    """Normalize numbers: integral floats become integers."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same_geometry(text: bytes | None, wkb: bytes | None) -> bool:
    """Return whether GeoJSON and WKB are the same geometry, coordinate by coordinate."""
    if text is None or wkb is None:
        return text is None and wkb is None
    try:
        return bool(shapely.equals_identical(shapely.from_geojson(text), shapely.from_wkb(wkb)))
    except (shapely.GEOSException, UnicodeDecodeError, NotImplementedError):  # For curves.
        return False


def _is_readable(jsondata: bytes) -> bool:
    """Return whether a stored document can be parsed without repair."""
    try:
        msgspec.json.decode(jsondata)
    except UNREADABLE:
        return False
    return not is_deep(jsondata)


def _hash_start(id: bytes) -> str:
    """Return the first 8 digits of an id's hash; see `Part`."""
    if id.isascii():  # decoding takes longer than hashing
        return md5(id, usedforsecurity=False).hexdigest()[:8]
    return id_hash(id.decode("utf-8", "replace"))[:8]


@lru_cache(maxsize=256)
def _test(text: str) -> PropertyTest:
    return _decode_test(text)


@lru_cache(maxsize=256)
def _path(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])

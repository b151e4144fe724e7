"""What our connections can do beyond SQLite: tests that its own functions cannot express.

Only queries use them. Tables, indices and triggers stand on SQLite alone, so that the file can be
used with none of our code loaded.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Any

import msgspec
import shapely

from naksha.model.damage import UNREADABLE, decode_feature
from naksha.model.features import is_deep
from naksha.model.merge import ABSENT
from naksha.model.query import Test as PropertyTest
from naksha.model.query import id_hash
from naksha.spi.support.predicates import holds as holds_of
from naksha.spi.support.predicates import member_at

_decode_test = msgspec.json.Decoder(PropertyTest).decode


def add_functions(connection: sqlite3.Connection) -> None:
    """Make them known to a connection."""
    connection.create_function("naksha_holds", 2, holds, deterministic=True)
    connection.create_function("naksha_has_text", 2, has_text, deterministic=True)
    connection.create_function("naksha_member", 2, member, deterministic=True)
    connection.create_function("naksha_key", 2, key, deterministic=True)
    connection.create_function("naksha_id_hash", 1, hash_start, deterministic=True)
    connection.create_function("naksha_same_geometry", 2, same_geometry, deterministic=True)
    connection.create_function("naksha_is_readable", 1, is_readable, deterministic=True)


def holds(jsondata: bytes, test: str) -> bool:
    """Whether a test, as JSON, is true of a document; on what is absent nothing is."""
    return holds_of(decode_feature(jsondata), _test(test))


def has_text(text: str | None, part: str) -> bool:
    """Whether a text contains another one, in whatever case; SQLite folds ASCII only."""
    return text is not None and part.lower() in text.lower()


def member(jsondata: bytes, path: str) -> str | None:
    """What is at a path (as JSON) of a document, as JSON."""
    found = member_at(decode_feature(jsondata), _path(path))
    return None if found is ABSENT else msgspec.json.encode(found).decode()


def key(jsondata: str | bytes, path: str) -> str | None:
    """What is at a path (as JSON) of a document, as a text that is the same for all values that
    are the same as JSON; None when there is nothing, or null."""
    found = member_at(decode_feature(jsondata), _path(path))
    if found is ABSENT or found is None:
        return None
    return msgspec.json.encode(_plain(found), order="sorted").decode()


def _plain(value: Any) -> Any:
    """The value without two ways to say the same number."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def same_geometry(text: bytes | None, wkb: bytes | None) -> bool:
    """Whether GeoJSON and WKB are the same geometry, coordinate by coordinate."""
    if text is None or wkb is None:
        return text is None and wkb is None
    try:
        return bool(shapely.equals_identical(shapely.from_geojson(text), shapely.from_wkb(wkb)))
    except (shapely.GEOSException, UnicodeDecodeError, NotImplementedError):  # A curve's.
        return False


def is_readable(jsondata: bytes) -> bool:
    """Whether a document can be parsed as it is."""
    try:
        msgspec.json.decode(jsondata)
    except UNREADABLE:
        return False
    return not is_deep(jsondata)


def hash_start(id: bytes) -> str:
    """The beginning of an id's hash; see `Part`."""
    return id_hash(id.decode("utf-8", "replace"))[:8]


@lru_cache(maxsize=256)
def _test(text: str) -> PropertyTest:
    return _decode_test(text)


@lru_cache(maxsize=256)
def _path(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])

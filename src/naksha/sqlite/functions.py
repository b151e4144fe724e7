"""What our connections can do beyond SQLite: tests that its own functions cannot express.

Only queries use them. Tables, indices and triggers stand on SQLite alone, so that the file can be
used with none of our code loaded.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Any

import msgspec

from naksha.model.merge import ABSENT, same
from naksha.model.query import Op, id_hash
from naksha.model.query import Test as PropertyTest
from naksha.spi.staging import key_of

_decode_test = msgspec.json.Decoder(PropertyTest).decode


def add_functions(connection: sqlite3.Connection) -> None:
    """Make them known to a connection."""
    connection.create_function("naksha_holds", 2, holds, deterministic=True)
    connection.create_function("naksha_has_text", 2, has_text, deterministic=True)
    connection.create_function("naksha_member", 2, member, deterministic=True)
    connection.create_function("naksha_key", 2, key, deterministic=True)
    connection.create_function("naksha_id_hash", 1, hash_start, deterministic=True)


def holds(jsondata: str, test: str) -> bool:
    """Whether a test, as JSON, is true of a document; on what is absent nothing is."""
    wanted = _test(test)
    found = _at(msgspec.json.decode(jsondata), wanted.path)
    return found is not ABSENT and compare(found, wanted.op, wanted.value)


def has_text(text: str | None, part: str) -> bool:
    """Whether a text contains another one, in whatever case; SQLite folds ASCII only."""
    return text is not None and part.lower() in text.lower()


def member(jsondata: str, path: str) -> str | None:
    """What is at a path (as JSON) of a document, as JSON."""
    found = _at(msgspec.json.decode(jsondata), _path(path))
    return None if found is ABSENT else msgspec.json.encode(found).decode()


def key(jsondata: str | bytes, path: str) -> str | None:
    """What is at a path (as JSON) of a document; see `naksha.spi.staging.key_of`."""
    found = key_of(msgspec.json.decode(jsondata), _path(path))
    return None if found is None else found.decode()


def hash_start(id: str) -> str:
    """The beginning of an id's hash; see `Part`."""
    return id_hash(id)[:8]


@lru_cache(maxsize=256)
def _test(text: str) -> PropertyTest:
    return _decode_test(text)


@lru_cache(maxsize=256)
def _path(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    return value


def compare(found: Any, op: Op, value: Any) -> bool:
    """Whether `found op value`."""
    match op:
        case Op.EXISTS:
            return True
        case Op.IS_NULL:
            return found is None
        case Op.EQ:
            return same(found, value)
        case Op.NE:
            return not same(found, value)
        case Op.CONTAINS:
            return contains(found, value)
        case Op.STARTS_WITH:
            return isinstance(found, str) and isinstance(value, str) and found.startswith(value)
        case Op.ANY_STARTS_WITH:
            return isinstance(found, list) and any(
                isinstance(one, str) and one.startswith(value) for one in found
            )
        case _:
            return _ordered(found, op, value)


def _ordered(found: Any, op: Op, value: Any) -> bool:
    if isinstance(value, str) != isinstance(found, str) or isinstance(found, bool):
        return False
    if not isinstance(found, str | int | float) or isinstance(value, bool):
        return False
    if same(found, value):
        return op in (Op.LTE, Op.GTE)
    return bool(found < value) == (op in (Op.LT, Op.LTE))


def contains(whole: Any, part: Any) -> bool:
    """JSON containment: objects by key, arrays as sets, and an array contains a bare scalar."""
    if isinstance(whole, list) and not isinstance(part, list | dict):
        return any(same(member, part) for member in whole)
    return _contains(whole, part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], part[key]) for key in part)
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(member, wanted) for member in whole) for wanted in part)
    return same(whole, part)

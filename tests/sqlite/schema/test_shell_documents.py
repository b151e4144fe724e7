"""Documents and geometries written in sqlite3, without any Naksha code loaded."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from naksha.model.damage import DAMAGED
from naksha.model.features import MARK_3D
from naksha.model.limits import FEATURE_BYTES_MAX, JSON_DEPTH_MAX, TAG_LENGTH_MAX, TAGS_MAX
from naksha.model.state import XYZ
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, content, feature, ids_of, point
from tests.sqlite.support import shell


def in_xyz(**namespace: Any) -> str:
    return json.dumps({"id": "z", "properties": {XYZ: namespace}}, ensure_ascii=False)


def nested(depth: int) -> str:
    """A document with so many levels."""
    return f'{{"id":"z","properties":{{"a":{"[" * (depth - 2)}{"]" * (depth - 2)}}}}}'


BAD_DOCUMENTS: dict[str, tuple[str | bytes, str]] = {
    "large": ('{"id":"z","properties":{"n":[{"a":1e999}]}}', "out of range"),
    "small": ('{"id":"z","n":-1e999}', "out of range"),
    "long": (f'{{"id":"z","n":{"9" * 5000}}}', "out of range"),
    "deep": (nested(101), "levels deep"),
    "very deep": (nested(990), "levels deep"),
    "twice": ('{"id":"z","properties":{"a":[{"b":1,"b":2}]}}', "twice"),
    "NUL": ('{"id":"z\\u0000"}', "NUL"),
    "NUL behind": ('{"id":"z"}\0x', "not JSON"),
    "surrogate": ('{"id":"z","n":"\\ude00"}', "as they are"),
    "odd name": ('{"id":"z","stra\\u00dfe":1}', "names"),
    "hidden geometry": (
        '{"id":"z","\\u0067eometry":{"type":"Point","coordinates":[1,2]}}',
        "names",
    ),
    "slash": ('{"id":"z","a\\/b":1}', "names"),
    "type": ('{"id":"z","type":"Road"}', "type"),
    "blob": ('CAST(\'{"id":"z"}\' AS BLOB)', "not JSON"),
    "bytes": (b'{"id":"z","n":"\xff"}', "UTF-8"),
    "half": (b'{"id":"z","n":"\xe2\x82"}', "UTF-8"),
    "rest": (b'{"id":"z","n":"\xc3\xa9\x80"}', "UTF-8"),
    "overlong": (b'{"id":"z","n":"\xc0\xaf"}', "UTF-8"),
    "surrogate bytes": (b'{"id":"z","n":"\xed\xa0\x80"}', "UTF-8"),
    "id": (b'{"id":"\xff"}', "UTF-8"),
    "size": (json.dumps({"id": "z", "n": "x" * FEATURE_BYTES_MAX}), "bytes"),
    "namespace": (f'{{"id":"z","properties":{{"{XYZ}":[]}}}}', "namespace"),
    "tags in capitals": (in_xyz(tags=["Foo"]), "tags"),
    "tags with commas": (in_xyz(tags=["@a,b"]), "tags"),
    "empty tags": (in_xyz(tags=[""]), "tags"),
    "tags in Greek": (in_xyz(tags=["ref_α"]), "tags"),
    "long tags": (in_xyz(tags=["@" + "x" * TAG_LENGTH_MAX]), "tags"),
    "many tags": (in_xyz(tags=[f"t{n}" for n in range(TAGS_MAX + 1)]), "tags"),
    "crid": (in_xyz(crid="x" * 513), "crid"),
    "uuid": (in_xyz(uuid=5), "uuid"),
    "version": (in_xyz(version=-1), "version"),
    "half a version": (in_xyz(version=1.5), "version"),
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
async def test_documents_that_the_library_refuses(
    storage: SqliteStorage, path: Path, name: str
) -> None:
    document, message = BAD_DOCUMENTS[name]
    roads = Handle(storage, "roads")
    await roads.create(point("z", n=1))
    before = await roads.get("z")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        value = "CAST(? AS TEXT)" if isinstance(document, bytes) and name != "blob" else "?"
        with pytest.raises(sqlite3.IntegrityError, match=message):
            connection.execute(f"UPDATE roads SET jsondata = {value}", (document,))
        connection.execute("DELETE FROM roads")
        with pytest.raises(sqlite3.IntegrityError, match=message):
            connection.execute(f"INSERT INTO roads (jsondata) VALUES ({value})", (document,))
    assert (await roads.get("z")).raw == before.raw


GOOD_DOCUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no properties": ('{"id":"z","properties":null}', {}),
    "no namespace": (f'{{"id":"z","properties":{{"{XYZ}":null}}}}', {}),
    "no tags": (in_xyz(tags=None, crid=None, uuid=None, version=None), {}),
    "escapes": (
        r'{"id":"z","properties":{"a":"\\ud800 \\u0000 \u00e9 \n \/","b\\u":1}}',
        {"a": "\\ud800 \\u0000 é \n /", "b\\u": 1},
    ),
    "characters": (
        json.dumps({"id": "z", "properties": {"a": "é€😀\ufffd\ufffe\uffff"}}, ensure_ascii=False),
        {"a": "é€😀\ufffd\ufffe\uffff"},
    ),
    "numbers": (
        '{"id":"z","properties":{"a":-9223372036854775808,"b":1.7976931348623157e308}}',
        {"a": -9223372036854775808, "b": 1.7976931348623157e308},
    ),
    "large numbers": (f'{{"id":"z","properties":{{"a":{10**25}}}}}', {"a": 10**25}),
    "members of ours": (f'{{"id":"z","{DAMAGED}":{{}},"{MARK_3D}":true}}', {}),
    "tags": (in_xyz(tags=["a b", "@Ä", "~Ab", "#Ab", "ref_Ab", "sourceID_Ab"]), {}),
}


@pytest.mark.parametrize("name", GOOD_DOCUMENTS)
async def test_documents_that_the_library_takes(
    storage: SqliteStorage, path: Path, name: str
) -> None:
    document, properties = GOOD_DOCUMENTS[name]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO roads (jsondata) VALUES (?)", (document,))
        connection.commit()
    await Handle(storage, "places").create({"type": "Feature", **json.loads(document)})
    made, same = await Handle(storage, "roads").get("z"), await Handle(storage, "places").get("z")
    assert content(made) == content(same) == feature("z", **properties)
    assert made.xyz["tags"] == same.xyz["tags"]


async def test_documents_of_the_largest_depth_are_taken(storage: SqliteStorage, path: Path) -> None:
    shell(path, f"INSERT INTO roads (jsondata) VALUES ('{nested(JSON_DEPTH_MAX)}')")
    assert ids_of(await Handle(storage, "roads").live()) == ["z"]


async def test_a_geometry_is_kept_and_null_without_one_is_not_a_change(
    storage: SqliteStorage, path: Path
) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1), feature("bare", n=1))
    version = await roads.published()
    nothing = "UPDATE roads SET jsondata = json_set(jsondata, '$.geometry', NULL)"
    shell(path, nothing + " WHERE id = 'bare'")
    assert await roads.published() == version
    shell(path, nothing.replace("NULL)", "NULL, '$.properties.n', 2)") + " WHERE id = 'bare'")
    assert content(await roads.get("bare")) == feature("bare", n=2)
    absent = """UPDATE roads SET jsondata = '{"id": "a", "properties": {"n": 2}}' WHERE id = 'a'"""
    shell(path, absent)
    assert content(await roads.get("a")) == point("a", n=2)
    shell(path, """INSERT INTO roads (jsondata) VALUES ('{"id": "new", "geometry": null}')""")
    assert content(await roads.get("new")) == feature("new")

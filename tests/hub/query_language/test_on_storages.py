"""Query strings on the storages, compared with brute force."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from naksha.hub.query_language.properties import property_query
from naksha.hub.query_language.tags import id_list, tag_query
from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.models.brute_force import select
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.suite_support import feature, with_xyz

ROADS = "roads"
VALUES = [0, 7, 1.5, "x", "7", True, None, [1, {"b": 2, "c": 3}], {"b": 2, "c": 3}, ["x", "y"]]
QUERIES = [
    "",
    "p.a=7",
    "p.a='7'",
    "p.a=x,7,true",
    "p.a!=7",
    "p.a!=7&p.a!=x",
    "p.a>=1.5",
    "p.a<7=",
    "p.a%3Dgte=x",
    "p.a=.null",
    "p.a!=.null",
    "p.a=gt=.null",
    "p.a=bw=x",
    "p.a^=7",
    "p.a=cs=x",
    "p.a@>1",
    "p.a=cs=" + quote('{"b":2}'),
    "p.a=cs=" + quote('["x","y"]'),
    "p.a.b=2",
    "properties.a.b>1",
    "p.a.b.c=1",
    "f.id=n0,n1",
    "f.id%3Dlte=n3",
    "f.id^=n",
    "f.tags=cs=Red,9",
    "f.version=1",
    "f.author=writer",
    "f.app_id=app",
    "f.createdAt>0",
    "f.updatedAt<0",
    "f.txn>1",
    "f.action=CREATE",
    "f.root=1",
    "f.root.below=1",
    "tags=red",
    "tags=red+9,blue",
    "tags=red%2B9",
    "tags=" + quote("地図"),
    "tags=*",
    "id=n0,n1",
    "id=n0%2Cn1",
    "id=",
]
INJECTIONS = [
    form.format(quote(text, safe=""))
    for text in (*NASTY_TEXTS, "1' OR '1'='1", '"}; --', "a') OR TRUE --", "?", "%s", ":x", "\\'")
    for form in ("p.{}=1", "p.a={}", "p.a!='{}'", "p.a=cs={}", "p.a^={}", "f.{}=1", "f.tags=cs={}")
] + [
    form.format(quote(text, safe=""))
    for text in ("1' OR '1'='1", "a') OR TRUE --", "'; DROP TABLE naksha_tx; --", "{}", '{"a')
    for form in ("tags={}", "id={}")
]


@pytest.fixture(params=["sqlite", "postgresql"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory
) -> AsyncIterator[Storage]:
    opened: Storage
    if request.param == "sqlite":
        opened = await SqliteStorage.open(tmp_path / "language.naksha", "language")
        yield opened
        await opened.close()
        return
    with database_factory.fresh() as dsn:
        opened = await PsqlStorage.open(dsn, "language")
        yield opened
        await opened.close()


async def filled(storage: Storage) -> None:
    plain = [feature(f"n{number}", a=value) for number, value in enumerate(VALUES)]
    plain += [feature("n0,n1"), {**feature("other"), "properties": {"a.b": 2}}]
    tagged = [with_xyz(feature("t1"), tags=["Red", "9"]), with_xyz(feature("t2"), tags=["blue"])]
    rooted = [{**feature("r1"), "root": 1}, {**feature("r2"), "root": {"below": 1}}]
    async with storage.write("app", "writer") as session:
        await session.create_collection(CollectionInfo(id=ROADS))
        await session.upsert(ROADS, [*plain, *tagged, *rooted])


def query_of(text: str) -> Query:
    return Query(where=property_query(text), tags=tag_query(text), ids=id_list(text))


async def test_storages_agree_with_the_predicate(storage: Storage) -> None:
    await filled(storage)
    every = [state async for state in storage.states(ROADS, Query())]
    answers = {}
    for text in (*QUERIES, *INJECTIONS):
        query = query_of(text)
        found = {state.id async for state in storage.states(ROADS, query)}
        assert found == {state.id for state in select(every, query)}, text
        answers[text] = found
    assert len(answers[""]) == len(every) == len(VALUES) + 6
    assert answers["tags=" + quote("地図")] == answers["id="] == set()
    assert answers["tags=red%2B9"] == answers["f.tags=cs=Red,9"] == {"t1"}
    assert answers["f.root.below=1"] == {"r2"}
    assert answers["f.action=CREATE"] == answers["f.txn>1"] == answers[""]
    assert answers["id=n0%2Cn1"] == {"n0", "n1", "n0,n1"}
    assert not any(answers[text] for text in INJECTIONS if text.startswith(("id=", "tags=")))
    assert {state.id async for state in storage.states(ROADS, Query())} == answers[""]

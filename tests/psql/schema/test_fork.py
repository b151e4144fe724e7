"""Forks of copied schemas: required rights, and former ids in plain SQL."""

from __future__ import annotations

import json

import asyncpg
import pytest

from naksha.model.errors import Conflict, InvalidArgument, NotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.uuids import Uuid
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.testing.storage.suite_support import Handle, point
from naksha.testing.storage.write.suite_namespace import uuid_form
from tests.psql.support import Connect, begin, connect_to, draw, until_elected

UPDATE = """UPDATE roads SET jsondata = jsonb_set(jsondata || '{}',
    '{properties,@ns:com:here:xyz,uuid}', to_jsonb($1::text)) #- '{properties,n}'
    WHERE jsondata->>'id' = 'x'"""
UPSERT = "SELECT naksha_upsert('roads', $1::jsonb)"


@pytest.fixture
async def uuids(bare: str) -> list[tuple[str, str]]:
    """Both forms of the ids of the two states of a feature, in a closed storage."""
    storage = await PsqlStorage.open(bare)
    roads, found = Handle(storage, "roads"), []
    for n in (1, 2):
        await roads.upsert(point("x", n=n))
        state = await roads.get("x")
        found.append((state.uuid, await uuid_form(storage, state)))
    await storage.close()
    return found


async def write(connection: Direct, statement: str, value: str) -> None:
    async with connection.transaction():
        await connection.execute("SELECT naksha_tx_start('app', NULL)")
        await connection.execute(statement, value)


def as_feature(uuid: str) -> str:
    """A feature as a client sends it back."""
    namespace = {"@ns:com:here:xyz": {"uuid": uuid}}
    return json.dumps({"id": "x", "type": "Feature", "properties": {"m": uuid, **namespace}})


async def test_a_schema_in_use_is_not_forked(
    storage: PsqlStorage, bare: str, connect: Connect
) -> None:
    await until_elected(await connect())
    with pytest.raises(Conflict, match="in use"):
        await PsqlStorage.fork(bare, "copy")
    assert storage.id == "test"


async def test_an_open_writer_keeps_a_schema_from_being_forked(bare: str) -> None:
    writer = await connect_to(bare)
    await begin(writer)
    await draw(writer)
    with pytest.raises(Conflict, match="in use"):
        await PsqlStorage.fork(bare, "copy")
    await writer.execute("ROLLBACK")
    assert (await PsqlStorage.fork(bare, "copy")).former_ids == ["test"]
    await writer.close()


async def test_an_id_is_never_given_again(bare: str, connect: Connect) -> None:
    with pytest.raises(Conflict, match="never had"):
        await PsqlStorage.fork(bare, "test")
    first = await PsqlStorage.fork(bare, "copy")
    connection = await connect()
    for id, number in (("test", 1), ("copy", 1), ("new", first.number)):
        with pytest.raises(asyncpg.PostgresError, match="has, or had"):
            await connection.execute("SELECT naksha_storage_fork($1, $2)", id, number)
    with pytest.raises(asyncpg.PostgresError, match="not a valid storage id"):
        await connection.execute("SELECT naksha_storage_fork('a:b', 1)")
    with pytest.raises(InvalidArgument):
        await PsqlStorage.fork(bare, "a:b")


async def test_nothing_is_made_by_a_fork(database: str) -> None:
    with pytest.raises(NotFound):
        await PsqlStorage.fork(database, "copy")


@pytest.mark.parametrize("form", [0, 1])
async def test_plain_sql_locks_by_former_ids(
    bare: str, connect: Connect, uuids: list[tuple[str, str]], form: int
) -> None:
    made = await PsqlStorage.fork(bare)
    assert made.id != "test"  # by default that of the database
    connection = await connect()
    stale, head = (each[form] for each in uuids)
    for statement, value in ((UPDATE, stale), (UPSERT, as_feature(stale))):
        with pytest.raises(asyncpg.PostgresError, match="changed since"):
            await write(connection, statement, value)
    await write(connection, UPDATE, head)
    for statement, value in ((UPDATE, head), (UPSERT, as_feature(head))):
        with pytest.raises(asyncpg.PostgresError, match="changed since"):
            await write(connection, statement, value)
    # What the original wrote since is of another storage, and does not lock.
    last = Guid.parse(uuids[1][0])
    later = f"test:roads:{last.year}:{last.month}:{last.day}:{last.i + 5}"
    if form:
        number = made.former[0].number
        later = str(Uuid.of_state(last.txn_min, 1, last.i + 5, number))
    await write(connection, UPSERT, as_feature(later))


async def test_transactions_keep_their_number_in_the_older_view(
    bare: str, connect: Connect, uuids: list[tuple[str, str]]
) -> None:
    made = await PsqlStorage.fork(bare)
    connection = await connect()
    await write(connection, UPDATE, uuids[1][0])
    rows = await connection.fetch(
        "SELECT txdb FROM naksha_legacy_transactions WHERE \"table\" = 'roads' ORDER BY i"
    )
    numbers = [row["txdb"] for row in rows]
    assert set(numbers[:-1]) == {made.former[0].number}
    assert numbers[-1] == made.number


async def test_a_new_storage_is_called_like_its_schema_or_database(database: str) -> None:
    for schema, expected in (("naksha", "test_"), ("Maps of 2026", "maps-of-2026")):
        storage = await PsqlStorage.open(database, schema=schema)
        await storage.close()
        assert storage.id.startswith(expected)
    again = await PsqlStorage.open(database, new_id="other")
    await again.close()
    assert again.id.startswith("test_")

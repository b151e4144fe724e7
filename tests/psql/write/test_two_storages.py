"""Transactions that write to two storages in one database."""

from __future__ import annotations

import asyncpg

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.version import HEAD
from naksha.psql import PsqlStorage

INSERT = """INSERT INTO {schema}.places (jsondata) VALUES ('{{"id": "{id}"}}')"""


async def test_one_transaction_over_two_storages_has_a_number_in_each(database: str) -> None:
    one = await PsqlStorage.open(database, "one", schema="one")
    two = await PsqlStorage.open(database, "two", schema="two")
    for storage in (one, two):
        async with storage.write("setup") as session:
            await session.create_collection(CollectionInfo(id="places"))
    async with two.write("setup") as session:
        await session.message("m", "so that the two count differently")
    connection = await asyncpg.connect(database)
    async with connection.transaction():
        await connection.execute("SELECT one.naksha_tx_start('both')")
        for schema, feature_id in (("one", "a"), ("two", "b"), ("one", "c"), ("two", "d")):
            await connection.execute(INSERT.format(schema=schema, id=feature_id))
    await connection.close()
    for storage, ids, number in ((one, {"a", "c"}, 2), (two, {"b", "d"}, 3)):
        await storage.resolve(HEAD)
        page = await storage.page("places", Query())
        assert {state.id for state in page.states} == ids
        assert len({state.txn for state in page.states}) == 1
        last = (await storage.transactions())[-1]
        assert (last.seq_number, last.txn) == (number, page.states[0].txn)
        assert [(s.id, s.created) for s in last.signals] == [("places", 2)]
        await storage.close()

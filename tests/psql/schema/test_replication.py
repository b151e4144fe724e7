"""Logical replication with the commands of docs/replication.md, and replica identities."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Unavailable
from naksha.model.query import Query, States
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.bulk import apply_staged
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance.growth import grow
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.bulk.suite_staging import written
from tests.psql.aging import Aging, aging_storage, place
from tests.psql.support import connect_to, until

PAGE = Path(__file__).parents[3] / "docs" / "replication.md"
BLOCK = re.compile(r"```(sh|sql)\n(.*?)```", re.DOTALL)
TODAY = datetime.now(UTC).date()

NO_IDENTITY = """
SELECT relname FROM pg_class c
 WHERE relnamespace = 'naksha'::regnamespace AND relkind IN ('r', 'p') AND relpersistence = 'p'
   AND NOT (relreplident = 'f' OR relreplident = 'd' AND EXISTS (
       SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary))
   -- The root of HEAD holds no rows; its leaves are published, by their keys.
   AND NOT EXISTS (SELECT FROM naksha_collection k WHERE k.id = c.relname)
"""

# Two servers and the first copy of all tables: a busy machine takes its time.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[PostgresCluster]]:
    settings: dict[str, Any] = {"wal_level": "logical", "fsync": False}
    with PostgresCluster(settings) as source, PostgresCluster(settings) as replica:
        for cluster in (source, replica):
            cluster.create_database("store")
            cluster.execute("CREATE EXTENSION postgis SCHEMA public", "store")
        yield [source, replica]


class Page:
    """The commands of the page, to be run on the two clusters."""

    def __init__(self, clusters: list[PostgresCluster]) -> None:
        self._blocks = BLOCK.findall(PAGE.read_text())
        self._databases = dict(zip(("source", "replica"), clusters, strict=True))
        self._dsn = {name: c.dsn("store") for name, c in self._databases.items()}

    def copy_schema(self) -> None:
        (script,) = [text for kind, text in self._blocks if kind == "sh"]
        programs = Path(self._databases["source"].install.program("psql")).parent
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SOURCE": self._dsn["source"],
            "REPLICA": self._dsn["replica"],
        }
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], env=environment, check=True, stdout=-3
        )

    def run(self, title: str, more: str = "") -> str:
        (text,) = [text for _, text in self._blocks if text.startswith(f"-- {title}\n")]
        where = title.split(" ")[2].rstrip(",")
        command = text.replace("$SOURCE", self._dsn["source"])
        return self._databases[where].execute(command.rstrip().rstrip(";") + " " + more, "store")

    async def is_copied(self) -> bool:
        return self.run("on the replica, tables still being copied") == "0"


@pytest.fixture
async def source(clusters: list[PostgresCluster]) -> AsyncIterator[Aging]:
    async with aging_storage(clusters[0].dsn("store"), TODAY - timedelta(days=2)) as made:
        await made.create()
        yield made


async def same_everywhere(source: Aging, replica: PsqlStorage, name: str) -> None:
    last = (await source.storage.publication()).last_seq_number

    async def arrived() -> bool:
        return (await replica.publication()).last_seq_number == last

    await until(arrived)
    assert [t.txn for t in await replica.transactions()] == [
        t.txn for t in await source.storage.transactions()
    ]
    for seq_number in range(1, last + 1):
        for kind in States:
            query = Query(states=kind)
            ours = await source.storage.page(name, query, AtSeq(seq_number))
            theirs = await replica.page(name, query, AtSeq(seq_number))
            assert sorted(s.raw for s in theirs.states) == sorted(s.raw for s in ours.states)


async def no_identity(plain: Direct) -> list[str]:
    return [row["relname"] for row in await plain.fetch(NO_IDENTITY)]


async def test_a_replica_answers_the_same_reads(
    source: Aging, clusters: list[PostgresCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_staged, "_FILL_FEATURES_MIN", 1)
    page = Page(clusters)
    await source.write_days(TODAY - timedelta(days=2), 2)
    page.copy_schema()
    page.run("on the source")
    page.run("on the replica", "WITH (enabled = false)")
    with pytest.raises(Unavailable, match="is still being copied"):
        await PsqlStorage.open(clusters[1].dsn("store"), "test")
    clusters[1].execute("ALTER SUBSCRIPTION naksha ENABLE", "store")
    await until(page.is_copied)
    replica = await PsqlStorage.open(clusters[1].dsn("store"), "test")
    try:
        await same_everywhere(source, replica, "roads")
        # New days, for which the source makes partitions; updates, deletes, and a merge.
        await source.write_days(TODAY, 3)
        await source.write_days(TODAY + timedelta(days=25), 2)
        await same_everywhere(source, replica, "roads")
        await source.storage.maintain()
        await source.write()
        await same_everywhere(source, replica, "roads")
        await new_collection(source, replica, page)
        await grown(source, replica, page)
        plain = await connect_to(clusters[1].dsn("store"))
        assert await no_identity(plain) == []
        plain.terminate()
        page.run("on the replica, to take over")
        page.run("on the source, after the replica took over")
        await took_over(source, replica)
    finally:
        await replica.close()


async def new_collection(source: Aging, replica: PsqlStorage, page: Page) -> None:
    await source.create("places")
    await source.create("stops")
    await source.write("places")

    async def announced() -> bool:
        return {"places", "stops"} <= {info.id for info in await replica.collections()}

    await until(announced)
    page.run("on the replica, every day")
    page.run("on the source, for new collections")
    page.run("on the replica, for new collections")
    await until(page.is_copied)
    await source.write("places")
    await same_everywhere(source, replica, "places")
    await written(source.storage, "stops", [place(f"s{n}", n) for n in range(40)])
    assert await source.storage.count("stops", Query()) == 40
    await same_everywhere(source, replica, "stops")


async def grown(source: Aging, replica: PsqlStorage, page: Page) -> None:
    assert (await source.storage.collection("roads")).partitions == 1
    assert await source.plain.fetchval("SELECT naksha_is_published('roads')")
    page.run("on the source, to grow a collection")
    await source.write()

    async def announced() -> bool:
        return (await replica.collection("roads")).partitions == 16

    await until(announced)
    page.run("on the replica, after a collection has grown")
    await source.write()
    await until(page.is_copied)
    await source.write()
    await same_everywhere(source, replica, "roads")


async def took_over(source: Aging, replica: PsqlStorage) -> None:
    last = source.versions[-1]
    outcomes = await replica.run(lambda s: s.upsert("roads", [place("always", 77)]), "app")
    assert outcomes[0].action == "UPDATED"
    version = await replica.resolve(AtSeq(last.seq_number + 1))
    assert version.txn > last.txn


@pytest.mark.parametrize("partitions", [1, 16])
async def test_loads_keep_the_tables_that_are_published(
    database: str, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """A replica would not receive the tables that replace them, nor any later change of them."""
    monkeypatch.setattr(apply_staged, "_FILL_FEATURES_MIN", 1)
    async with aging_storage(database, TODAY) as made:
        await made.create(partitions=partitions)
        await made.plain.execute("SELECT naksha_publish_tables('naksha')")
        published = "SELECT count(*) FROM pg_publication_tables WHERE tablename ~ '^roads_p.$'"
        assert await made.plain.fetchval(published) == partitions
        await made.plain.execute("BEGIN")
        await made.plain.execute("SELECT naksha_tx_start('app')")
        await made.plain.execute("CREATE TABLE load_3 (LIKE roads)")
        with pytest.raises(asyncpg.PostgresError, match="published for logical replication"):
            await made.plain.execute("SELECT naksha_attach_leaf('roads', '3', 'load_3')")
        await made.plain.execute("ROLLBACK")
        applied = await written(made.storage, "roads", [place(f"s{n}", n) for n in range(40)])
        assert applied.created == 40
        assert (await made.storage.collection("roads")).partitions == partitions
        assert await made.plain.fetchval(published) == partitions


@pytest.mark.parametrize("how", ["sql", "setting", "library"])
async def test_growth_on_request_keeps_a_collection_published(database: str, how: str) -> None:
    """Otherwise a replica would silently miss all later changes of its features."""
    async with aging_storage(database, TODAY) as made:
        await made.create()
        await made.write()
        await made.plain.execute("CREATE PUBLICATION one FOR TABLE roads_p0, roads_del")
        await made.plain.execute("CREATE PUBLICATION other FOR TABLE roads_del")
        if how == "sql":
            assert await made.plain.fetchval("SELECT naksha_grow('roads')")
        elif how == "library":
            assert await grow(made.storage._server, "roads")
        else:
            change = CollectionChange(partitions=16)
            await made.storage.run(lambda s: s.change_collection("roads", change), "app")
        rows = await made.plain.fetch(
            "SELECT pubname || ' ' || tablename AS it FROM pg_publication_tables"
        )
        leaves = [f"one roads_p{leaf:x}" for leaf in range(16)]
        assert sorted(row["it"] for row in rows) == sorted(
            [*leaves, "one roads_del", "other roads_del"]
        )


async def test_every_table_has_a_replica_identity(database: str) -> None:
    async with aging_storage(database, date(2030, 1, 30)) as made:
        await made.create()
        await made.create("points", points_only=True)
        await made.storage.run(
            lambda s: s.create_collection(CollectionInfo(id="off", history_enabled=False)), "app"
        )
        await made.write_days(date(2030, 1, 30), 4)
        assert await no_identity(made.plain) == []
        await made.storage.maintain()
        assert "2030_01" in await made.partitions()
        assert await no_identity(made.plain) == []


async def test_promotion_gives_out_no_number_of_a_removed_collection(database: str) -> None:
    async with aging_storage(database, TODAY) as made:
        await made.create()
        await made.create("gone")
        await made.write("gone")
        gone = await made.storage.collection("gone")
        await made.storage.run(lambda s: s.drop_collection("gone", 1), "app")
        await made.storage.resolve(AtSeq(4))
        await made.storage.maintain()
        # What a replica has: the rows, but not the sequences.
        await made.plain.execute("SELECT setval('naksha_collection_number_seq', 1)")
        await made.plain.execute("SELECT naksha_replica_promote()")
        await made.create("gone")
        assert (await made.storage.collection("gone")).number > gone.number
        await made.plain.execute("SELECT setval('gone_i_seq', 1, false)")
        await made.plain.execute("SELECT naksha_replica_promote()")
        assert await made.plain.fetchval("SELECT last_value FROM gone_i_seq") > 1

"""A storage that is well has nothing to report; one that is not is told feature and invariant."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from naksha.model.collection import CollectionChange
from naksha.model.query import Query, States, id_hash
from naksha.spark.jobs.frame import Silent
from naksha.spark.jobs.invariants import Invariant
from naksha.spark.jobs.verify import Verified, Verify, verify
from naksha.spi.storage import Storage, WriteSession
from tests.spark.jobs.town import Town, point

XYZ = "@ns:com:here:xyz"
IDS = [f"f{n}" for n in range(9)]


def checked(spark: SparkSession, town: Town, **settings: Any) -> Verified:
    spec = Verify(place=town.place, collection="places", **settings)
    return verify(spark, spec, Silent())


async def anything(session: WriteSession, chance: random.Random) -> None:
    """A few things of every kind in one transaction, some to the same features."""
    for _ in range(chance.choice([1, 1, 3])):
        live = [s.id async for s in session.states("places", Query())]
        dead = [s.id async for s in session.states("places", Query(states=States.DELETED))]
        some = chance.sample(IDS, 3)
        made = [point(i, chance.uniform(-180, 180), chance.uniform(-90, 90)) for i in some]
        if chance.random() < 0.3:
            made[0]["geometry"] = None
        match chance.choice(["upsert", "upsert", "delete", "restore", "purge"]):
            case "upsert":
                await session.upsert("places", made)
            case "delete":
                await session.delete("places", live[:3])
            case "restore":
                await session.restore("places", dead[:2])
            case "purge":
                await session.purge("places", dead[-2:])


def stirred(town: Town, seed: int, steps: int) -> None:
    """A random history; transactions that change nothing are none."""
    chance = random.Random(seed)

    async def work(storage: Storage) -> None:
        for _ in range(steps):
            async with storage.write("test-app") as session:
                await anything(session, chance)
            await storage.publication()

    town.call(work)


def switch_history(town: Town, on: bool) -> None:
    change = CollectionChange(history_enabled=on)
    town.run(lambda session: session.change_collection("places", change))


def test_nothing_is_wrong_with_a_random_history(spark: SparkSession, town: Town) -> None:
    stirred(town, 11, 25)
    report = checked(spark, town)
    assert (report.violations, report.found) == ({}, [])
    assert report.complete_since == 0
    assert (report.states > 30, report.transactions > 15) == (True, True)
    switch_history(town, False)
    stirred(town, 12, 5)
    switch_history(town, True)
    stirred(town, 13, 8)
    town.call(lambda storage: storage.maintain())
    report = checked(spark, town)
    assert (report.violations, report.found) == ({}, [])
    assert report.complete_since > 0


def test_an_empty_collection_is_well(spark: SparkSession, small_town: Town) -> None:
    assert checked(spark, small_town).violations == {}


# ---- What is broken ------------------------------------------------------------------------------

CASES = {
    "ends early": {Invariant.INTERVAL, Invariant.GAP},
    "ends late": {Invariant.OVERLAP},
    "lost": {Invariant.GAP, Invariant.VERSION, Invariant.PUUID},
    "jumps": {Invariant.VERSION},
    "follows another": {Invariant.PUUID},
    "buried alive": {Invariant.TOMBSTONE},
    "never lived": {Invariant.TOMBSTONE},
    "dead in head": {Invariant.TOMBSTONE, Invariant.LOG},
    "elsewhere": {Invariant.QRID},
    "born later": {Invariant.NAMESPACE},
    "misnamed": {Invariant.IDENTITY},
    "miscounted": {Invariant.LOG},
    "unlogged": {Invariant.LOG},
}
"""What is done to a feature of that name, and what that violates."""


def history_of(town: Town) -> None:
    """Each feature has transactions of its own."""
    for id_ in [*CASES, "healthy", "moved", "in another leaf", "vanished"]:
        for n in range(3):
            town.put(point(id_, 10.0 + n, 20.0, n=n))
    for id_ in ("buried alive", "never lived"):
        town.delete(id_)
    town.put(point("buried alive", 1.0, 1.0))
    town.put(point("healthy", 1.0, 1.0))


def broken_file(path: str) -> None:
    """As somebody would do it who holds the file in his hands."""
    connection = sqlite3.connect(path, isolation_level=None)
    execute = connection.execute
    columns = [row[1] for row in execute("PRAGMA table_info(places_del)") if row[1] != "n"]
    names = ", ".join(columns)

    def json(id_: str, member: str, value: str) -> None:
        where = f"""'$.properties."{XYZ}".{member}'"""
        execute(
            f"UPDATE places SET jsondata = json_set(jsondata, {where}, {value}) WHERE id = ?",
            (id_,),
        )

    execute("UPDATE naksha_shell SET managed = 1")
    execute("UPDATE places_hst SET txn_next = txn - 1 WHERE id = 'ends early' AND version = 2")
    execute("UPDATE places_hst SET txn_next = txn_next + 1 WHERE id = 'ends late' AND version = 1")
    execute("DELETE FROM places_hst WHERE id = 'lost' AND version = 2")
    execute("UPDATE places SET version = 9 WHERE id = 'jumps'")
    json("jumps", "version", "9")
    json("follows another", "puuid", "'town:places:2020:1:1:1'")
    tomb = "FROM places_hst WHERE id = 'buried alive' AND action = 'DELETE'"
    execute(f"INSERT INTO places_del ({names}) SELECT {names} {tomb}")
    execute(f"DELETE {tomb}")
    execute("DELETE FROM places_hst WHERE id = 'never lived'")
    execute("UPDATE places SET action = 'DELETE' WHERE id = 'dead in head'")
    json("dead in head", "action", "'DELETE'")
    execute("UPDATE places SET qrid = '000', mrid = '000' WHERE id = 'elsewhere'")
    json("elsewhere", "qrid", "'000'")
    json("elsewhere", "mrid", "'000'")
    json("born later", "createdAt", "4102444800000")
    uuid = f"""json_extract(jsondata, '$.properties."{XYZ}".uuid')"""
    json("misnamed", "uuid", f"replace({uuid}, ':places:', ':streets:')")
    first = "(SELECT txn FROM places_hst WHERE id = '{}' AND version = 1)"
    execute(f"UPDATE naksha_tx SET created = 5 WHERE txn = {first.format('miscounted')}")
    execute(f"DELETE FROM naksha_tx WHERE txn = {first.format('unlogged')}")
    # What only a file can have wrong, because there the columns are kept apart.
    execute("UPDATE places SET west = west - 1, author = 'eve' WHERE id = 'moved'")
    execute("DELETE FROM places WHERE id = 'vanished'")
    execute("DELETE FROM places_hst WHERE id = 'vanished'")
    execute("UPDATE naksha_shell SET managed = 0")
    connection.close()


async def broken_database(dsn: str) -> None:
    """As a superuser can, without triggers."""
    connection = await asyncpg.connect(dsn)
    execute = connection.execute
    xyz = f"{{properties,{XYZ},%s}}"

    async def json(
        id_: str, member: str, value: str, where: str = "places", and_: str = ""
    ) -> None:
        place = xyz % member
        await execute(
            f"UPDATE {where} SET jsondata = jsonb_set(jsondata, '{place}', {value}) "
            f"WHERE jsondata->>'id' = '{id_}' {and_}"
        )

    def version(n: int) -> str:
        return f"AND naksha_xyz(jsondata)->>'version' = '{n}'"

    await execute("SET search_path = naksha, public")
    await execute("SET session_replication_role = replica")
    early = "to_jsonb((naksha_xyz_txn(jsondata) - 1)::text)"
    late = "to_jsonb((naksha_xyz_txn_next(jsondata) + 1)::text)"
    await json("ends early", "txn_next", early, "places_hst", version(2))
    await json("ends late", "txn_next", late, "places_hst", version(1))
    await execute(f"DELETE FROM places_hst WHERE jsondata->>'id' = 'lost' {version(2)}")
    await json("jumps", "version", "'9'")
    await json("follows another", "puuid", "'\"town:places:2020:1:1:1\"'")
    tomb = (
        "FROM places_hst WHERE jsondata->>'id' = 'buried alive' AND naksha_xyz_action(jsondata)"
        " = 'DELETE' AND naksha_xyz_txn(jsondata) < naksha_xyz_txn_next(jsondata)"
    )
    current = f"jsonb_set(jsondata, '{xyz % 'txn_next'}', '\"0\"')"
    await execute(f"INSERT INTO places_del SELECT i, geo, {current} {tomb}")
    await execute(f"DELETE {tomb}")
    await execute("DELETE FROM places_hst WHERE jsondata->>'id' = 'never lived'")
    await json("dead in head", "action", "'\"DELETE\"'")
    await json("elsewhere", "qrid", "'\"000\"'")
    await json("elsewhere", "mrid", "'\"000\"'")
    await json("born later", "createdAt", "'4102444800000'")
    named = "to_jsonb(replace(naksha_xyz(jsondata)->>'uuid', ':places:', ':streets:'))"
    await json("misnamed", "uuid", named)
    first = (
        "(SELECT naksha_xyz_txn(jsondata) FROM places_hst WHERE jsondata->>'id' = '{}' "
        + version(1)
        + ")"
    )
    await execute(f"UPDATE naksha_tx SET created = 5 WHERE txn = {first.format('miscounted')}")
    await execute(f"DELETE FROM naksha_tx WHERE txn = {first.format('unlogged')}")
    await execute(
        "UPDATE places SET geo = ST_Force3D(ST_SetSRID(ST_MakePoint(-70, -20), 4326)) "
        "WHERE jsondata->>'id' = 'moved'"
    )
    await in_another_leaf(connection, "in another leaf")
    for table in ("places", "places_hst"):
        await execute(f"DELETE FROM {table} WHERE jsondata->>'id' = 'vanished'")
    await connection.close()


async def in_another_leaf(connection: Any, id_: str) -> None:
    """PostgreSQL itself keeps rows out of wrong partitions; but it believes its catalog."""
    right = id_hash(id_)[0]
    wrong = "5" if right != "5" else "6"
    key = "substring(md5(jsondata->>'id'), 1, 1)"
    believed = f"{key} IS NOT NULL AND {key} = '{wrong}'"
    row = f"WHERE jsondata->>'id' = '{id_}'"
    for text in (
        f"ALTER TABLE places DETACH PARTITION places_p{wrong}",
        f"INSERT INTO places_p{wrong} SELECT * FROM places_p{right} {row}",
        f"DELETE FROM places_p{right} {row}",
        f"ALTER TABLE places_p{wrong} ADD CONSTRAINT believed CHECK ({believed}) NOT VALID",
        "UPDATE pg_constraint SET convalidated = true WHERE conname = 'believed'",
        f"ALTER TABLE places ATTACH PARTITION places_p{wrong} FOR VALUES IN ('{wrong}')",
    ):
        await connection.execute(text)


async def test_what_is_broken_is_told(spark: SparkSession, town: Town, tmp_path: Path) -> None:
    history_of(town)
    wanted: dict[str | None, set[str]] = {key: set(map(str, v)) for key, v in CASES.items()}
    if town.is_file:
        broken_file(town.path)
        wanted |= {"moved": {"geometry", "namespace"}}
    else:
        await broken_database(town.place.location)
        wanted |= {"moved": {"qrid"}, "in another leaf": {"leaf"}}
    wanted |= {None: {"log"}}
    report = checked(spark, town, output=str(tmp_path / "found"))
    found: dict[str | None, set[str]] = defaultdict(set)
    for violation in report.found:
        found[violation.feature].add(violation.invariant)
    assert found == wanted
    assert sum(report.violations.values()) == len(report.found)
    assert len(pq.read_table(tmp_path / "found")) == len(report.found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 40))
def test_nothing_is_wrong_with_many_histories(spark: SparkSession, town: Town, seed: int) -> None:
    stirred(town, seed, 60)
    assert checked(spark, town).found == []

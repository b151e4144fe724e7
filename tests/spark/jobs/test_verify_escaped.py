"""Writes that bypassed all triggers on a leaf attached by hand, as reported by `verify`."""

from __future__ import annotations

import asyncpg
from pyspark.sql import SparkSession

from naksha.model.errors import StorageCorrupt
from naksha.model.query import id_hash
from naksha.model.status_codes import status_codes_of
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.verify import JOB, Verified, Verify, verify
from tests.spark.jobs.town import Town, point


def checked(spark: SparkSession, town: Town) -> Verified:
    return verify(spark, Verify(place=town.place, collection="places"), SilentProgress())


async def attached_by_hand(connection: asyncpg.Connection, leaf: str) -> None:
    """A copy takes the place of a leaf; PostgreSQL alone clones no statement triggers."""
    for text in (
        f"CREATE TABLE other (LIKE {leaf})",
        f"INSERT INTO other SELECT * FROM {leaf}",
        f"DROP TABLE {leaf}",
        f"ALTER TABLE other RENAME TO {leaf}",
        f"SELECT naksha_create_indices('{leaf}', 'head', false)",
        f"ALTER TABLE places ATTACH PARTITION {leaf} FOR VALUES IN ('{leaf[-1]}')",
    ):
        await connection.execute(text)


async def test_writes_missing_in_the_history_are_reported(
    spark: SparkSession, database_town: Town
) -> None:
    town = database_town
    ids = [f"f{n}" for n in range(200) if id_hash(f"f{n}").startswith("3")][:3]
    _, changed, deleted = (town.put(point(id_, 1.0, 2.0)).txn for id_ in ids)
    connection = await asyncpg.connect(
        town.place.location, server_settings={"search_path": "naksha, public"}
    )
    try:
        await attached_by_hand(connection, "places_p3")
        lacking = (
            "table places_p3 lacks triggers, so that the history does not record direct writes to "
            "it; maintenance installs them"
        )
        assert [each.message for each in checked(spark, town).found] == [lacking]
        await connection.execute("BEGIN")
        await connection.execute("SELECT naksha_tx_start('by-hand')")
        escaped = await connection.fetchval("SELECT naksha_txn()")
        row = "WHERE jsondata->>'id' = $1"
        new = "jsonb_set(jsondata, '{properties,n}', '5')"
        await connection.execute(f"UPDATE places_p3 SET jsondata = {new} {row}", ids[1])
        await connection.execute(f"DELETE FROM places_p3 {row}", ids[2])
        await connection.execute("COMMIT")
    finally:
        await connection.close()
    lost = "the log counts 1 created, 0 updated, 0 deleted, but there are 0, 0, 0"
    unlogged = "the log has no entry for the write of the state, which bypassed the history"
    wanted = {
        (None, None, lacking),
        (None, str(changed), lost),
        (None, str(deleted), lost),
        (ids[1], str(escaped), unlogged),
    }
    assert reported(checked(spark, town)) == wanted
    # A later version makes what the transaction wrote visible.
    town.put(point(ids[0], 3.0, 4.0))
    report = checked(spark, town)
    assert reported(report) == wanted | {
        (None, str(escaped), "the transaction is missing in the log"),
        (ids[1], str(escaped), "the state before version 2 is missing"),
    }
    assert JOB.exit_code is not None
    assert JOB.exit_code(report) == status_codes_of(StorageCorrupt).exit_code


def reported(report: Verified) -> set[tuple[str | None, str | None, str]]:
    return {(each.feature, each.txn, each.message) for each in report.found}

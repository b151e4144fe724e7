"""The history of the benchmark timetravel: written in bulk, it is the one that sessions write."""

from typing import Any

import asyncpg
import pytest

from benchmarks import _history
from naksha.psql import PsqlStorage
from naksha.testing.fixtures import DatabaseFactory

PLAN = _history.HistoryPlan(count=2_000, revisions=14)
STATES = """SELECT tableoid::regclass::text, i, ST_AsText(geo), jsondata
    #- '{properties,@ns:com:here:xyz,rtcts}' #- '{properties,@ns:com:here:xyz,rtuts}'
  FROM TABLE ORDER BY i"""
LOG = """SELECT ts, seq_number, seq_ts, txn, action, id, app_id, author, created, updated, deleted,
    ST_AsText(bbox) FROM naksha_tx ORDER BY txn, i"""
SIZES = """SELECT t.parent, sum(pg_total_relation_size(p.relid))
  FROM unnest($1::text[]) AS t(parent), pg_partition_tree(t.parent::regclass) AS p
 WHERE p.isleaf GROUP BY 1"""
TABLES = ["roads", "roads_hst"]


async def stored(dsn: str) -> tuple[dict[str, Any], dict[str, int]]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "naksha, public"})
    rows: dict[str, Any] = {}
    for table in TABLES:
        await connection.execute(f"VACUUM ANALYZE {table}")
        rows[table] = await connection.fetch(STATES.replace("TABLE", table))
    rows["log"] = await connection.fetch(LOG)
    rows["versions"] = await connection.fetch("SELECT * FROM naksha_version ORDER BY 1")
    sizes = {name: int(size) for name, size in await connection.fetch(SIZES, TABLES)}
    await connection.close()
    return rows, sizes


async def test_a_history_in_bulk_is_the_one_of_sessions(database_factory: DatabaseFactory) -> None:
    with database_factory.fresh() as one, database_factory.fresh() as other:
        storage = await PsqlStorage.open(one, "bench")
        txns = await _history.by_sessions(storage, PLAN)
        await storage.close()
        storage = await PsqlStorage.open(other, "bench")
        assert await _history.in_bulk(other, storage, PLAN) == txns
        assert await storage.mismatches("roads", 10) == []
        await storage.close()
        (rows, sizes), (bulk_rows, bulk_sizes) = await stored(one), await stored(other)
    for table, expected in rows.items():
        assert bulk_rows[table] == expected, table
    assert len(rows["roads_hst"]) == PLAN.revisions * _history.EDITS
    for table, size in sizes.items():
        assert bulk_sizes[table] == pytest.approx(size, rel=0.1), table


def test_a_plan_edits_some_features_again_before_head_is_vacuumed() -> None:
    edited = [feature["id"] for revision in PLAN.edits() for feature in revision.features]
    assert PLAN.vacuum_every > PLAN.revisions
    assert len(set(edited)) < len(edited)

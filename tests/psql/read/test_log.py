"""Query plans of the log: an index for every filter, in a log much longer than the result."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from naksha.model.query import Bbox
from naksha.model.transaction import LogFilter
from naksha.psql.connection.driver import Direct
from naksha.psql.read import log
from naksha.spi.query.areas import boxes_of
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.read.test_explain import Plan, explain
from tests.psql.support import by_force, connect_to

TRANSACTIONS = 20_000
FIRST = 2031_05_01_00000000001
DAYS = 4

# Every transaction changes one of 500 collections and every tenth has a message.
ROWS = """
INSERT INTO naksha_tx (ts, txn, seq_number, seq_ts, action, id, app_id, author, bbox, msg_text,
                       overlay)
SELECT naksha_now(), naksha_day_txn(date '2031-05-01' + (n * {days} / {count})::int) + n, n,
       naksha_now(), action, CASE action WHEN 'MESSAGE' THEN 'm' ELSE 'c' || n % 500 END,
       'app ' || n % 1000, 'author ' || n % 1000,
       CASE action WHEN 'MODIFY_FEATURES' THEN
           ST_MakeEnvelope(n % 360 - 180, n % 180 - 90, n % 360 - 179.9, n % 180 - 89.9, 4326) END,
       CASE action WHEN 'MESSAGE' THEN md5(n::text) END, CASE WHEN n % 100 = 0 THEN 7 ELSE 0 END
  FROM generate_series(1, {count}) n, unnest(ARRAY['MODIFY_FEATURES', 'MESSAGE']) AS action
 WHERE action = 'MODIFY_FEATURES' OR n % 10 = 0
"""

FILTERS = {
    "all": LogFilter(),
    "author": LogFilter(authors=("author 77",)),
    "authors": LogFilter(authors=("author 77", "author 78")),
    "application": LogFilter(app_ids=("app 77",)),
    "collection": LogFilter(collections=("c77",)),
    "collections": LogFilter(collections=("c77", "c78", "c79")),
    "author and collection": LogFilter(authors=("author 77",), collections=("c77",)),
    "box": LogFilter(bbox=Bbox(10.2, 10.2, 10.8, 10.8)),
    "box and collection": LogFilter(bbox=Bbox(10.2, 10.2, 10.8, 10.8), collections=("c77",)),
    "overlay": LogFilter(overlays=(7,)),
    "text": LogFilter(text="abcdef", overlays=None),
    "text and collection": LogFilter(text="abcdef", collections=("c77",)),
}


@pytest.fixture(scope="module")
async def long_log(postgres_cluster: PostgresCluster, installed: str) -> AsyncIterator[Direct]:
    """A log of four days."""
    name = "long_log"
    dsn = postgres_cluster.create_database(name, template=installed)
    connection = await connect_to(dsn)
    for day in range(DAYS + 1):
        await by_force(
            connection,
            "SELECT naksha_ensure_day('naksha_tx', naksha_day_txn(date '2031-05-01' + $1::int))",
            day,
        )
    await by_force(connection, "ALTER TABLE naksha_tx DISABLE TRIGGER naksha_tx_finish")
    await by_force(connection, ROWS.format(days=DAYS, count=TRANSACTIONS))
    await connection.execute("VACUUM ANALYZE naksha_tx")
    yield connection
    await connection.close()
    postgres_cluster.drop_database(name)


async def plan_of(connection: Direct, where: LogFilter, newest_first: bool) -> Plan:
    boxes = boxes_of(where.bbox)
    text, values = log.found_statement((0, 2**62), 30, where, boxes, newest_first)
    return await explain(connection, text, *values)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("name", FILTERS)
async def test_no_filter_reads_the_whole_log(
    long_log: Direct, name: str, newest_first: bool
) -> None:
    plan = await plan_of(long_log, FILTERS[name], newest_first)
    small = await long_log.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'naksha\\_tx\\_%' AND reltuples < 100"
    )
    # Days with next to nothing in them are read as they are.
    assert plan.sequential - {row["relname"] for row in small} == set()

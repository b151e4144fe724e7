"""History of the benchmark `timetravel`: 30 edits in each of thousands of revisions, over years.

`by_sessions` writes it like clients do, one transaction per revision. `in_bulk` creates the same
rows on PostgreSQL in a fraction of the time: it writes many revisions in one transaction, with the
functions of the schema, and vacuums HEAD as often as autovacuum would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import asyncpg

from benchmarks._data import Feature
from naksha.model.collection import CollectionInfo
from naksha.model.features import check_features
from naksha.model.identity.txn import date_of, txn_of
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage

COLLECTION: Final = "roads"
DAYS: Final = 1_100
START_MS: Final = 1_672_531_200_000  # 2023-01-01
END_MS: Final = START_MS + DAYS * 86_400_000
EDITS: Final = 30
MAINTAIN_EVERY: Final = 250
COLUMNS, ROWS = 400, 250

Txns = dict[str, int]
"""Transactions of the revisions "0", "middle" and "last"."""


@dataclass(frozen=True)
class Revision:
    """Edits of one transaction."""

    number: int
    at_ms: int
    features: list[Feature]


@dataclass(frozen=True)
class HistoryPlan:
    """Size of a history; the same size always has the same features and edits."""

    count: int
    revisions: int

    def first(self) -> list[Feature]:
        """Generate the features before all edits."""
        rng = random.Random(self.count)
        return [grid_line(number, self.count, rng) for number in range(self.count)]

    def edits(self) -> Iterator[Revision]:
        """Generate the edits of every revision."""
        rng = random.Random(self.count + self.revisions)
        step = DAYS * 86_400_000 // (self.revisions + 1)
        for number in range(1, self.revisions + 1):
            chosen = rng.sample(range(self.count), EDITS)
            features = [grid_line(each, self.count, rng) for each in chosen]
            yield Revision(number, START_MS + number * step, features)

    @property
    def vacuum_every(self) -> int:
        """Return the number of revisions after which autovacuum's default threshold is reached."""
        return max(1, round((50 + 0.2 * self.count) / EDITS))


def grid_line(number: int, count: int, rng: random.Random) -> Feature:
    """Generate a random line inside its own cell of the grid."""
    columns = max(1, round((count * COLUMNS / ROWS) ** 0.5))
    rows = -(-count // columns)
    west, south = -180 + 360 * (number % columns) / columns, -90 + 180 * (number // columns) / rows
    wide, high = 360 / columns, 180 / rows
    line = [
        [round(west + rng.random() * wide, 7), round(south + rng.random() * high, 7)]
        for _ in range(4)
    ]
    return {
        "id": f"road-{number:06d}",
        "type": "Feature",
        "geometry": {"type": "LineString", "coordinates": line},
        "properties": {"txt": f"text of feature {number} {rng.random()}"},
    }


async def by_sessions(storage: Storage, plan: HistoryPlan) -> Txns:
    """Write one transaction per revision."""
    txns = {"0": await _create(storage, plan)}
    for revision in plan.edits():
        async with storage.write("bench", at_ms=revision.at_ms) as session:
            await session.update(COLLECTION, revision.features)
        _note(txns, plan, revision, session.txn or 0)
        if revision.number % MAINTAIN_EVERY == 0:
            await storage.maintain(revision.at_ms)
    await storage.wait_published(txns["last"], 60)
    await storage.maintain(END_MS)
    return txns


async def _create(storage: Storage, plan: HistoryPlan) -> int:
    async with storage.write("bench", at_ms=START_MS) as session:
        await session.create_collection(CollectionInfo(id=COLLECTION))
        await session.create(COLLECTION, plan.first())
    assert session.txn is not None
    await storage.wait_published(session.txn, 60)
    await storage.maintain(START_MS)
    return session.txn


def _note(txns: Txns, plan: HistoryPlan, revision: Revision, txn: int) -> None:
    if revision.number == plan.revisions // 2:
        txns["middle"] = txn
    txns["last"] = txn


# ---- in bulk, on PostgreSQL ----------------------------------------------------------------------

STAGE = """CREATE TEMP TABLE edit (rank int, i int8, txn int8, at_ms int8, id text, content jsonb,
    wkb bytea, qrid text)"""
STAGED = ("rank", "i", "txn", "at_ms", "id", "content", "wkb", "qrid")
FIRST_I = "SELECT last_value FROM roads_i_seq"
MONTH = """SELECT s.*, naksha_create_partition($1, $1 || '_' || s.label, s.from_day, s.to_day),
    naksha_attach_partition($1, $1 || '_' || s.label, s.from_day, s.to_day)
  FROM naksha_free_span($1, $2, 7) AS s WHERE naksha_partition_of($1, naksha_day_txn($2)) IS NULL"""
DAY = "SELECT naksha_ensure_day($1, naksha_day_txn($2))"
TO_HISTORY = """INSERT INTO roads_hst (i, geo, jsondata)
SELECT o.i, o.geo, naksha_closed(o.jsondata, e.txn)
  FROM edit e JOIN roads o ON o.jsondata->>'id' = e.id WHERE e.rank = $1"""
TO_HEAD = """UPDATE roads AS o
   SET i = e.i, geo = ST_Force3D(ST_SetSRID(ST_GeomFromWKB(e.wkb), 4326)),
       jsondata = naksha_with_xyz(e.content, naksha_next_xyz(
           naksha_xyz(o.jsondata), naksha_guid(naksha_storage_id(), 'roads', e.txn, e.i), NULL,
           e.txn, e.at_ms, naksha_clock_ms(), NULL, 'bench', naksha_xyz(o.jsondata)->'tags', NULL,
           e.qrid))
  FROM edit e WHERE o.jsondata->>'id' = e.id AND e.rank = $1"""
TO_LOG = """INSERT INTO naksha_tx (ts, seq_ts, txn, action, id, app_id, updated, bbox)
SELECT t.at, t.at, s.txn, 'MODIFY_FEATURES', 'roads', 'bench', s.updated, naksha_box(s.area)
  FROM (SELECT txn, count(*) FILTER (WHERE is_new) AS updated, min(at_ms) AS at_ms,
               ST_Extent(geo)::geometry AS area
          FROM (SELECT naksha_xyz_txn(jsondata) AS txn, geo, true AS is_new,
                       (naksha_xyz(jsondata)->>'updatedAt')::int8 AS at_ms FROM roads
                UNION ALL
                SELECT naksha_xyz_txn(jsondata), geo, true,
                       (naksha_xyz(jsondata)->>'updatedAt')::int8 FROM roads_hst
                UNION ALL
                SELECT naksha_xyz_txn_next(jsondata), geo, false, NULL FROM roads_hst) AS state
         WHERE txn > $1 GROUP BY txn) AS s, naksha_time_of(s.at_ms) AS t(at)
 ORDER BY s.txn"""
TO_SEQUENCES = "SELECT setval('naksha_tx_object_id_seq', $1), setval('roads_i_seq', $2)"
PUBLISH = "SELECT published FROM naksha_publish()"


async def in_bulk(dsn: str, storage: PsqlStorage, plan: HistoryPlan) -> Txns:
    """Write the same rows in a few large transactions."""
    first = await _create(storage, plan)
    async with _connected(dsn) as connection:
        for parent in (f"{COLLECTION}_hst", "naksha_tx"):
            await _partitions(connection, parent, plan)
        txns = await _edited(connection, plan, first)
        await connection.execute(TO_LOG, first)
        while await connection.fetchval(PUBLISH):
            pass
    await storage.maintain(END_MS)
    return txns


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Connect as a replica would: triggers neither refuse nor repeat what is written."""
    settings = {"search_path": "naksha, public", "session_replication_role": "replica"}
    connection = await asyncpg.connect(dsn, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def _partitions(connection: asyncpg.Connection[Any], parent: str, plan: HistoryPlan) -> None:
    """Create the partitions that sessions and maintenance leave before the last months are merged.

    These are months, and days in the last month and where a month has only one.
    """
    days = sorted({_day(revision.at_ms) for revision in plan.edits()})
    months = Counter(day.replace(day=1) for day in days)
    for day in days:
        month = day.replace(day=1)
        is_merged = months[month] > 1 and month < max(months)
        await connection.execute(MONTH if is_merged else DAY, parent, day)


def _day(at_ms: int) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).date()


async def _edited(connection: asyncpg.Connection[Any], plan: HistoryPlan, txn: int) -> Txns:
    txns = {"0": txn}
    i: int = await connection.fetchval(FIRST_I)
    ranks: Counter[str] = Counter()
    rows: list[tuple[Any, ...]] = []
    await connection.execute(STAGE)
    for revision in plan.edits():
        day = _day(revision.at_ms)
        txn = txn + 1 if day == date_of(txn) else txn_of(day, 0)
        edits = check_features(revision.features)
        ranks.update(edits.ids)
        columns = zip(edits.qrid, edits.ids, edits.json, edits.wkb, strict=True)
        for qrid, id, content, wkb in sorted(columns):
            i += 1
            rows.append((ranks[id], i, txn, revision.at_ms, id, content.decode(), wkb, qrid))
        _note(txns, plan, revision, txn)
        if revision.number % plan.vacuum_every == 0 or revision.number == plan.revisions:
            await _apply(connection, rows, max(ranks.values()))
            rows.clear()
            ranks.clear()
            await connection.execute("VACUUM ANALYZE roads")
    await connection.execute(TO_SEQUENCES, txn, i)
    return txns


async def _apply(
    connection: asyncpg.Connection[Any], rows: list[tuple[Any, ...]], ranks: int
) -> None:
    """Write revisions; states of one feature follow each other in separate statements."""
    async with connection.transaction():
        await connection.execute("TRUNCATE edit")
        await connection.copy_records_to_table("edit", columns=STAGED, records=rows)
        await connection.execute("ANALYZE edit")
        for rank in range(1, ranks + 1):
            await connection.execute(TO_HISTORY, rank)
            await connection.execute(TO_HEAD, rank)

"""Steps of the benchmark `writes` on SQLite.

They write with the library, into a plain table with the same columns and indexes that gets complete
rows, and with SQL through the triggers.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import _data
from naksha.model.collection import CollectionInfo
from naksha.model.features import check_features
from naksha.sqlite import SqliteStorage
from naksha.sqlite.schema.file import connect
from naksha.sqlite.write.states import TransactionStamp, document, namespace, stored_geometries_of

Samples = dict[str, list[float]]
COLUMNS = (
    "i INTEGER UNIQUE, id TEXT UNIQUE, geo BLOB, geometry TEXT, jsondata TEXT NOT NULL, west REAL, "
    "south REAL, east REAL, north REAL, txn INTEGER, ord INTEGER, version INTEGER, action TEXT, "
    "author TEXT, app_id TEXT, updated_at INTEGER, qrid TEXT, mrid TEXT"
)
TABLE = "CREATE TABLE {t} (n INTEGER PRIMARY KEY, {types})"
INDICES = """CREATE INDEX {t}_txn ON {t} (txn); CREATE INDEX {t}_mrid ON {t} (mrid);
CREATE INDEX {t}_qrid ON {t} (qrid); CREATE INDEX {t}_action ON {t} (action, author);
CREATE VIRTUAL TABLE {t}_box USING rtree(n, west, east, south, north);
CREATE TABLE {t}_tag (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;
CREATE INDEX {t}_tag_n ON {t}_tag (n);"""
BOX = "INSERT INTO {t}_box VALUES (?, ?, ?, ?, ?)"
BOX_UPDATE = "UPDATE {t}_box SET west = ?, east = ?, south = ?, north = ? WHERE n = ?"
TAG = "INSERT INTO {t}_tag VALUES (?, ?)"
RAW_INSERT = "INSERT INTO feature (collection, jsondata) SELECT '{t}', value FROM json_each(?)"
RAW_UPDATE = (
    "UPDATE feature SET jsondata = json_set(jsondata, '$.properties.lanes', 9)"
    " WHERE collection = '{t}'"
)
RAW_DELETE = "DELETE FROM feature WHERE collection = '{t}'"


def measure(count: int, rounds: int) -> Samples:
    """Time all steps, interleaved."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder) / "bench.naksha", count, rounds))


async def _measure(path: Path, count: int, rounds: int) -> Samples:
    features = _data.roads(count)
    edited = _data.edited(features)
    samples: Samples = {}
    storage = await SqliteStorage.open(path, "bench")
    plain = connect(path)
    rows = [_rows(features, 1, 2026010100000000000), _rows(edited, count + 1, 2026010100000000001)]
    try:
        for turn in range(rounds):
            await _library(storage, f"lib{turn}", features, edited, samples)
            _plain(plain, f"plain{turn}", rows[0], rows[1], samples)
            await _raw(plain, storage, f"raw{turn}", features[: count // 5], samples)
    finally:
        plain.close()
        await storage.close()
    return samples


def _timed(samples: Samples, name: str, work: Callable[[], object]) -> None:
    start = time.perf_counter()
    work()
    samples.setdefault(name, []).append(time.perf_counter() - start)


async def _library(
    storage: SqliteStorage,
    name: str,
    features: list[_data.Feature],
    edited: list[_data.Feature],
    samples: Samples,
) -> None:
    ids = [feature["id"] for feature in features]
    async with storage.write("bench") as session:
        await session.create_collection(CollectionInfo(id=name))
    for label, work in (
        ("create", lambda s: s.create(name, features)),
        ("update", lambda s: s.update(name, edited)),
        ("delete", lambda s: s.delete(name, ids)),
    ):
        start = time.perf_counter()
        await storage.run(work, "bench")
        samples.setdefault(label, []).append(time.perf_counter() - start)


def _rows(features: list[_data.Feature], first: int, txn: int) -> list[tuple[Any, ...]]:
    """Build complete rows, in the order of the columns."""
    prepared = check_features(features)
    shapes = stored_geometries_of(prepared)
    by = TransactionStamp(txn, txn % 1000, "bench:roads:2026:1:1:", "bench", '"bench"', 1, 1)
    rows: list[tuple[Any, ...]] = []
    for k, id_ in enumerate(prepared.ids):
        qrid = prepared.qrid[k]
        xyz = namespace(
            by, first + k, "CREATE", 1, '"bench"', None, None, 1, 1, prepared.tags[k] or (), None,
            qrid,
        )  # fmt: skip
        rows.append((
            first + k, id_, prepared.wkb[k], shapes.geometry[k], document(prepared.json[k], xyz),
            *(shapes.box[k] or (None,) * 4), txn, by.ord, 1, "CREATE", "bench", "bench", 1, qrid,
            qrid,
        ))  # fmt: skip
    return rows


def _plain(
    connection: sqlite3.Connection,
    name: str,
    first: list[tuple[Any, ...]],
    second: list[tuple[Any, ...]],
    samples: Samples,
) -> None:
    columns = [each.split()[0] for each in COLUMNS.split(", ")]
    connection.execute(TABLE.format(t=name, types=COLUMNS))
    connection.executescript(INDICES.format(t=name))
    places = ", ".join("?" * (len(columns) + 1))
    insert = f"INSERT INTO {name} (n, {', '.join(columns)}) VALUES ({places})"
    update = f"UPDATE {name} SET {', '.join(f'{c} = ?' for c in columns)} WHERE id = ?"
    boxes = [(n, r[5], r[7], r[6], r[8]) for n, r in enumerate(first, 1)]
    moved = [(r[5], r[7], r[6], r[8], n) for n, r in enumerate(second, 1)]

    def create() -> None:
        connection.execute("BEGIN")
        connection.executemany(insert, [(n, *row) for n, row in enumerate(first, 1)])
        connection.executemany(BOX.format(t=name), boxes)
        connection.executemany(TAG.format(t=name), [("primary", n + 1) for n in range(len(first))])
        connection.execute("COMMIT")

    def change() -> None:
        connection.execute("BEGIN")
        connection.executemany(update, [(*row, row[1]) for row in second])
        connection.executemany(BOX_UPDATE.format(t=name), moved)
        connection.execute("COMMIT")

    _timed(samples, "plain insert", create)
    _timed(samples, "plain update", change)


async def _raw(
    connection: sqlite3.Connection,
    storage: SqliteStorage,
    name: str,
    features: list[_data.Feature],
    samples: Samples,
) -> None:
    async with storage.write("bench") as session:
        await session.create_collection(CollectionInfo(id=name))
    texts = b",".join(check_features(features).json).decode()
    for label, text, values in (
        ("raw insert", RAW_INSERT, (f"[{texts}]",)),
        ("raw update", RAW_UPDATE, ()),
        ("raw delete", RAW_DELETE, ()),
    ):
        statement = text.format(t=name)
        _timed(samples, label, partial(connection.execute, statement, values))

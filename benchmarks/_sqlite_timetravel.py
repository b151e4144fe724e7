"""Layouts of the benchmark `timetravel` on SQLite.

These are an unversioned reference table, a single table with the columns revision and expired, and
Naksha's tables, each with the same columns and indexes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._history import HistoryPlan, Txns, by_sessions
from naksha.model.query import Bbox, Query
from naksha.sqlite import SqliteStorage
from naksha.sqlite.read import statements
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.schema.file import connect

Key = tuple[str, str, str]
Times = dict[tuple[str, str, str, str], float]
Layouts = dict[Key, tuple[str, list[Any]]]
File = tuple[sqlite3.Connection, Layouts]
TABLES = """
CREATE TABLE ref AS SELECT * FROM naksha_head ORDER BY n;
CREATE UNIQUE INDEX ref_n ON ref (n); CREATE UNIQUE INDEX ref_i ON ref (i);
CREATE UNIQUE INDEX ref_id ON ref (id); CREATE INDEX ref_txn ON ref (txn);
CREATE INDEX ref_mrid ON ref (mrid); CREATE INDEX ref_qrid ON ref (qrid);
CREATE INDEX ref_action ON ref (action, author);
CREATE VIRTUAL TABLE ref_box USING rtree(n, west, east, south, north);
INSERT INTO ref_box SELECT rowid, west, east, south, north FROM ref;
CREATE TABLE gs AS SELECT i, id, geometry, jsondata, west, south, east, north, txn AS revision,
    9223372036854775807 AS expired FROM naksha_head
UNION ALL SELECT i, id, geometry, jsondata, west, south, east, north, txn, txn_next FROM naksha_hst
ORDER BY 9, 2;
CREATE UNIQUE INDEX gs_key ON gs (revision, id); CREATE INDEX gs_expired ON gs (expired, id);
CREATE VIRTUAL TABLE gs_box USING rtree(n, west, east, south, north);
INSERT INTO gs_box SELECT rowid, west, east, south, north FROM gs;
ANALYZE;
"""
FEATURE = (
    "CAST('{{\"geometry\":' || coalesce({s}.geometry, 'null') || ',' || "
    "substr({s}.jsondata, 2) AS BLOB)"
)
REF = f"SELECT s.id, {FEATURE.format(s='s')} FROM ref AS s"
REF_BOX = f"SELECT s.id, {FEATURE.format(s='s')} FROM ref_box b CROSS JOIN ref s ON s.rowid = b.n"
GS = f"SELECT s.id, {FEATURE.format(s='s')} FROM gs AS s WHERE "
GS_BOX = f"SELECT s.id, {FEATURE.format(s='s')} FROM gs_box b CROSS JOIN gs s ON s.rowid = b.n"
BOX = """ WHERE b.west <= ?3 AND b.east >= ?1 AND b.south <= ?4 AND b.north >= ?2
  AND s.west <= ?3 AND s.east >= ?1 AND s.south <= ?4 AND s.north >= ?2"""
HEAD = "s.expired = 9223372036854775807"
PAST = "s.revision <= ?{n} AND s.expired > ?{n}"
SESSIONS = 8
TURNS, TURNS_FULL = 7, 3
"""Rounds with new connections and with several sessions, and those for full extracts."""


def measure(
    plans: Sequence[HistoryPlan], shapes: dict[str, Bbox | None], repetitions: dict[str, int]
) -> tuple[list[Times], dict[str, float]]:
    """Build each size and measure all reads; then measure the growth from the first to the last."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor() as processes:
        paths = [Path(folder) / f"bench{plan.revisions}.naksha" for plan in plans]
        found: list[Times] = []
        files: list[File] = []
        for path, txns in zip(paths, processes.map(_filled, paths, plans), strict=True):
            connection = connect(path)
            connection.executescript(TABLES)
            file = (connection, _layouts(connection, txns, shapes))
            files.append(file)
        for path, file in zip(paths, files, strict=True):
            times = _one_session(*file, repetitions)
            times |= _fresh_connections(path, file[1])
            times |= _eight_sessions(path, file[1])
            found.append(times)
        growth = _growth(files[0], files[-1], repetitions)
        for connection, _ in files:
            connection.close()
        return found, growth


def _growth(few: File, many: File, repetitions: dict[str, int]) -> dict[str, float]:
    """Return the worst slowdown of each layout with the longer history, measured interleaved."""
    worst: dict[str, float] = {}
    for key in many[1]:
        layout, _, shape = key
        if layout == "ref" or shape == "small":
            continue
        turns = [
            [_seconds(connection, *layouts[key]) for connection, layouts in (few, many)]
            for _ in range(repetitions[shape] + 1)
        ]
        short, long = (median(seconds[1:]) for seconds in zip(*turns, strict=True))
        worst[layout] = max(worst.get(layout, 0.0), long / short)
    return worst


def _filled(path: Path, plan: HistoryPlan) -> Txns:
    async def fill() -> Txns:
        storage = await SqliteStorage.open(path, "bench")
        try:
            return await by_sessions(storage, plan)
        finally:
            await storage.close()

    return asyncio.run(fill())


def _layouts(
    connection: sqlite3.Connection, txns: dict[str, int], shapes: dict[str, Bbox | None]
) -> Layouts:
    roads = collection_of(connection, "roads")
    found: Layouts = {}
    for shape, box in shapes.items():
        edges = [] if box is None else [box.west, box.south, box.east, box.north]
        query = Query(spatial=box)
        found["ref", "HEAD", shape] = (REF if box is None else REF_BOX + BOX, edges)
        head = GS + HEAD if box is None else f"{GS_BOX}{BOX} AND {HEAD}"
        found["gs", "HEAD", shape] = (head, edges)
        found["ours", "HEAD", shape] = statements.states([LayerRows(roads, None)], query)
        for version, txn in txns.items():
            past = PAST.format(n=len(edges) + 1)
            text = GS + past if box is None else f"{GS_BOX}{BOX} AND {past}"
            found["gs", version, shape] = (text, [*edges, txn])
            found["ours", version, shape] = statements.states([LayerRows(roads, txn)], query)
    return found


def _seconds(connection: sqlite3.Connection, text: str, values: list[Any]) -> float:
    start = time.perf_counter()
    connection.execute(text, values).fetchall()
    return time.perf_counter() - start


def _one_session(
    connection: sqlite3.Connection,
    layouts: Layouts,
    repetitions: dict[str, int],
) -> Times:
    samples: dict[Key, list[float]] = {}
    for shape, number in repetitions.items():
        for turn in range(number + 1):
            for key, (text, values) in layouts.items():
                if key[2] == shape:
                    seconds = _seconds(connection, text, values)
                    if turn:
                        samples.setdefault(key, []).append(seconds)
    return {("prepared", *key): median(values) for key, values in samples.items()}


def _turns(layouts: Layouts) -> Iterator[tuple[int, Key, tuple[str, list[Any]]]]:
    """Iterate over the rounds with new connections or several sessions."""
    for turn in range(TURNS):
        for key, statement in layouts.items():
            if key[0] != "gs" and (key[2] != "full" or turn < TURNS_FULL):
                yield turn, key, statement


def _fresh_connections(path: Path, layouts: Layouts) -> Times:
    samples: dict[Key, list[float]] = {}
    for _, key, (text, values) in _turns(layouts):
        connection = connect(path)
        samples.setdefault(key, []).append(_seconds(connection, text, values))
        connection.close()
    return {("fresh", *key): median(values) for key, values in samples.items()}


def _eight_sessions(path: Path, layouts: Layouts) -> Times:
    """Time eight connections together, each in its own thread."""
    connections = [connect(path) for _ in range(SESSIONS)]
    samples: dict[Key, list[float]] = {}
    for turn, key, (text, values) in _turns(layouts):
        start = time.perf_counter()
        threads = [
            threading.Thread(target=_seconds, args=(connection, text, values))
            for connection in connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if turn:
            samples.setdefault(key, []).append((time.perf_counter() - start) / SESSIONS)
    for connection in connections:
        connection.close()
    return {("8 sessions", *key): median(values) for key, values in samples.items()}

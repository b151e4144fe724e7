"""Reading HEAD and past versions against an unversioned table, while history grows.

The benchmark of the GeoServer versioning document: 100,000 lines on a grid, 4,000 and 10,000
revisions of 30 edits, spread over 1,100 days. Three layouts are compared: an unversioned reference
table with the columns and indexes of Naksha's, the document's single table with the columns
revision and expired, and Naksha's tables after maintenance. Each is queried for a full extract, a
bbox of about 10,000 and one of about 30 features, at HEAD and at revisions 0, middle and last, as
(id, GeoJSON bytes) by prepared statements. The first and the last layout are also queried on a new
connection and with 8 sessions at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import asyncpg

from benchmarks import _history, _sqlite_timetravel
from benchmarks._frame import Cell, Options, Report, postgres_database, side_by_side
from benchmarks._history import HistoryPlan
from naksha.model.query import Bbox, Query
from naksha.model.version import HEAD, AtTxn
from naksha.psql import PsqlStorage
from naksha.psql.read import statements
from naksha.psql.storage import session_settings

TAKES = ("storage",)
BIG, SMALL = Bbox(0.0, 0.0, 80.0, 80.0), Bbox(10.0, 10.0, 14.4, 14.4)
SHAPES: dict[str, Bbox | None] = {"full": None, "bbox": BIG, "small": SMALL}
REPETITIONS = {"full": 5, "bbox": 15, "small": 60}
SESSIONS = 8
TURNS, TURNS_FULL = 7, 3
"""Rounds with new connections and with several sessions, and those for full extracts."""

REFERENCE = """
CREATE TABLE ref (i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL);
INSERT INTO ref SELECT * FROM roads ORDER BY jsondata->>'id';
SELECT naksha_create_indices('ref', 'head', false);
CREATE TABLE gs AS SELECT i, geo, jsondata, naksha_xyz_txn(jsondata) AS revision,
    9223372036854775807 AS expired, jsondata->>'id' AS id FROM roads
UNION ALL SELECT i, geo, jsondata, naksha_xyz_txn(jsondata), naksha_xyz_txn_next(jsondata),
    jsondata->>'id' FROM roads_hst ORDER BY 4, 6;
ALTER TABLE gs ADD PRIMARY KEY (revision, id);
CREATE INDEX ON gs USING gist (geo);
CREATE INDEX ON gs (expired, id);
"""
REF_SELECT = "SELECT jsondata->>'id' AS id, naksha_feature(geo, jsondata) AS feature FROM ref"
GS_SELECT = "SELECT id, naksha_feature(geo, jsondata) AS feature FROM gs WHERE {version}"
GS_HEAD = "expired = 9223372036854775807"
GS_PAST = "revision <= {v} AND expired > {v}"
BOX = "geo && ST_MakeEnvelope($1, $2, $3, $4, 4326)"

NOTES = {
    "postgresql": (
        "Goals: steady_head_full ≤ 1.05, steady_head_bbox ≤ 1.1, steady_past_full ≤ 1.15, "
        "steady_past_bbox ≤ 1.2; with new connections ≤ 1.1, 1.15, 1.2, 1.3; small_extra_ms ≤ 1, "
        "growth ≤ 1.1. The first query of a new connection reads the definitions of all its "
        "tables and indexes, which are 16 times those of the reference."
    ),
    "sqlite": "Goals: head_* ≤ 1.1, past_* ≤ 1.25.",
}
KEYS_NOTE = (
    "A plain key is the worst of all cases. Keys with steady_ exclude new connections (fresh_) and "
    "queries through the library (library_), which resolves the version and builds states."
)

Key = tuple[str, str, str]
Statement = tuple[str, list[Any]]


@dataclass
class Layouts:
    """Statements by layout, version and shape."""

    statements: dict[Key, Statement] = field(default_factory=dict)

    def add(self, layout: str, version: str, shape: str, statement: Statement) -> None:
        self.statements[layout, version, shape] = statement

    def turns(self) -> Iterator[tuple[int, Key, Statement]]:
        """Iterate over the rounds with new connections or several sessions."""
        for turn in range(TURNS):
            for key, statement in self.statements.items():
                if key[0] != "gs" and (key[2] != "full" or turn < TURNS_FULL):
                    yield turn, key, statement


Times = dict[tuple[str, str, str, str], float]


def run(options: Options) -> Report:
    """Build and read both sizes; each ratio is the worst of its cases."""
    count = options.size(100_000, 10_000)
    plans = [
        HistoryPlan(count, options.size(4_000, 80)),
        HistoryPlan(count, options.size(10_000, 200)),
    ]
    if options.storage == "sqlite":
        both, growth = _sqlite_timetravel.measure(plans, SHAPES, REPETITIONS)
    else:
        with postgres_database() as few, postgres_database() as many:
            both, growth = asyncio.run(_on_postgres(dict(zip((few, many), plans, strict=True))))
    results = {plan.revisions: times for plan, times in zip(plans, both, strict=True)}
    return _report(results, growth, NOTES[options.storage])


async def _on_postgres(plans: dict[str, HistoryPlan]) -> tuple[list[Times], dict[str, float]]:
    """Measure each size on its own server, and then the two against each other."""
    databases = await asyncio.gather(*(_filled(dsn, plan) for dsn, plan in plans.items()))
    return [await _measure(database) for database in databases], await _growth(*databases)


@dataclass
class FilledDatabase:
    """Filled database of one size, and its statements."""

    dsn: str
    txns: dict[str, int]
    layouts: Layouts

    async def connect(self) -> asyncpg.Connection[Any]:
        settings = session_settings("naksha, public", "bench")
        return await asyncpg.connect(self.dsn, server_settings=settings)


async def _filled(dsn: str, plan: HistoryPlan) -> FilledDatabase:
    storage = await PsqlStorage.open(dsn, "bench")
    try:
        txns = await _history.in_bulk(dsn, storage, plan)
    finally:
        await storage.close()
    database = FilledDatabase(dsn, txns, _layouts(txns))
    connection = await database.connect()
    await connection.execute(REFERENCE)
    for table in ("ref", "gs", "roads", "roads_hst"):
        await connection.execute(f"VACUUM ANALYZE {table}")
    await connection.close()
    return database


async def _measure(database: FilledDatabase) -> Times:
    connection = await database.connect()
    times = await _one_session(connection, database.layouts)
    times |= await _fresh_connections(database.connect, database.layouts)
    times |= await _eight_sessions(database.connect, database.layouts)
    times |= await _through_the_library(database, connection)
    await connection.close()
    return times


async def _through_the_library(
    database: FilledDatabase, connection: asyncpg.Connection[Any]
) -> Times:
    """Time small queries through the library, interleaved with the statements of other layouts."""
    storage = await PsqlStorage.open(database.dsn, "bench")
    samples: dict[Key, list[float]] = {}
    small = {key: value for key, value in database.layouts.statements.items() if key[2] == "small"}
    for turn in range(REPETITIONS["small"] + 1):
        for key, (text, values) in small.items():
            if key[0] == "ours":
                at = HEAD if key[1] == "HEAD" else AtTxn(database.txns[key[1]])
                asking: Awaitable[object] = storage.page("roads", Query(spatial=SMALL), at)
            else:
                asking = connection.fetch(text, *values)
            seconds = await _timed(asking)
            if turn:
                samples.setdefault(key, []).append(seconds)
    await storage.close()
    return {("library", *key): median(values) for key, values in samples.items()}


async def _growth(few: FilledDatabase, many: FilledDatabase) -> dict[str, float]:
    """Return the worst slowdown of each layout with the longer history, measured interleaved."""
    connections = {id(each): await each.connect() for each in (few, many)}
    worst: dict[str, float] = {}
    for key in many.layouts.statements:
        layout, _, shape = key
        if layout == "ref" or shape == "small":
            continue
        ways = {
            name: partial(connections[id(each)].fetch, text, *values)
            for name, each in (("few", few), ("many", many))
            for text, values in [each.layouts.statements[key]]
        }
        timings = await side_by_side(ways, repetitions=REPETITIONS[shape])
        growth = timings["many"].median / timings["few"].median
        worst[layout] = max(worst.get(layout, 0.0), growth)
    for connection in connections.values():
        await connection.close()
    return worst


def _layouts(txns: dict[str, int]) -> Layouts:
    layouts = Layouts()
    for shape, box in SHAPES.items():
        edges = [] if box is None else [box.west, box.south, box.east, box.north]
        where = "" if box is None else f" WHERE {BOX}"
        both = "" if box is None else f" AND {BOX}"
        query = Query(spatial=box)
        layouts.add("ref", "HEAD", shape, (REF_SELECT + where, [*edges]))
        layouts.add("gs", "HEAD", shape, (GS_SELECT.format(version=GS_HEAD) + both, [*edges]))
        layouts.add("ours", "HEAD", shape, statements.states("roads", query, None))
        for version, txn in txns.items():
            past = GS_PAST.format(v=f"${len(edges) + 1}::int8")
            text = GS_SELECT.format(version=past) + both
            layouts.add("gs", version, shape, (text, [*edges, txn]))
            layouts.add("ours", version, shape, statements.states("roads", query, txn))
    return layouts


async def _timed(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def _one_session(connection: asyncpg.Connection[Any], layouts: Layouts) -> Times:
    """Time prepared statements on one connection, interleaved."""
    prepared = {
        key: (await connection.prepare(text), values)
        for key, (text, values) in layouts.statements.items()
    }
    samples: dict[Key, list[float]] = {key: [] for key in prepared}
    for shape, repetitions in REPETITIONS.items():
        chosen = {key: value for key, value in prepared.items() if key[2] == shape}
        for turn in range(repetitions + 1):
            for key, (statement, values) in chosen.items():
                seconds = await _timed(statement.fetch(*values))
                if turn:
                    samples[key].append(seconds)
    return {("prepared", *key): median(values) for key, values in samples.items()}


async def _fresh_connections(
    connect: Callable[[], Awaitable[asyncpg.Connection[Any]]], layouts: Layouts
) -> Times:
    """Time the first query of a connection, when nothing is planned or cached in its session."""
    samples: dict[Key, list[float]] = {}
    for _, key, (text, values) in layouts.turns():
        connection = await connect()
        seconds = await _timed(connection.fetch(text, *values))
        samples.setdefault(key, []).append(seconds)
        await connection.close()
    return {("fresh", *key): median(values) for key, values in samples.items()}


async def _eight_sessions(
    connect: Callable[[], Awaitable[asyncpg.Connection[Any]]], layouts: Layouts
) -> Times:
    """Time eight sessions that run the same query at once."""
    connections = [await connect() for _ in range(SESSIONS)]
    samples: dict[Key, list[float]] = {}
    for turn, key, (text, values) in layouts.turns():
        seconds = await _timed(asyncio.gather(*(c.fetch(text, *values) for c in connections)))
        if turn:
            samples.setdefault(key, []).append(seconds / SESSIONS)
    for connection in connections:
        await connection.close()
    return {("8 sessions", *key): median(values) for key, values in samples.items()}


def _report(results: dict[int, Times], growth: dict[str, float], note: str) -> Report:
    report = Report(
        "Reading versions",
        ["revisions", "how", "shape", "version", "ref ms", "single-table ms", "ours ms", "ratio"],
    )
    worst: dict[str, float] = {}
    for revisions, times in results.items():
        for (how, layout, version, shape), seconds in times.items():
            if layout != "ours":
                continue
            reference = times[how, "ref", "HEAD", shape]
            single = times.get((how, "gs", version, shape))
            row: list[Cell] = [revisions, how, shape, version, reference * 1e3]
            row += ["" if single is None else single * 1e3, seconds * 1e3, seconds / reference]
            report.rows.append(row)
            kind = {"fresh": "fresh_", "library": "library_"}.get(how, "steady_")
            for prefix in ("", kind):
                _note_worst(worst, prefix, shape, version, seconds, reference)
                if single is not None:
                    _note_worst(worst, f"gs_{prefix}", shape, version, single, reference)
    worst["growth"], worst["gs_growth"] = growth["ours"], growth["gs"]
    report.figures.update({name: round(value, 3) for name, value in sorted(worst.items())})
    report.notes += [note, KEYS_NOTE]
    return report


def _note_worst(
    worst: dict[str, float], prefix: str, shape: str, version: str, value: float, reference: float
) -> None:
    if shape == "small":
        name, figure = f"{prefix}small_extra_ms", (value - reference) * 1e3
    else:
        name = f"{prefix}{'head' if version == 'HEAD' else 'past'}_{shape}"
        figure = value / reference
    worst[name] = max(worst.get(name, 0.0), figure)

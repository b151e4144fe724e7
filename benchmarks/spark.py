"""The data pipeline on Spark: load and read of a large collection, against COPY and Spark's JDBC.

*Load*: the job `load` of Parquet files into a new collection, against raw: the same files are read
by two processes, converted to rows of the same content (namespace included) and copied by four
connections into 16 plain tables, which get the same indexes. Raw gives no guarantees: nothing is
validated, and there is neither a log nor a collection. `ready_ratio` is relative to raw with rows
that are already in memory.

*Read*: the whole collection as id, geometry and feature, by the data source `naksha`, against
Spark's JDBC reader with the same columns and the same 16 partitions, both into the sink `noop`.

The session is warm. `executor_mb` is the peak memory of Spark's JVM and its Python workers.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import shapely
from pyspark.sql import DataFrame, SparkSession

import naksha.spark
from benchmarks._data import edited, roads
from benchmarks._frame import Options, Report, Timing, postgres_database, side_by_side
from benchmarks._raw import COLLECTION, Data, Piece, clear, copied, indexed, leaf_data
from naksha.model.features import NAMESPACE
from naksha.psql import PsqlStorage
from naksha.psql.bulk.lanes import LANES
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.bulk.staged_rows import leaves_of
from naksha.psql.connection.servers import DatabaseServer
from naksha.spark.jobs.diff import Diff, diff
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading.spec import Load, Mapping
from naksha.spark.jobs.partition import Partition, partition
from naksha.spark.runtime.storage_cache import close_all
from naksha.spark.source.options import StorageRef

FILES = 8
PROCESSES = 2
"""Processes of raw: as many as Spark uses for its tasks on two cores."""
FAR = 1_000_000_000
"""Distance between the first row numbers of the processes, so that numbers are unique."""
BATCH_ROWS = 10_000
JDBC_JAR = Path("/usr/share/java/postgresql.jar")
JDBC_QUERY = (
    "(SELECT jsondata->>'id' AS id, ST_AsBinary(geo) AS geometry, jsondata::text AS feature,"
    " substring(md5(jsondata->>'id'), 1, 1) AS leaf FROM {schema}.{collection}) AS q"
)
PLACE = b'"qrid":"122222202002002222","mrid":"122222202002002222"'
_PROPERTIES = ("name", "speedLimit", "lanes", "oneway", "surface")
_encode = msgspec.json.Encoder().encode


def run(options: Options) -> Report:
    """Time the variants interleaved and compare the medians."""
    if not JDBC_JAR.exists():
        raise SystemExit("Spark's JDBC reader needs Debian's package libpostgresql-jdbc-java")
    count = options.size(1_000_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="naksha-bench-") as folder:
        write_files(Path(folder), count)
        with postgres_database(tcp=True) as dsn, memory_watched() as memory:
            spark = naksha.spark.session(settings={"spark.jars": str(JDBC_JAR)})
            try:
                timings = asyncio.run(_SparkVariants(spark, dsn, Path(folder)).measure(options))
            finally:
                spark.stop()
                close_all()
    return _report(timings, count, memory)


def write_files(folder: Path, count: int) -> None:
    """Write the features as Parquet files, and a file with one percent of them edited."""
    features = roads(count)
    size = -(-count // FILES)
    for number in range(FILES):
        _write_file(folder / f"roads-{number}.parquet", features[number * size :][:size])
    (folder / "edits").mkdir()
    _write_file(folder / "edits" / "edits.parquet", edited(features[: count // 100]))


def _write_file(path: Path, features: list[dict[str, Any]]) -> None:
    lines = [shapely.LineString(each["geometry"]["coordinates"]) for each in features]
    columns: dict[str, Any] = {
        "id": [each["id"] for each in features],
        "geometry": shapely.to_wkb(lines).tolist(),
        "tags": [each["properties"][NAMESPACE]["tags"] for each in features],
    }
    for name in _PROPERTIES:
        columns[name] = [each["properties"][name] for each in features]
    pyarrow.parquet.write_table(pa.table(columns), path)


class _SparkVariants:
    """Variants in one database and one session."""

    def __init__(self, spark: SparkSession, dsn: str, folder: Path) -> None:
        self._spark = spark
        self._dsn = dsn
        self._folder = folder
        self._place = StorageRef(dsn)
        self._ready: list[Data] = []

    async def measure(self, options: Options) -> dict[str, Timing]:
        self._storage = await PsqlStorage.open(self._dsn)
        self._server = self._storage._servers.primary
        self._pool = ProcessPoolExecutor(PROCESSES, get_context("spawn"))
        try:
            self._ready = list(_rows(self._files()))
            loads = await side_by_side(
                {"load": self._load, "raw": self._raw, "ready": self._raw_ready},
                repetitions=options.size(3, 1),
                warm_ups=1,
                before_each=self._clear,
            )
            await self._clear()
            await self._load()
            self._ready.clear()
            reads = await side_by_side(
                {"read": self._read, "jdbc": self._jdbc},
                repetitions=options.size(5, 2),
                warm_ups=1,
            )
            jobs = await self._jobs()
        finally:
            self._pool.shutdown()
            await self._storage.close()
        return loads | reads | jobs

    # ---- Loads -----------------------------------------------------------------------------------

    async def _clear(self) -> None:
        await clear(self._server)

    async def _load(self) -> None:
        await asyncio.to_thread(self._run_load, str(self._folder / "*.parquet"))

    def _run_load(self, files: str) -> None:
        spec = Load(
            place=self._place,
            collection=COLLECTION,
            files=(files,),
            app_id="bench",
            mapping=Mapping(tags="tags"),
        )
        load(self._spark, spec, SilentProgress())

    async def _raw(self) -> None:
        files, server = self._files(), self._server
        loop = asyncio.get_running_loop()
        parts = [files[number::PROCESSES] for number in range(PROCESSES)]
        copying = [
            loop.run_in_executor(
                self._pool, _copy_files, server.dsn, server.settings, part, 1 + number * FAR
            )
            for number, part in enumerate(parts)
        ]
        await asyncio.gather(*copying)
        await indexed(server)

    async def _raw_ready(self) -> None:
        await copied(self._server, iter(self._ready))
        await indexed(self._server)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))

    # ---- Reads -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        reader = self._spark.read.format("naksha").schema(
            "id string not null, geometry binary, feature string not null"
        )
        await _swallow(reader.options(storage=self._dsn, collection=COLLECTION).load())

    async def _jdbc(self) -> None:
        table = JDBC_QUERY.format(schema="naksha", collection=COLLECTION)
        predicates = [f"leaf = '{leaf}'" for leaf in LEAVES]
        properties = {"driver": "org.postgresql.Driver", "fetchsize": "10000"}
        url = _jdbc_url(self._dsn)
        rows = self._spark.read.jdbc(url, table, predicates=predicates, properties=properties)
        await _swallow(rows.drop("leaf"))

    # ---- Jobs ------------------------------------------------------------------------------------

    async def _jobs(self) -> dict[str, Timing]:
        before = str((await self._storage.publication()).last_seq_number)
        await asyncio.to_thread(self._run_load, str(self._folder / "edits" / "*.parquet"))

        def compare() -> None:
            output = str(self._folder / f"diff-{time.monotonic_ns()}")
            spec = Diff(place=self._place, collection=COLLECTION, old=before, output=output)
            diff(self._spark, spec, SilentProgress())

        def cells() -> None:
            partition(
                self._spark, Partition(place=self._place, collection=COLLECTION), SilentProgress()
            )

        ways = {"diff": compare, "partition": cells}
        return {name: await _timed(work) for name, work in ways.items()}


async def _timed(work: Callable[[], None]) -> Timing:
    start = time.perf_counter()
    await asyncio.to_thread(work)
    return Timing((time.perf_counter() - start,))


async def _swallow(rows: DataFrame) -> None:
    await asyncio.to_thread(rows.write.format("noop").mode("overwrite").save)


def _jdbc_url(dsn: str) -> str:
    rest = dsn.partition("://")[2]
    user, _, place = rest.rpartition("@")
    name, _, password = user.partition(":")
    place, _, options = place.partition("?")
    secret = f"&password={password}" if password else ""
    more = f"&{options}" if options else ""
    return f"jdbc:postgresql://{place}?user={name}{secret}{more}"


def _copy_files(dsn: str, settings: dict[str, str], files: list[Path], first: int) -> None:
    """Copy files; runs in its own process."""
    asyncio.run(copied(DatabaseServer(dsn, settings), _rows(files, first), LANES // PROCESSES))


def _rows(files: list[Path], first: int = 1) -> Iterator[Data]:
    for path in files:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(BATCH_ROWS):
            yield _raw_data(batch, first)
            first += batch.num_rows


def _raw_data(batch: pa.RecordBatch, first: int) -> Data:
    """Build complete rows (i, geo, jsondata) for the 16 tables."""
    ids = batch.column("id").to_pylist()
    heads = [b'{"type":"Feature","id":%b,"properties":' % _encode(each) for each in ids]
    rows = batch.select(_PROPERTIES).to_pylist()
    tags = batch.column("tags").to_pylist()
    pieces: list[Piece] = [
        (
            wkb,
            head + _encode(row)[:-1] + b",",
            b'"tags":%b,"qrid":"122222202002002222","mrid":"122222202002002222"}}}' % _encode(tag),
        )
        for wkb, head, row, tag in zip(
            batch.column("geometry").to_pylist(), heads, rows, tags, strict=True
        )
    ]
    return leaf_data(pieces, leaves_of(ids), first)


# ---- Memory --------------------------------------------------------------------------------------


@contextmanager
def memory_watched() -> Iterator[dict[str, float]]:
    """Record the peak memory of Java and its Python workers in MB during a block."""
    found = {"executor_mb": 0.0}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            found["executor_mb"] = max(found["executor_mb"], _resident_mb())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _resident_mb() -> float:
    """Return the resident memory of all descendants of this process that belong to Spark."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                parents[int(path.name)], pages[int(path.name)] = int(fields[1]), int(fields[21])
            except OSError:
                continue
    ours = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= more
        grown = bool(more)
    spark = [pid for pid in ours - {os.getpid()} if _is_spark(pid)]
    return sum(pages[pid] for pid in spark) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _is_spark(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"java" in command or b"pyspark" in command


def _report(timings: dict[str, Timing], count: int, memory: dict[str, float]) -> Report:
    report = Report("The pipeline on Spark", ["what", "s", "rows/s", "spread"])
    for name, timing in timings.items():
        rate = timing.per_second(count)
        report.rows.append([name, timing.median, rate, timing.spread])
    seconds = {name: timing.median for name, timing in timings.items()}
    report.figures = {
        "load_ratio": round(seconds["load"] / seconds["raw"], 3),
        "ready_ratio": round(seconds["load"] / seconds["ready"], 3),
        "read_ratio": round(seconds["jdbc"] / seconds["read"], 3),
        "load_rows_s": round(timings["load"].per_second(count)),
        "read_rows_s": round(timings["read"].per_second(count)),
        "diff_s": round(seconds["diff"], 2),
        "partition_s": round(seconds["partition"], 2),
        "executor_mb": round(memory["executor_mb"]),
    }
    report.notes.append("Goals: load_ratio ≤ 1.5, read_ratio ≥ 1.0.")
    return report

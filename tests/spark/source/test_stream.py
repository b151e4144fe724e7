"""The change stream: every change once, for any batches, restarts and branches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

import naksha.spark
from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    Expired,
    InvalidArgument,
    NotSupported,
    NotYetPublished,
    VersionNotFound,
)
from naksha.model.query import Query
from naksha.spark.source.columns import CHANGES, schema_of
from naksha.spark.source.source import NakshaSource
from naksha.spark.source.stream import ChangeReader
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import SUITE_CHECKS_OFF, fresh_name, point, published
from naksha.versioning import (
    FeedFilter,
    FeedPosition,
    MergePolicy,
    create_branch,
    line_of,
    read_feed,
    rebase,
)
from tests.spark.conftest import TownMaker
from tests.spark.towns import ANN, Town

WAIT_S = 90
ALL = ReadAllAvailable()
NAMES = {"CREATE": "created", "UPDATE": "updated", "DELETE": "deleted"}


class ChangeRow(NamedTuple):
    """A change, as far as it can be compared."""

    seq_number: int
    id: str
    change: str
    uuid: str


def log(town: Town, collection: str, branch: str = "main", after: int = 0) -> list[ChangeRow]:
    """Return the changes from the feed of the storage itself."""

    async def ask(storage: Storage) -> list[ChangeRow]:
        line = await line_of(storage, branch)
        where = FeedFilter(collections=(collection,))
        reported: list[ChangeRow] = []
        position = FeedPosition(after)
        while True:
            page = await read_feed(
                line, position, where, transactions_max=1000, features_max=10_000
            )
            for item in page.items:
                seq = item.changeset.version.seq_number
                reported += [
                    ChangeRow(seq, c.state.id, NAMES[c.action], c.state.uuid) for c in item.changes
                ]
            if page.position == FeedPosition(page.last):
                return reported
            position = page.position

    return sorted(town.call(ask))


def reader_of(
    town: Town, collection: str, starting: str = "beginning", **more: str
) -> ChangeReader:
    options = {"storage": town.location, "collection": collection, "startingVersion": starting}
    source = NakshaSource(CaseInsensitiveDict({**options, **more}))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeReader)
    return reader


def read(reader: ChangeReader, partitions: Any) -> list[ChangeRow]:
    batches = [batch for each in partitions for batch in reader.read(each)]
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    return [ChangeRow(*(row[name] for name in ChangeRow._fields)) for row in rows]


def batches_of(reader: ChangeReader) -> Iterator[tuple[int, list[ChangeRow]]]:
    """All batches until there are no more, as Spark would read them, each with its end."""
    offset = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        partitions = reader.partitions(offset, end)
        rows = read(reader, partitions)
        # Again, as after a crash: a batch stays what it was.
        assert sorted(read(reader, reader.partitions(offset, end))) == sorted(rows)
        yield end["seq_number"], rows
        offset = end


async def new_collection(storage: Storage) -> str:
    name = fresh_name()
    async with storage.write("editor") as session:
        await session.create_collection(CollectionInfo(id=name))
    return name


async def put(storage: Storage, collection: str, *ids: str, n: int = 0) -> None:
    async with storage.write("editor", "ann") as session:
        await session.upsert(collection, [point(id_, n=n) for id_ in ids])


def put_in(town: Town, collection: str, *ids: str, n: int = 0) -> None:
    town.call(lambda storage: put(storage, collection, *ids, n=n))


async def delete(storage: Storage, collection: str, *ids: str) -> None:
    async with storage.write("editor", "bob") as session:
        await session.delete(collection, ids)


# ---- Against the feed ----------------------------------------------------------------------------

STEPS = st.tuples(
    st.sampled_from(["put", "put", "put", "delete", "both", "purge", "rebase", "elsewhere"]),
    st.sampled_from(["main", "main", "fix"]),
    st.sets(st.sampled_from("abcdef"), min_size=1, max_size=4),
    st.integers(0, 99),
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "maxRowsPerTrigger": st.integers(1, 8).map(str),
        "maxTransactionsPerTrigger": st.integers(1, 4).map(str),
    },
)


class Written:
    """A collection, on main and on a branch, that steps are done to."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.name = town.call(new_collection)
        self.other = town.call(new_collection)
        self.branch = fresh_name("fix")
        town.call(lambda s: create_branch(s, self.branch, ANN))

    def line(self, name: str) -> str:
        return self.branch if name == "fix" else "main"

    async def do(self, storage: Storage, kind: str, line: str, ids: set[str], n: int) -> None:
        if kind == "rebase":
            await rebase(storage, self.branch, ANN, policy=MergePolicy.THEIRS)
            return
        where = (await line_of(storage, self.line(line))).storage
        async with where.write("editor", "ann") as session:
            if kind == "elsewhere":
                await session.upsert(self.other, [point(id_, n=n) for id_ in ids])
            if kind in ("put", "both"):
                await session.upsert(self.name, [point(id_, n=n) for id_ in ids])
            if kind in ("delete", "both"):
                await session.delete(self.name, sorted(ids)[:2])
            if kind == "purge":
                live = [s.id async for s in session.states(self.name, Query())]
                await session.purge(self.name, [id_ for id_ in ids if id_ not in live])
        await published(storage)


def check_steps(town: Town, steps: list[Any], limited: dict[str, str]) -> None:
    written = Written(town)
    for kind, line, ids, n in steps:
        town.call(partial(written.do, kind=kind, line=line, ids=ids, n=n))
    for line in ("main", "fix"):
        branch = written.line(line)
        reader = reader_of(town, written.name, branch=branch, **limited)
        batches = list(batches_of(reader))
        reported = [row for _, rows in batches for row in rows]
        assert sorted(reported) == log(town, written.name, branch)
        for n, (end, rows) in enumerate(batches):
            begin = batches[n - 1][0] if n else 0
            assert all(begin < row.seq_number <= end for row in rows)
            numbers = {row.seq_number for row in rows}
            if limited and len(numbers) > 1:
                assert len(numbers) <= int(limited.get("maxTransactionsPerTrigger", 99))
                assert len(rows) <= int(limited.get("maxRowsPerTrigger", 99))


@given(steps=st.lists(STEPS, min_size=3, max_size=12), limited=LIMITS)
@settings(max_examples=6, derandomize=True, suppress_health_check=SUITE_CHECKS_OFF)
def test_a_stream_has_the_changes_of_the_feed(
    streamed: Town, steps: list[Any], limited: dict[str, str]
) -> None:
    check_steps(streamed, steps, limited)


@pytest.mark.long
@given(steps=st.lists(STEPS, min_size=5, max_size=30), limited=LIMITS)
@settings(max_examples=100, suppress_health_check=SUITE_CHECKS_OFF)
def test_a_long_stream_has_the_changes_of_the_feed(
    streamed: Town, steps: list[Any], limited: dict[str, str]
) -> None:
    check_steps(streamed, steps, limited)


@pytest.fixture(scope="module", params=["file", "postgresql"])
def streamed(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage for many tests, each with collections of its own."""
    with town_maker(request.param) as made:
        yield made


# ---- On Spark ------------------------------------------------------------------------------------


class Followed:
    """A stream into files, which Spark writes exactly once each."""

    def __init__(self, spark: SparkSession, town: Town, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.town = town
        self.folder = folder
        self.options = {"starting": "beginning", **options}

    def start(self, **trigger: Any) -> StreamingQuery:
        table = naksha.spark.changes(self.spark, self.town.location, **self.options)
        writer = table.writeStream.format("parquet").trigger(**trigger)
        writer = writer.option("checkpointLocation", f"{self.folder}/checkpoint")
        return writer.start(f"{self.folder}/rows")

    def catch_up(self) -> None:
        query = self.start(availableNow=True)
        assert query.awaitTermination(WAIT_S)

    def reported(self) -> list[ChangeRow]:
        rows = self.spark.read.parquet(f"{self.folder}/rows").collect()
        return sorted(ChangeRow(*(row[name] for name in ChangeRow._fields)) for row in rows)


def test_a_stopped_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, streamed: Town, tmp_path: Path
) -> None:
    name = streamed.call(new_collection)
    for n in range(6):
        put_in(streamed, name, "a", f"b{n}", n=n)
    streamed.call(lambda s: delete(s, name, "a", "b1"))
    stream = Followed(spark, streamed, tmp_path, collection=name, transactions_max=2)
    query = stream.start(processingTime="0 seconds")
    while query.isActive and (query.lastProgress is None or query.lastProgress.batchId < 1):
        time.sleep(0.05)
    query.stop()
    before = stream.reported()
    assert before
    streamed.call(lambda s: put(s, name, "a", n=7))
    streamed.call(lambda s: delete(s, name, "b2"))
    stream.catch_up()
    assert stream.reported() == log(streamed, name)
    assert {row.change for row in stream.reported()} == {"created", "updated", "deleted"}
    stream.catch_up()
    assert stream.reported() == log(streamed, name)


def test_a_stream_that_starts_now_misses_nothing_of_a_pause(
    spark: SparkSession, streamed: Town, tmp_path: Path
) -> None:
    name = streamed.call(new_collection)
    streamed.call(lambda s: put(s, name, "old"))
    stream = Followed(spark, streamed, tmp_path, collection=name, starting="now")
    begin = streamed.call(published).seq_number
    stream.catch_up()
    streamed.call(lambda s: put(s, name, "new"))
    stream.catch_up()
    assert stream.reported() == log(streamed, name, after=begin)
    assert [row.id for row in stream.reported()] == ["new"]


def test_a_waiting_stream_hears_of_news(
    spark: SparkSession, streamed: Town, tmp_path: Path
) -> None:
    name = streamed.call(new_collection)
    columns = ("change", "seq_number", "id", "uuid")
    stream = Followed(spark, streamed, tmp_path, collection=name, columns=columns)
    query = stream.start(processingTime="0 seconds")
    try:
        for n in range(2):
            put_in(streamed, name, f"x{n}")
            streamed.call(published)
            wanted = log(streamed, name)
            query.processAllAvailable()
            assert stream.reported() == wanted
            assert len(wanted) == n + 1
    finally:
        query.stop()


def test_a_batch_has_no_more_rows_than_it_may(
    spark: SparkSession, streamed: Town, tmp_path: Path
) -> None:
    name = streamed.call(new_collection)
    for n in range(5):
        put_in(streamed, name, f"x{n}", n=n)
    put_in(streamed, name, "a", "b", "c", "d")
    streamed.call(published)
    stream = Followed(spark, streamed, tmp_path, collection=name, rows_max=2)
    query = stream.start(availableNow=True)
    assert query.awaitTermination(WAIT_S)
    # One transaction is never taken apart.
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [2, 2, 1, 4]
    assert stream.reported() == log(streamed, name)


def test_the_schema_of_a_stream(spark: SparkSession, streamed: Town) -> None:
    name = streamed.call(new_collection)
    options = {"storage": streamed.location, "collection": name, "startingVersion": "now"}
    table = spark.readStream.format("naksha").options(**options).load()
    assert table.schema == schema_of(CHANGES)
    assert table.columns[:3] == ["change", "seq_number", "id"]
    parsed = naksha.spark.changes(
        spark, streamed.location, name, starting=1, properties="n INT", geometry="geometry"
    )
    assert dict(parsed.dtypes)["properties"] == "struct<n:int>"
    assert dict(parsed.dtypes)["geometry"] == "geometry(4326)"


def test_errors_of_a_stream_reach_the_user(
    spark: SparkSession, streamed: Town, tmp_path: Path
) -> None:
    name = streamed.call(new_collection)
    streamed.call(lambda s: put(s, name, "a"))
    streamed.call(lambda s: put(s, name, "a", n=1))
    streamed.call(lambda s: forgetting(s, name))
    stream = Followed(spark, streamed, tmp_path, collection=name)
    with pytest.raises(StreamingQueryException, match="History before version"):
        stream.catch_up()


# ---- Where a stream starts, and what it refuses --------------------------------------------------


async def forgetting(storage: Storage, name: str) -> None:
    """Let a collection lose its history."""
    for keeps in (False, True):
        async with storage.write("editor") as session:
            await session.change_collection(name, CollectionChange(history_enabled=keeps))
        await put(storage, name, "a", n=2 + keeps)
    await published(storage)


def test_a_stream_starts_after_any_version(streamed: Town) -> None:
    name = streamed.call(new_collection)
    begin = streamed.call(published).seq_number
    for n in range(3):
        put_in(streamed, name, "a", n=n)
    streamed.call(published)
    txn = streamed.call(lambda s: s.transactions(begin, 1))[0].txn
    for starting in (str(begin + 1), str(txn), f"main:{begin + 1}"):
        reader = reader_of(streamed, name, starting)
        first, *others = batches_of(reader)
        # The first one says only where it begins.
        assert first == (begin + 1, [])
        reported = sorted(row for _, rows in others for row in rows)
        assert reported == log(streamed, name, after=begin + 1)
        assert len(reported) == 2


def test_no_change_is_lost_silently(streamed: Town) -> None:
    name = streamed.call(new_collection)
    begin = streamed.call(published).seq_number
    streamed.call(lambda s: put(s, name, "a"))
    streamed.call(lambda s: put(s, name, "a", n=1))
    reader = reader_of(streamed, name, str(begin))
    start = {"seq_number": begin}
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    assert len(read(reader, planned)) == 2
    streamed.call(lambda s: forgetting(s, name))
    with pytest.raises(Expired):
        read(reader, planned)
    with pytest.raises(Expired):
        reader.partitions(start, end)


def test_a_collection_without_history_cannot_be_followed(streamed: Town) -> None:
    name = streamed.call(new_collection)
    begin = streamed.call(published).seq_number

    async def switch(storage: Storage) -> None:
        async with storage.write("editor") as session:
            change = CollectionChange(history_enabled=False)
            await session.change_collection(name, change)
        await put(storage, name, "a")

    streamed.call(switch)
    reader = reader_of(streamed, name)
    end = reader.latestOffset({"seq_number": begin}, ALL)
    with pytest.raises(NotSupported, match="keeps no history"):
        reader.partitions({"seq_number": begin}, end)


def test_versions_of_no_interest_make_no_batches_until_they_are_many(
    streamed: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = streamed.call(new_collection), streamed.call(new_collection)
    reader = reader_of(streamed, name)
    start = reader.latestOffset({"seq_number": 0}, ALL)
    streamed.call(lambda s: put(s, other, "x"))
    last = streamed.call(published).seq_number
    assert reader.latestOffset(start, ALL) == start
    monkeypatch.setattr(limits, "SPARK_STREAM_IDLE_VERSIONS_MAX", 1)
    end = reader.latestOffset(start, ALL)
    assert end["seq_number"] == last
    assert reader.partitions(start, end) == []
    assert reader.reportLatestOffset() == end


@pytest.mark.parametrize("kind", ["file", "postgresql"])
def test_a_quiet_collection_is_followed_while_the_log_expires(
    kind: str, town_maker: TownMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with town_maker(kind) as town:
        name, other = town.call(new_collection), town.call(new_collection)
        reader = reader_of(town, name)
        start = reader.latestOffset({"seq_number": 0}, ALL)
        for n in range(3):
            put_in(town, other, "x", n=n)
        town.call(published)
        assert reader.latestOffset(start, ALL) == start
        # After an hour it is somewhere else.
        hour_ms = limits.SPARK_STREAM_IDLE_SECONDS_MAX * 1000
        now_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + hour_ms * 1_000_000)
        quiet = reader.latestOffset(start, ALL)
        monkeypatch.undo()
        assert reader.partitions(start, quiet) == []
        town.call(lambda s: s.keep_log(1))
        town.call(lambda s: s.maintain(now_ns() // 1_000_000 + 5 * 86_400_000))
        put_in(town, name, "a")
        town.call(published)
        end = reader.latestOffset(quiet, ALL)
        assert [row.id for row in read(reader, reader.partitions(quiet, end))] == ["a"]
        if kind == "file":  # PostgreSQL drops whole days, of which this is one
            with pytest.raises(Expired):
                reader.latestOffset(start, ALL)


def test_a_position_that_the_storage_never_had(streamed: Town) -> None:
    reader = reader_of(streamed, streamed.call(new_collection))
    with pytest.raises(NotYetPublished, match="the storage is a different one"):
        reader.latestOffset({"seq_number": 10**6}, ALL)


def test_a_checkpoint_of_another_storage_is_refused(streamed: Town, town_maker: TownMaker) -> None:
    name = streamed.call(new_collection)
    begin = streamed.call(published).seq_number
    put_in(streamed, name, "a")
    streamed.call(published)
    reader = reader_of(streamed, name, str(begin))
    start = reader.latestOffset(reader.initialOffset(), ALL)
    end = reader.latestOffset(start, ALL)
    assert end["seq_number"] == begin + 1
    assert reader.latestOffset(end, ALL) == end
    with town_maker("file") as town:
        other = town.call(new_collection)
        following = reader_of(town, other)
        with pytest.raises(NotYetPublished, match="the storage is a different one"):
            following.partitions({"seq_number": 1}, {"seq_number": 10**6})
        while town.call(published).seq_number <= begin + 1:
            put_in(town, other, "b", n=town.call(published).seq_number)
        with pytest.raises(VersionNotFound, match="the storage is a different one"):
            following.latestOffset(end, ALL)
        for first, last in ((start, end), ({"seq_number": 0}, end)):
            with pytest.raises(VersionNotFound, match="the storage is a different one"):
                following.partitions(first, last)
        # Offsets of former releases know no better.
        assert following.latestOffset({"seq_number": end["seq_number"]}, ALL) != end


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"version": "3"}, "version"),
        ({"startingVersion": ""}, "startingVersion"),
        ({"bbox": "1,2,3,4"}, "bbox"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"maxTransactionsPerTrigger": "many"}, "maxTransactionsPerTrigger"),
    ],
)
def test_options_that_a_stream_cannot_have(
    streamed: Town, options: dict[str, str], field: str
) -> None:
    given = {"storage": streamed.location, "collection": "c", "startingVersion": "now"}
    source = NakshaSource(CaseInsensitiveDict({**given, **options}))
    with pytest.raises(InvalidArgument) as caught:
        source.streamReader(schema_of(CHANGES))
    assert caught.value.field == field


def test_a_partition_without_a_split_is_empty(streamed: Town) -> None:
    reader = reader_of(streamed, streamed.call(new_collection))
    assert list(reader.read(InputPartition(None))) == []

"""Archived history, read from its files as if it were still in the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import geopandas
import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import naksha
from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    Busy,
    Expired,
    InvalidArgument,
    NotFound,
    StorageCorrupt,
)
from naksha.model.query import Query
from naksha.model.version import AtSeq, Version
from naksha.spark.archive.archive import (
    KEPT,
    MANIFEST,
    UNFINISHED,
    Manifest,
    archived_features,
    locked_archive,
    write_manifest,
)
from naksha.spark.jobs.archive import Archive, Archived, archive
from naksha.spark.jobs.collection_tables import table
from naksha.spark.jobs.frame import JobProgress, SilentProgress
from naksha.spark.jobs.verify import Verify, verify
from naksha.spark.runtime.storage_cache import close_all, shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.storage import Storage, WriteSession
from naksha.spi.storage_factory import open_storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.versioning import Attribution, EditStep, import_history
from tests.spark.jobs.geoparquet_rules import check_file

Content = dict[str, Any]
Rows = dict[str, dict[str, Any]]


def ms(month: int, day: int) -> int:
    return int(datetime(2021, month, day, tzinfo=UTC).timestamp() * 1000)


def place(id_: str, n: int) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [n, n / 2]}
    return {"type": "Feature", "id": id_, "geometry": point, "properties": {"n": n}}


EDITS = [
    EditStep(ms(1, 1), [place("a", 1), place("b", 1), place("c", 1)]),
    EditStep(ms(1, 2), [place("a", 2)], ["b"]),
    EditStep(ms(2, 1), [place("b", 3), place("d", 3)]),
    EditStep(ms(2, 20), [place("a", 4)], ["d"]),
    EditStep(ms(3, 1), [place("a", 5)], ["c"]),
]
LATER = [EditStep(ms(4, 1), [place("a", 6)]), EditStep(ms(4, 2), [place("a", 7)], ["b"])]


def imported(location: str, steps: list[EditStep]) -> None:
    async def run() -> None:
        async with open_storage(location) as storage:
            info, signed = CollectionInfo(id="places"), Attribution("importer", None, "as it was")
            done = await import_history(storage, info, steps, signed)
            last = max((each.txn or 0 for each in done), default=0)
            assert not last or await storage.wait_published(last, 60) is not None

    asyncio.run(run())


def content(location: str, version: int) -> Content:
    with naksha.connect(location, app_id="test") as db:
        return {each["id"]: each["properties"]["n"] for each in db["places"].at(version).query()}


def archived(
    spark: SparkSession,
    location: str,
    folder: Path,
    progress: JobProgress | None = None,
    **more: Any,
) -> Archived:
    spec = Archive(
        place=StorageRef(location),
        collection="places",
        archive=str(folder),
        **{"older_than_days": 1, **more},
    )
    return archive(spark, spec, progress or SilentProgress())


def found(spark: SparkSession, location: str, folder: Path, version: int | str) -> Content:
    features = archived_features(spark, StorageRef(location), "places", str(folder), str(version))
    rows = features.selectExpr(
        "id", "get_json_object(properties, '$.n') AS n", "geometry"
    ).collect()
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.geometry is not None for row in rows)
    return {row.id: int(row.n) for row in rows}


def test_versions_live_on_in_an_archive(spark: SparkSession, location: str, tmp_path: Path) -> None:
    imported(location, EDITS)
    expected = {version: content(location, version) for version in range(1, 6)}
    assert expected[2] == {"a": 2, "c": 1}
    folder = tmp_path / "archive"
    first = archived(spark, location, folder)
    # Ended before the day of the last transaction: two states of a, one of b and its tombstone, d.
    assert (first.states, first.dropped, first.left, first.oldest) == (5, 5, 0, 0)
    for version in (1, 2, 3):
        with pytest.raises(Expired):
            content(location, version)
    assert content(location, 5) == expected[5]
    checked = verify(
        spark, Verify(place=StorageRef(location), collection="places"), SilentProgress()
    )
    assert (checked.found, checked.complete_since > 1, checked.states > 0) == ([], True, True)
    assert {v: found(spark, location, folder, v) for v in (1, 5)} == {
        v: expected[v] for v in (1, 5)
    }

    imported(location, LATER)
    expected |= {version: content(location, version) for version in (6, 7)}
    again = archived(spark, location, folder)
    assert again.states == 3
    assert {v: found(spark, location, folder, v) for v in expected} == expected
    assert archived(spark, location, folder).states == 0


def test_versions_are_known_when_the_log_has_forgotten_them(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    """By number, transaction and time. Segments of former releases know none: the next one has
    theirs, too, as far as the log goes back."""
    imported(location, EDITS)
    expected = {version: content(location, version) for version in range(1, 5)}
    folder = tmp_path / "archive"
    archived(spark, location, folder)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    (old,) = manifest.segments
    former = msgspec.structs.replace(old, versions=None)
    write_manifest(folder, msgspec.structs.replace(manifest, segments=[former]))
    imported(location, LATER)
    archived(spark, location, folder)
    log = logged(location)
    forget_log(location, date(2021, 3, 15))
    with pytest.raises(Expired):
        done_by(location, lambda storage: storage.resolve(AtSeq(4)))
    said: dict[int, int | str] = {1: 1, 2: log[2].txn, 4: utc(log[4].published_ms)}
    assert {v: found(spark, location, folder, said[v]) for v in said} == {
        v: expected[v] for v in said
    }
    for unknown in (log[1].txn + 1, utc(log[1].published_ms - 1)):
        with pytest.raises(Expired):
            found(spark, location, folder, unknown)
    write_manifest(folder, msgspec.structs.replace(manifest, segments=[former]))
    with pytest.raises(Expired):
        found(spark, location, folder, 1)


def logged(location: str) -> dict[int, Version]:
    known: dict[int, Version] = {}

    async def look(storage: Storage) -> None:
        for number in range(1, 6):
            known[number] = await storage.resolve(AtSeq(number))

    done_by(location, look)
    return known


def forget_log(location: str, before: date) -> None:
    """Drop the log before a day, as maintenance does."""

    async def forget(storage: Storage) -> None:
        await storage.keep_log((datetime.now(UTC).date() - before).days)
        await storage.maintain()

    done_by(location, forget)


def utc(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat()


def test_files_of_an_archive_are_read_by_others(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    done = archived(spark, location, tmp_path / "archive", keep=True)
    assert (done.dropped, done.left) == (0, done.states)
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    assert done.segment is not None
    files = sorted((tmp_path / "archive" / done.segment).glob("*.parquet"))
    assert len(files) == done.files
    for file in files:
        check_file(file)
    months = [geopandas.read_parquet(file) for file in files]
    assert sum(len(month) for month in months) == done.states
    assert all(month.geometry.notna().any() for month in months)


def test_states_needed_by_a_tag_are_kept(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    with naksha.connect(location, app_id="test") as db:
        db.versions.tag("february", "3")
    done = archived(spark, location, tmp_path / "archive")
    assert (done.states, done.dropped, done.left) == (5, 3, 2)
    assert content(location, 3) == {"a": 2, "b": 3, "c": 1, "d": 3}
    assert found(spark, location, tmp_path / "archive", 3) == content(location, 3)
    assert found(spark, location, tmp_path / "archive", 1) == {"a": 1, "b": 1, "c": 1}


def test_one_job_at_a_time_adds_to_an_archive(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    with (
        locked_archive(tmp_path / "archive"),
        pytest.raises(Busy, match="Another job is using the archive"),
    ):
        archived(spark, location, tmp_path / "archive")
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    assert not (tmp_path / "archive" / MANIFEST).exists()


def test_foreign_archives_are_refused(spark: SparkSession, location: str, tmp_path: Path) -> None:
    imported(location, EDITS)
    first = archived(spark, location, tmp_path / "archive", keep=True)
    assert first.segment is not None
    manifest = tmp_path / "archive" / MANIFEST
    other = manifest.read_text().replace('"places"', '"streets"')
    manifest.write_text(other)
    with pytest.raises(InvalidArgument, match="belongs to the collection 'streets'"):
        archived(spark, location, tmp_path / "archive")
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(NotFound, match="does not contain an archive"):
        found(spark, location, tmp_path, 1)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (0, "at least 1, not 0"),
        (limits.ARCHIVE_DAYS_MAX + 1, "at most"),
        (10**6, "at most"),
        (10**12, "at most"),
    ],
)
def test_days_that_no_history_is_old_are_refused(
    spark: SparkSession, tmp_path: Path, days: int, said: str
) -> None:
    folder = tmp_path / "archive"
    spec = Archive(
        place=StorageRef(f"file:{tmp_path}/town.naksha"),
        collection="places",
        archive=str(folder),
        older_than_days=days,
    )
    with pytest.raises(InvalidArgument, match=said) as error:
        archive(spark, spec, SilentProgress())
    assert error.value.field == "older_than_days"
    assert not folder.exists()


def test_the_maximum_age_archives_nothing(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    done = archived(spark, location, tmp_path / "archive", older_than_days=limits.ARCHIVE_DAYS_MAX)
    assert (done.states, done.segment) == (0, None)


def test_the_directory_of_an_archive_is_not_a_pattern(
    spark: SparkSession, file: str, tmp_path: Path
) -> None:
    imported(file, EDITS)
    folder = tmp_path / "arch: [1] {a} *"
    assert archived(spark, file, folder, keep=True).states == 5
    assert archived(spark, file, folder).dropped == 5
    assert found(spark, file, folder, 1) == {"a": 1, "b": 1, "c": 1}


def done_by(location: str, work: Callable[[Storage], Awaitable[object]]) -> None:
    async def run() -> None:
        async with open_storage(location) as storage:
            await work(storage)

    asyncio.run(run())


# ---- Where it begins -----------------------------------------------------------------------------


async def expired_by_others(storage: Storage) -> None:
    """Expire history as maintenance does with a short `maxAge`."""
    await storage.expire("places", date(2021, 4, 2))


async def without_history(storage: Storage) -> None:
    async def switched(session: WriteSession, on: bool) -> None:
        await session.change_collection("places", CollectionChange(history_enabled=on))

    for day, is_on, n in ((3, False, 8), (4, True, 9)):
        async with storage.write("test", at_ms=ms(4, day)) as session:
            await switched(session, False)
            await session.upsert("places", [place("d", n)])
            await switched(session, is_on)


MORE = [EditStep(ms(5, 1), [place("a", 10)]), EditStep(ms(5, 2), [place("a", 11)])]


@pytest.mark.parametrize(
    ("loses", "oldest"), [(expired_by_others, 6), (without_history, 9)], ids=["expired", "off"]
)
def test_states_lost_between_two_segments_are_expired(
    spark: SparkSession,
    file: str,
    tmp_path: Path,
    loses: Callable[[Storage], Awaitable[None]],
    oldest: int,
) -> None:
    imported(file, EDITS)
    folder = tmp_path / "archive"
    archived(spark, file, folder)
    imported(file, LATER)
    done_by(file, loses)
    imported(file, MORE)
    expected = content(file, oldest)
    reported = RecordedLines()
    again = archived(spark, file, folder, reported)
    assert again.oldest == oldest
    assert [line for line in reported.lines if f"versions before {oldest} cannot be read" in line]
    with pytest.raises(Expired):
        content(file, oldest)
    for version in (1, 4, oldest - 1):
        with pytest.raises(Expired, match=f"before version {oldest}") as caught:
            found(spark, file, folder, version)
        assert caught.value.oldest == oldest
    assert found(spark, file, folder, oldest) == expected


def test_a_second_archive_begins_where_the_first_one_ended(
    spark: SparkSession, file: str, tmp_path: Path
) -> None:
    imported(file, EDITS)
    archived(spark, file, tmp_path / "first")
    imported(file, LATER)
    expected = content(file, 5)
    # The last end before March, when history was dropped, is that of version 4.
    assert archived(spark, file, tmp_path / "second").oldest == 4
    with pytest.raises(Expired, match="before version 4") as caught:
        found(spark, file, tmp_path / "second", 1)
    assert caught.value.oldest == 4
    assert found(spark, file, tmp_path / "second", 5) == expected


def test_an_archive_is_that_of_one_collection_only(
    spark: SparkSession, file: str, tmp_path: Path
) -> None:
    """Whatever others are called."""
    imported(file, EDITS)
    archived(spark, file, tmp_path / "archive")

    async def replaced(storage: Storage) -> None:
        async with storage.write("test") as session:
            await session.drop_collection("places")
        await storage.maintain()
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id="places"))

    done_by(file, replaced)
    with pytest.raises(InvalidArgument, match="an earlier collection with the name 'places'"):
        found(spark, file, tmp_path / "archive", 1)


class RecordedLines(SilentProgress):
    """Progress that records its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


# ---- All of a state ------------------------------------------------------------------------------

NESTED = place("n", 1) | {"txn_next": "5", "old": {"@ns:com:here:xyz": {"txn_next": "6"}}}


def rows_of(table_: Any) -> Rows:
    return {row.id: row.asDict(recursive=True) for row in table_.collect()}


def stored(spark: SparkSession, place_: StorageRef, version: int) -> Rows:
    """Return the features from the storage itself."""
    plan = shared_storage(place_).call(lambda s: s.plan("places", Query(), AtSeq(version)))
    return rows_of(table(spark, place_, plan, KEPT))


def test_it_is_what_the_storage_answered(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    """In all columns."""
    imported(location, [EditStep(EDITS[0].at_ms, [*EDITS[0].put, NESTED], []), *EDITS[1:3]])
    imported(location, [EditStep(ms(2, 15), [NESTED | {"other": 1.50}]), *EDITS[3:]])
    expected = {version: stored(spark, StorageRef(location), version) for version in (1, 2, 4)}
    archived(spark, location, tmp_path / "archive")
    for version, rows in expected.items():
        with pytest.raises(Expired):
            content(location, version)
        features = archived_features(
            spark, StorageRef(location), "places", str(tmp_path / "archive"), str(version)
        )
        assert rows_of(features) == rows
    first = expected[1]["n"]["feature"].replace(" ", "")
    assert [first.count(f'"txn_next":"{end}"') for end in (0, 5, 6)] == [1, 1, 1]


@pytest.mark.long
def test_a_storage_may_be_in_a_schema_of_its_own(
    spark: SparkSession, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    with database_factory.fresh() as dsn:
        place_ = StorageRef(dsn, "town")

        async def fill(storage: Storage) -> None:
            info, signed = CollectionInfo(id="places"), Attribution("importer", None, "as it was")
            await import_history(storage, info, EDITS, signed)

        shared_storage(place_).call(fill)
        expected = stored(spark, place_, 1)
        folder = str(tmp_path / "archive")
        spec = Archive(place=place_, collection="places", archive=folder, older_than_days=1)
        assert archive(spark, spec, SilentProgress()).dropped == 5
        assert rows_of(archived_features(spark, place_, "places", folder, "1")) == expected
        close_all()


# ---- Verified, then dropped ----------------------------------------------------------------------


def shortened(file_: Path) -> None:
    """Remove a state from a file, which stays readable."""
    states = pq.read_table(file_)
    pq.write_table(states.slice(1), file_)


def damaged(file_: Path) -> None:
    file_.write_bytes(b"PAR1 and nothing else")


class DamagingProgress(SilentProgress):
    """Progress that damages the files of a segment before they are read back."""

    def __init__(self, folder: Path, how: Callable[[Path], None]) -> None:
        self._folder = folder
        self._how = how

    def phase(self, name: str, total: int | None = None) -> None:
        if name == "read back" and total is None:
            for file_ in self._folder.glob(f"*{UNFINISHED}/*.parquet"):
                self._how(file_)


@pytest.mark.parametrize("how", [shortened, damaged, Path.unlink])
def test_nothing_is_dropped_that_was_not_read_back(
    spark: SparkSession, file: str, tmp_path: Path, how: Callable[[Path], None]
) -> None:
    imported(file, EDITS)
    folder = tmp_path / "archive"
    wrong = StorageCorrupt if how is shortened else Exception
    with pytest.raises(wrong):
        archived(spark, file, folder, DamagingProgress(folder, how))
    assert content(file, 1) == {"a": 1, "b": 1, "c": 1}
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("how", [shortened, Path.unlink])
def test_states_archived_by_an_earlier_job_are_verified_before_they_are_dropped(
    spark: SparkSession, file: str, tmp_path: Path, how: Callable[[Path], None]
) -> None:
    imported(file, EDITS)
    folder = tmp_path / "archive"
    kept = archived(spark, file, folder, keep=True)
    assert kept.segment is not None
    first = next((folder / kept.segment).glob("*.parquet"))
    whole = first.read_bytes()
    how(first)
    with pytest.raises(StorageCorrupt, match="nothing was dropped"):
        archived(spark, file, folder)
    assert content(file, 1) == {"a": 1, "b": 1, "c": 1}
    first.write_bytes(whole)
    assert (done := archived(spark, file, folder)).segment is None
    assert (done.dropped, done.left) == (5, 0)
    assert found(spark, file, folder, 1) == {"a": 1, "b": 1, "c": 1}
    # What is gone already is not read again.
    first.unlink()
    assert archived(spark, file, folder).dropped == 0

"""Old history goes to files, from which it can be read as if it were still there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import geopandas
import pytest
from pyspark.sql import SparkSession

import naksha
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Busy, Expired, InvalidArgument, NotFound
from naksha.spark.archives import MANIFEST, archived_features, growing
from naksha.spark.jobs.archive import Archive, Archived, archive
from naksha.spark.jobs.frame import Silent
from naksha.spark.jobs.verify import Verify, verify
from naksha.spark.options import Place
from naksha.spi.opening import open_storage
from naksha.versioning import Edits, Signed, import_history
from tests.spark.jobs.geoparquet_rules import check_file

Content = dict[str, Any]


def ms(month: int, day: int) -> int:
    return int(datetime(2021, month, day, tzinfo=UTC).timestamp() * 1000)


def place(id_: str, n: int) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [n, n / 2]}
    return {"type": "Feature", "id": id_, "geometry": point, "properties": {"n": n}}


EDITS = [
    Edits(ms(1, 1), [place("a", 1), place("b", 1), place("c", 1)]),
    Edits(ms(1, 2), [place("a", 2)], ["b"]),
    Edits(ms(2, 1), [place("b", 3), place("d", 3)]),
    Edits(ms(2, 20), [place("a", 4)], ["d"]),
    Edits(ms(3, 1), [place("a", 5)], ["c"]),
]
LATER = [Edits(ms(4, 1), [place("a", 6)]), Edits(ms(4, 2), [place("a", 7)], ["b"])]


def imported(location: str, steps: list[Edits]) -> None:
    async def run() -> None:
        async with open_storage(location) as storage:
            info, signed = CollectionInfo(id="places"), Signed("importer", None, "as it was")
            await import_history(storage, info, steps, signed)

    asyncio.run(run())


def content(location: str, version: int) -> Content:
    with naksha.connect(location, app_id="test") as db:
        return {each["id"]: each["properties"]["n"] for each in db["places"].at(version).query()}


def archived(spark: SparkSession, location: str, folder: Path, **more: Any) -> Archived:
    spec = Archive(
        place=Place(location),
        collection="places",
        archive=str(folder),
        older_than_days=1,
        **more,
    )
    return archive(spark, spec, Silent())


def found(spark: SparkSession, location: str, folder: Path, version: int) -> Content:
    table = archived_features(spark, location, "places", str(folder), str(version))
    rows = table.selectExpr("id", "get_json_object(properties, '$.n') AS n", "geometry").collect()
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
    assert (first.states, first.is_dropped) == (5, True)
    for version in (1, 2, 3):
        with pytest.raises(Expired):
            content(location, version)
    assert content(location, 5) == expected[5]
    checked = verify(spark, Verify(place=Place(location), collection="places"), Silent())
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


def test_files_of_an_archive_are_read_by_others(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    done = archived(spark, location, tmp_path / "archive", keep=True)
    assert not done.is_dropped
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    assert done.segment is not None
    files = sorted((tmp_path / "archive" / done.segment).glob("*.parquet"))
    assert len(files) == done.files
    for file in files:
        check_file(file)
    months = [geopandas.read_parquet(file) for file in files]
    assert sum(len(month) for month in months) == done.states
    assert all(month.geometry.notna().any() for month in months)


def test_what_a_tag_needs_stays(spark: SparkSession, location: str, tmp_path: Path) -> None:
    imported(location, EDITS)
    with naksha.connect(location, app_id="test") as db:
        db.versions.tag("february", "3")
    archived(spark, location, tmp_path / "archive")
    assert content(location, 3) == {"a": 2, "b": 3, "c": 1, "d": 3}
    assert found(spark, location, tmp_path / "archive", 3) == content(location, 3)
    assert found(spark, location, tmp_path / "archive", 1) == {"a": 1, "b": 1, "c": 1}


def test_who_adds_to_an_archive_is_alone(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    imported(location, EDITS)
    with (
        growing(tmp_path / "archive"),
        pytest.raises(Busy, match="Another job adds to the archive"),
    ):
        archived(spark, location, tmp_path / "archive")
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    assert not (tmp_path / "archive" / MANIFEST).exists()


def test_archives_that_are_not_meant(spark: SparkSession, location: str, tmp_path: Path) -> None:
    imported(location, EDITS)
    first = archived(spark, location, tmp_path / "archive", keep=True)
    assert first.segment is not None
    manifest = tmp_path / "archive" / MANIFEST
    other = manifest.read_text().replace('"places"', '"streets"')
    manifest.write_text(other)
    with pytest.raises(InvalidArgument, match="is the archive of 'streets'"):
        archived(spark, location, tmp_path / "archive")
    assert content(location, 1) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(NotFound, match="no archive"):
        found(spark, location, tmp_path, 1)
    with pytest.raises(InvalidArgument, match="this day"):
        archive(
            spark,
            Archive(place=Place(location), collection="places", archive="x", older_than_days=0),
            Silent(),
        )

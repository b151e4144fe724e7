"""Tables of all types and names as features, with all their files and layers."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.diff import Diff, diff
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.loading import files, parquet, tables
from naksha.spark.jobs.loading.files import FilePiece
from naksha.spark.jobs.loading.records import _encoding_of, records_of, report_left_out
from naksha.spark.jobs.loading.spec import FileFormat, Mapping
from tests.spark.jobs.loads import RecordedProgress, content, loaded, rejects_of, spec_of
from tests.spark.jobs.town import Town

NANOS = 1577934245678901234
TIMES = pa.struct([pa.field("t", pa.timestamp("ns"), nullable=False)])
TYPES: dict[str, tuple[pa.Array, Any]] = {
    "ns": (pa.array([NANOS], pa.timestamp("ns")), "2020-01-02T03:04:05.678901"),
    "ns_utc": (pa.array([NANOS], pa.timestamp("ns", "UTC")), "2020-01-02T03:04:05.678901Z"),
    "deep_ns": (pa.array([[{"t": NANOS}]], pa.list_(TIMES)), [{"t": "2020-01-02T03:04:05.678901"}]),
    "us": (pa.array([NANOS // 1000], pa.timestamp("us")), "2020-01-02T03:04:05.678901"),
    "ms": (pa.array([1577934245600], pa.timestamp("ms")), "2020-01-02T03:04:05.600"),
    "zone": (pa.array([0], pa.timestamp("ms", "Europe/Berlin")), "1970-01-01T00:00:00.000Z"),
    "time": (pa.array([dt.time(1, 2, 3)], pa.time32("ms")), "01:02:03.000"),
    "time_us": (pa.array([dt.time(1, 2, 3, 4)], pa.time64("us")), "01:02:03.000004"),
    "half": (pa.array([1.5], pa.float16()), 1.5),
    "uuid": (pa.array([uuid.UUID(int=7).bytes], pa.uuid()), str(uuid.UUID(int=7))),
    "day": (pa.array([dt.date(2020, 1, 2)]), "2020-01-02"),
    "kind": (pa.array(["road"]).dictionary_encode(), "road"),
    "deep_kind": (
        pa.StructArray.from_arrays([pa.array(["road"]).dictionary_encode()], ["k"]),
        {"k": "road"},
    ),
    "price": (pa.array([Decimal("1.25")]), 1.25),
    "large": (pa.array(["x"], pa.large_string()), "x"),
    "view": (pa.array(["x"], pa.string_view()), "x"),
    "bytes": (pa.array([b"xy"], pa.binary(2)), "eHk="),
    "small": (pa.array([200], pa.uint8()), 200),
    "big": (pa.array([2**63], pa.uint64()), 2**63),
    "sure": (pa.array([True]), True),
    "numbers": (pa.array([[1, None]], pa.large_list(pa.int64())), [1, None]),
    "pair": (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [1, 2]),
    "map": (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), {"a": 1}),
    "duration": (pa.array([5], pa.duration("us")), 5),
    "nothing": (pa.nulls(1), None),
    "with.dot": (pa.array([1]), 1),
}
"""Columns of one row, and what becomes of them."""
ONLY_HERE = {"ns", "ns_utc", "deep_ns", "time", "time_us", "half", "uuid", "nothing"}
"""Columns whose types Spark's own reader rejects."""


def test_columns_of_all_types_are_properties(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    columns = {"id": ["a"]} | {name: values for name, (values, _) in TYPES.items()}
    pq.write_table(pa.table(columns), tmp_path / "types.parquet")
    loaded(spark, small_town.place.location, tmp_path / "types.parquet")
    found = content(small_town.place.location)["a"][1]
    assert found == {name: expected for name, (_, expected) in TYPES.items()}


@pytest.fixture
def abroad(spark: SparkSession) -> SparkSession:
    """A session with another time zone."""
    made = spark.newSession()
    made.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return made


def test_times_are_loaded_identically_in_every_session(
    abroad: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    columns = {"id": ["a"]} | {name: values for name, (values, _) in TYPES.items()}
    pq.write_table(pa.table(columns), tmp_path / "types.parquet")
    loaded(abroad, location, tmp_path / "types.parquet")
    (tmp_path / "t.csv").write_text("id,at\nb,2020-01-02 03:04:05\n")
    features = '{"type":"Feature","id":"c","geometry":null,"properties":{"at":"2020-01-02 03:04"}}'
    (tmp_path / "t.geojsonl").write_text(features + "\n")
    mapping = Mapping(types={"at": "timestamp"})
    for name in ("t.csv", "t.geojsonl"):
        loaded(abroad, location, tmp_path / name, mapping=mapping)
    found = content(location)
    assert found["a"][1] == {name: expected for name, (_, expected) in TYPES.items()}
    assert found["b"][1] == {"at": "2020-01-02T03:04:05.000Z"}
    assert found["c"][1] == {"at": "2020-01-02 03:04:00+00:00"}
    files = (str(tmp_path / "types.parquet"),)
    spec = Diff(place=small_town.place, collection="places", files=files)
    reported = diff(abroad, spec, SilentProgress())
    assert (reported.created, reported.updated, reported.deleted) == (0, 0, 2)
    assert abroad.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_files_of_geopandas_are_loaded_and_compared(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    """With its times, which have nanoseconds, in whatever way it is packed."""
    at = np.array(["2020-01-02T03:04:05", "NaT"], "datetime64[ns]")
    given = geopandas.GeoDataFrame(
        {"id": ["a", "b"], "at": at}, geometry=shapely.points([1, 2], [3, 4]), crs="EPSG:4326"
    )
    given.to_parquet(tmp_path / "g.parquet", compression="brotli", write_covering_bbox=True)
    location = small_town.place.location
    loaded(spark, location, tmp_path / "g.parquet")
    assert content(location) == {
        "a": ([1, 3], {"at": "2020-01-02T03:04:05.000"}),
        "b": ([2, 4], {"at": None}),
    }
    spec = Diff(place=small_town.place, collection="places", files=(str(tmp_path / "g.parquet"),))
    same = diff(spark, spec, SilentProgress())
    assert (same.created, same.updated, same.deleted) == (0, 0, 0)


def test_the_oldest_type_of_times_has_moments(spark: SparkSession, tmp_path: Path) -> None:
    """Times are those that Spark writes, in any year."""
    times = pa.array(["1066-10-14"]).cast(pa.timestamp("us"))
    old = pa.table({"id": ["a"], "at": times})
    pq.write_table(old, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(old.set_column(1, "plain", times), tmp_path / "new.parquet")
    records = records_of(spark, spec_of("file:x", tmp_path / "*.parquet")).rows
    found = sorted(row.properties for row in records.select("properties").collect())
    assert found == [
        '{"plain":"1066-10-14T00:00:00.000","at":null}',
        '{"plain":null,"at":"1066-10-14T00:00:00.000Z"}',
    ]


def test_files_for_either_reader_go_together(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads the files it can, since it is faster; rows of the others are numbered alike."""
    plain = {"id": ["a"], "n": pa.array([1], pa.int32()), "box": [{"xmin": 1.5}]}
    other = {"id": ["b"], "n": [2**40], "at": pa.array([NANOS], pa.timestamp("ns"))}
    pq.write_table(pa.table(plain), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    with pq.ParquetFile(tmp_path / "a.parquet") as a, pq.ParquetFile(tmp_path / "b.parquet") as b:
        given = [parquet._is_for_spark("/x.parquet", file) for file in (a, b)]
        assert [*given, parquet._is_for_spark("/x[1].parquet", a)] == [True, False, False]
    records = records_of(spark, spec_of("file:x", tmp_path / "*.parquet")).rows
    rows = records.select("source", "line", "properties").collect()
    assert sorted((row.source, row.line, row.properties) for row in rows) == [
        (str(tmp_path / "a.parquet"), 1, '{"n":1,"box":{"xmin":1.5},"at":null}'),
        (
            str(tmp_path / "b.parquet"),
            1,
            '{"n":1099511627776,"box":null,"at":"2020-01-02T03:04:05.678901"}',
        ),
    ]


@pytest.mark.parametrize("others", [True, False])
def test_columns_that_spark_reads_are_the_same_by_pyarrow(
    spark: SparkSession, tmp_path: Path, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if others:
        monkeypatch.setattr(parquet, "_is_for_spark", lambda *_: False)
    known = {name: each for name, each in TYPES.items() if name not in ONLY_HERE}
    columns = {"id": ["a"]} | {name: values for name, (values, _) in known.items()}
    pq.write_table(pa.table(columns), tmp_path / "types.parquet")
    with pq.ParquetFile(tmp_path / "types.parquet") as file:
        assert parquet._is_for_spark("/types.parquet", file) is not others
    records = records_of(spark, spec_of("file:x", tmp_path / "types.parquet")).rows
    (row,) = records.select("properties").collect()
    assert json.loads(row.properties) == {name: expected for name, (_, expected) in known.items()}


@pytest.mark.parametrize(
    "type_", [pa.decimal256(50, 2), pa.struct([pa.field("u", pa.uuid())])], ids=str
)
def test_an_unreadable_type_is_reported_with_its_column(
    spark: SparkSession, tmp_path: Path, type_: pa.DataType
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a"], "odd": pa.nulls(1, type_)}), path)
    with pytest.raises(InvalidArgument, match=r"a\.parquet: the column 'odd'") as error:
        records_of(spark, spec_of("file:x", path))
    assert error.value.field == "files"


@pytest.mark.parametrize(
    "geo",
    [
        {},
        [],
        {"primary_column": "g", "columns": {"g": {"encoding": "WKB"}}},
        {"primary_column": "geometry", "columns": {}},
        {"primary_column": "geometry", "columns": {"geometry": {"covering": {"bbox": {}}}}},
        {"primary_column": "geometry", "columns": {"geometry": {"encoding": "point"}}},
    ],
    ids=str,
)
def test_wrong_geometry_metadata_is_reported(tmp_path: Path, geo: Any) -> None:
    rows = pa.table({"id": ["a"], "geometry": [shapely.to_wkb(shapely.Point(1, 1))]})
    rows = rows.replace_schema_metadata({"geo": json.dumps(geo)})
    pq.write_table(rows, tmp_path / "a.parquet")
    spark: Any = None
    with pytest.raises(InvalidArgument, match=r"a\.parquet") as error:
        records_of(spark, spec_of("file:x", tmp_path / "a.parquet"))
    assert error.value.field == "files"


@pytest.mark.parametrize("name", ["a", "a[1]"])
def test_a_damaged_file_is_reported(
    spark: SparkSession, tmp_path: Path, small_town: Town, name: str
) -> None:
    """The error is the same with each reader."""
    path = tmp_path / f"{name}.parquet"
    pq.write_table(pa.table({"id": [f"{n}" for n in range(5000)]}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[200:9000] = bytes(8800)
    path.write_bytes(data)
    with pytest.raises(InvalidArgument, match=re.escape(f"{path} cannot be read")) as error:
        loaded(spark, small_town.place.location, path)
    assert error.value.field == "files"


def test_file_names_are_not_patterns(spark: SparkSession, tmp_path: Path, small_town: Town) -> None:
    names = ["a[1]", "a{b}", "a:b", "a*", "a b%20", "a\\b", "a?"]
    for name in [*names, "ab", "a1"]:
        pq.write_table(pa.table({"id": [name], "lon": [1.0]}), tmp_path / f"{name}.parquet")
    location = small_town.place.location
    for number, name in enumerate(names, 1):
        done = loaded(spark, location, tmp_path / f"{name}.parquet")
        assert (done.records, done.created, len(content(location))) == (1, 1, number), name
    # Others are found by their names, too.
    path = tmp_path / "a[1].parquet"
    done = loaded(spark, location, path, mapping=Mapping(id="id", types={"id": "int"}))
    assert [each["source"] for each in rejects_of(done)] == [str(path)]


# ---- Pieces --------------------------------------------------------------------------------------


def test_row_groups_are_read_in_pieces_and_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PIECE_BYTES", 1000)
    monkeypatch.setattr(tables, "PIECE_BYTES", 1000)
    monkeypatch.setattr(parquet, "_OPEN_BYTES", 10)
    monkeypatch.setattr(parquet, "_is_for_spark", lambda *_: False)
    for name, group in (("a", 7), ("b", 100), ("c", 1)):
        rows = pa.table({"id": [f"{name}{n:04}" for n in range(100)]})
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=group)
    records = records_of(spark, spec_of("file:x", tmp_path / "*.parquet")).rows
    found = {(Path(row.source).stem, row.line): row.id for row in records.collect()}
    assert found == {(name, n + 1): f"{name}{n:04}" for name in "abc" for n in range(100)}
    assert records.rdd.getNumPartitions() > 3


def test_small_pieces_share_a_task_and_no_task_is_empty(spark: SparkSession) -> None:
    size = files.PIECE_BYTES
    given = [
        FilePiece("a", size=1),
        FilePiece("b", size=size),
        FilePiece("c", size=5),
        FilePiece("d", size=5),
    ]
    assert [[piece.path for piece in task] for task in tables.packed(given)] == [
        ["a"],
        ["b"],
        ["c", "d"],
    ]
    assert tables.packed([]) == []
    whole = [FilePiece(f"{n}") for n in range(16)]
    schema = pa.schema([pa.field("path", pa.string())])
    rows = tables.in_pieces(
        spark,
        whole,
        from_arrow_schema(schema),
        lambda piece: iter([pa.RecordBatch.from_pydict({"path": [piece.path]})]),
    )
    tasks = rows.rdd.glom().map(lambda task: [row.path for row in task]).collect()
    assert tasks == [[f"{n}"] for n in range(16)]


# ---- Vector files --------------------------------------------------------------------------------


def shapes(count: int, corners: int = 1) -> geopandas.GeoDataFrame:
    lines = shapely.linestrings(np.random.default_rng(1).random((count, corners + 1, 2)))
    columns = {"id": [f"f{n}" for n in range(count)], "n": range(count)}
    return geopandas.GeoDataFrame(columns, geometry=lines, crs="EPSG:4326")


@pytest.mark.parametrize("suffix", ["gpkg", "fgb", "shp", "gml"])
def test_vector_files_are_read_in_small_batches_and_no_feature_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(tables, "PIECE_FEATURES", 40)
    monkeypatch.setattr(limits, "LOAD_BATCH_ROWS_MAX", 7)
    path = tmp_path / f"a.{suffix}"
    shapes(100).to_file(path)
    records = records_of(spark, spec_of("file:x", path)).rows
    rows = records.select("id", "line").collect()
    expected = geopandas.read_file(path)["id"].tolist()  # Some formats have an order of their own.
    assert sorted((row.line, row.id) for row in rows) == list(enumerate(expected, 1))


def test_a_batch_of_large_features_is_small(tmp_path: Path) -> None:
    path = str(tmp_path / "a.gpkg")
    shapes(600, 1000).to_file(path)
    layout = tables._vector_columns(path, "a")
    (piece,) = tables._vector_pieces(path, 600, "a")
    batches = list(tables._read_vector(tables.with_own_fields(layout), piece))
    assert sum(batch.num_rows for batch in batches) == 600
    assert max(batch.nbytes for batch in batches) < limits.LOAD_BATCH_BYTES
    assert len(batches) < 10


def latin(path: Path, column: str = "name") -> Path:
    """A Shapefile that does not say how its texts are encoded."""
    cities = {"id": ["a", "b"], column: ["Köln", "Bonn"]}
    points = shapely.points([7, 7.1], [50.9, 50.7])
    geopandas.GeoDataFrame(cities, geometry=points, crs="EPSG:4326").to_file(
        path, encoding="ISO-8859-1"
    )
    path.with_suffix(".cpg").unlink()
    table = bytearray(path.with_suffix(".dbf").read_bytes())
    table[29] = 0
    path.with_suffix(".dbf").write_bytes(table)
    return path


def read_vector(path: Path, encoding: str | None = None) -> list[dict[str, Any]]:
    layout = tables._vector_columns(str(path), path.stem, encoding)
    (piece,) = tables._vector_pieces(str(path), 2, path.stem, encoding)
    batches = tables._read_vector(tables.with_own_fields(layout), piece)
    return [row for batch in batches for row in batch.to_pylist()]


def test_texts_of_a_shapefile_are_as_they_were_or_rejected(tmp_path: Path) -> None:
    path = latin(tmp_path / "a.shp")
    cologne, bonn = sorted(read_vector(path), key=lambda row: int(row[tables.LINE]))
    assert (bonn["id"], bonn["name"], bonn[tables.PROBLEM]) == ("b", "Bonn", None)
    assert (cologne["id"], cologne[tables.LINE]) == (None, 1)
    assert cologne[tables.PROBLEM].startswith(
        "name: cannot be decoded; set the option encoding: 'utf-8'"
    )
    shown = json.loads(cologne[tables.RECORD])
    assert (shown["id"], shown["name"]) == ("a", "K\ufffdln")
    assert shapely.from_wkb(shown["geometry"]) == shapely.Point(7, 50.9)
    for encoding in ("cp1252", "iso8859-1"):
        assert [row["name"] for row in read_vector(path, encoding)] == ["Köln", "Bonn"]
    named = latin(tmp_path / "b.shp", "größe")
    with pytest.raises(InvalidArgument, match=r"b\.shp.*set the option encoding"):
        read_vector(named)
    assert read_vector(named, "cp1252")[0]["größe"] == "Köln"


def test_an_encoding_applies_to_texts_and_files_without_a_declared_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id")
    (tmp_path / "a.json").write_text("{}")
    shapes(1).to_file(tmp_path / "a.gpkg")
    spark: Any = None
    for name, encoding in (
        *(("a.csv", each) for each in ("klingon", "base64", "utf-16", "utf-16-le", "\0")),
        *((each, "cp1252") for each in ("a.json", "a.gpkg")),
    ):
        with pytest.raises(InvalidArgument) as error:
            records_of(spark, spec_of("file:x", tmp_path / name, encoding=encoding))
        assert error.value.field == "encoding", (name, encoding)
    # GDAL knows no euc_kr, as Python calls it.
    shapefile = spec_of("file:x", tmp_path / "a.shp", encoding="EUC-KR")
    assert _encoding_of(shapefile, FileFormat.VECTOR) == "euc-kr"


# ---- Files and layers ----------------------------------------------------------------------------


def test_files_of_a_directory_are_known_whatever_letters_their_endings_have(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/A.CSV").write_text("id,lon,lat\na,1,2\n")
    (tmp_path / "in/b.csv").write_text("id,lon,lat\nb,1,2\n")
    (tmp_path / "in/c.csv.gz").write_text("x")
    done = loaded(spark, small_town.place.location, tmp_path / "in")
    assert content(small_town.place.location).keys() == {"a", "b"}
    assert (done.file_count, done.left_out_count) == (2, 1)
    assert done.files == (str(tmp_path / "in/A.CSV"), str(tmp_path / "in/b.csv"))
    assert done.left_out == (str(tmp_path / "in/c.csv.gz"),)


def test_skipped_files_of_a_directory_are_reported(tmp_path: Path) -> None:
    reported = ["_b.csv", "_old/c.csv", "c.csv.gz", "d.CSV.txt", "lone.dbf"]
    beside = ["_SUCCESS", ".a.csv.crc", "_report.json", "_manifest.json", "a.csv.rejects.jsonl"]
    beside += ["s.dbf", "s.shp.xml", "s.cpg", "g.gfs"]
    for name in (*reported, *beside, "a.csv", "deep/a.csv", "s.shp", "g.gml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = files.found_files(spec_of("file:x", tmp_path))
    assert [str(Path(each).relative_to(tmp_path)) for each in found.files] == [
        *("a.csv", "deep/a.csv", "g.gml", "s.shp")
    ]
    assert [str(Path(each).relative_to(tmp_path)) for each in found.left_out] == reported
    heard = RecordedProgress()
    report_left_out(found, heard)
    (said,) = heard.texts
    assert said.startswith("5 files were left out")
    assert str(tmp_path / "c.csv.gz") in said
    # A pattern means files.
    assert files.files_of(spec_of("file:x", tmp_path / "**")) == [
        str(each)
        for each in sorted(tmp_path.rglob("*"))
        if each.is_file() and each.name[0] != "." and not each.name.endswith("rejects.jsonl")
    ]


def test_one_of_several_layers_must_be_named(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    path = tmp_path / "a.gpkg"
    shapes(1).to_file(path, layer="roads")
    shapes(2).to_file(path, layer="rivers")
    with pytest.raises(InvalidArgument, match=r"several layers; .* one of roads, rivers") as error:
        loaded(spark, small_town.place.location, path)
    assert error.value.field == "layer"
    assert loaded(spark, small_town.place.location, path, layer="rivers").created == 2


def test_a_table_of_styles_is_not_a_second_layer(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    path = tmp_path / "a.gpkg"
    styles = geopandas.GeoDataFrame({"qml": ["<qgis/>"]}).drop(columns="geometry", errors="ignore")
    pyogrio.write_dataframe(styles, path, layer="layer_styles")
    shapes(2).to_file(path, layer="rivers")
    assert loaded(spark, small_town.place.location, path).created == 2

"""Exported files: equal to the storage's own results, in every reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import geopandas
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyarrow import dataset
from pyspark.sql import SparkSession

from naksha.model import limits
from naksha.model.errors import Cancelled, Conflict, InvalidArgument
from naksha.model.geo.quadkey import QRID_DIGITS
from naksha.model.query import Bbox, Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import AtSeq
from naksha.spark.jobs.diff import Diff, diff
from naksha.spark.jobs.export import Export, Exported, export
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.geoparquet import BBOX, BOX, GeoParquetFile, Properties
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading.spec import Load
from naksha.spark.jobs.publish_directory import check_output, published
from naksha.spark.jobs.typed_columns import ColumnKind, one_kind
from naksha.spi.staging import WriteMode
from naksha.testing.models.json_values import same
from tests.spark.jobs.geoparquet_rules import check_file, check_metadata
from tests.spark.jobs.town import Town, point, scattered

ODD: list[dict[str, Any]] = [
    point("3d", 1.5, 2.5) | {"geometry": {"type": "Point", "coordinates": [1.5, 2.5, -7.25]}},
    point("line", 0, 0, a="x", deep={"b": [1, {"c": None}]})
    | {"geometry": {"type": "LineString", "coordinates": [[-170.0, 10.0], [170.0, -10.0]]}},
    point("area", 0, 0, a=1, É="ü\\'\"")
    | {
        "geometry": {
            "type": "MultiPolygon",
            "coordinates": [[[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]],
        },
        "momType": {"x": 1},
    },
    point("tagged", 8.0, 50.0, **{XYZ: {"tags": ["red", "@K'"], "crid": "mine"}}),
]


def done(spark: SparkSession, town: Town, output: Path, **settings: Any) -> Exported:
    spec = Export(place=town.place, collection="places", output=str(output), **settings)
    return export(spark, spec, SilentProgress())


def query(text: str, output: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        files = f"read_parquet('{output}/*/*.parquet', hive_partitioning = false)"
        found = connection.sql(text.replace("FILES", files)).to_arrow_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def check(output: Path, states: dict[str, State]) -> None:
    """Ids, geometries, properties and the rest are those of the storage."""
    columns = "id, properties, members, tags, crid, uuid, txn, version, author"
    rows = query(f"SELECT {columns}, epoch_ms(updated_at) AS updated FROM FILES", output)
    assert sorted(row["id"] for row in rows) == sorted(states)
    for row in rows:
        feature, xyz = dict(states[row["id"]].feature), states[row["id"]].xyz
        properties = {k: v for k, v in feature["properties"].items() if k != XYZ}
        assert same(msgspec.json.decode(row["properties"]), properties)
        rest = {k: v for k, v in feature.items() if k not in KNOWN}
        assert same(msgspec.json.decode(row["members"] or "{}"), rest)
        assert (row["tags"], row["crid"]) == (xyz["tags"], xyz["crid"])
        assert (row["uuid"], str(row["txn"])) == (xyz["uuid"], xyz["txn"])
        assert (row["version"], row["author"]) == (xyz["version"], xyz["author"])
        assert row["updated"] == xyz["updatedAt"]
    check_shapes(geopandas.read_parquet(output), states)


def check_shapes(table: geopandas.GeoDataFrame, states: dict[str, State]) -> None:
    assert table.crs == "OGC:CRS84"
    assert sorted(table["id"]) == sorted(states)
    for id_, shape in zip(table["id"], table.geometry, strict=True):
        geometry = states[id_].feature["geometry"]
        found = None if shape is None else msgspec.json.decode(shapely.to_geojson(shape))
        assert same(found, geometry)


KNOWN = {"id", "type", "geometry", "properties"}


def test_it_is_what_the_storage_answers(spark: SparkSession, town: Town, tmp_path: Path) -> None:
    town.put(*scattered(60, 2), *ODD)
    version = town.put(point("f1", 3.0, 4.0, moved=True))
    town.branch("draft")
    town.delete("line", "f2")
    town.put(point("new", 5.0, 5.0), branch="draft")
    report = done(spark, town, tmp_path / "then", version=str(version.seq_number), features_max=9)
    states = town.states(at=AtSeq(version.seq_number))
    check(tmp_path / "then", states)
    assert (report.seq_number, report.features) == (version.seq_number, len(states))
    assert report.storage == town.call(_id)
    manifest = (tmp_path / "then/_manifest.json").read_bytes()
    assert msgspec.json.decode(manifest, type=Exported) == report
    assert (tmp_path / "then/_SUCCESS").exists()
    check_files(tmp_path / "then", report)
    east = Query(spatial=Bbox(0, -90, 180, 90))
    done(spark, town, tmp_path / "east", version="draft", query=east)
    check(tmp_path / "east", town.states(east, branch="draft"))
    assert "new" in town.states(east, branch="draft")


async def _id(storage: Any) -> str:
    return str(storage.id)


def check_files(output: Path, report: Exported) -> None:
    """Each file holds its cell, in the order of places, and says so."""
    assert sum(file.features for file in report.files) == report.features
    cut = [file.features for file in report.files if file.qrid and len(file.qrid) < QRID_DIGITS]
    assert max(cut) <= 9 < report.features
    for file in report.files:
        folder = f"cell=q{file.qrid}" if file.qrid else "cell=none"
        assert file.path == f"{folder}/part-0.parquet"
        parquet = pq.ParquetFile(output / file.path)
        assert parquet.metadata.num_rows == file.features
        assert (output / file.path).stat().st_size == file.bytes
        check_file(output / file.path)
        geo = msgspec.json.decode(parquet.metadata.metadata[b"geo"])
        assert geo["columns"]["geometry"].get("bbox") == file.bbox
    raised = [file.bbox for file in report.files if file.bbox and len(file.bbox) == 6]
    assert [(box[2], box[5]) for box in raised] == [(-7.25, -7.25)]


def test_readers_take_cells_for_texts(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    """With their leading zeros, also where all of them look like numbers."""
    small_town.put(point("a", -179, 89), point("b", -179, -89), point("c", 179, 89, cell="own"))
    report = done(spark, small_town, tmp_path / "out", features_max=1)
    cells = {f"q{file.qrid}" for file in report.files}
    assert any(cell.startswith("q0") for cell in cells)
    assert set(geopandas.read_parquet(tmp_path / "out")["cell"].astype(str)) == cells
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT DISTINCT cell FROM '{tmp_path}/out/*/*.parquet'").fetchall()
    assert {cell for (cell,) in found} == cells
    rows = spark.read.parquet(str(tmp_path / "out")).select("cell").distinct().collect()
    assert {row.cell for row in rows} == cells
    columns = done(spark, small_town, tmp_path / "typed", properties=Properties.COLUMNS).columns
    assert "properties.cell" in columns
    same_again = Diff(place=small_town.place, collection="places", files=(str(tmp_path / "out"),))
    compared = diff(spark, same_again, SilentProgress())
    assert (compared.created, compared.updated, compared.deleted) == (0, 0, 0)


@pytest.mark.parametrize("states", [States.DELETED, States.ALL])
def test_deleted_features_are_not_exported(
    spark: SparkSession, small_town: Town, tmp_path: Path, states: States
) -> None:
    """A load of the files would bring it back to life."""
    small_town.put(point("a", 1, 1))
    small_town.delete("a")
    with pytest.raises(InvalidArgument, match="can only have live features") as error:
        done(spark, small_town, tmp_path / "out", query=Query(states=states))
    assert error.value.field == "query"


def test_integers_stay_what_they_are(spark: SparkSession, small_town: Town, tmp_path: Path) -> None:
    """No double holds them, and Spark's integers not all."""
    most = 2**63 - 1
    small_town.put(
        point(
            "a", 1, 1, huge=2**64 + 1, mixed=2**53 + 1, long=most, small=2**53, size=-(2**60) - 1
        ),
        point("b", 2, 2, huge=1, mixed=0.5, long=1, small=0.5, size=2**60 + 0.5),
    )
    done(spark, small_town, tmp_path / "out", properties=Properties.COLUMNS)
    names = ("huge", "mixed", "long", "small")
    by_id = {row["id"]: row for row in query("SELECT * FROM FILES", tmp_path / "out")}
    reported = [by_id[i][name] for name in names for i in "ab"]
    assert reported == [str(2**64 + 1), "1", str(2**53 + 1), "0.5", most, 1, 2.0**53, 0.5]
    assert by_id["a"]["size"] == str(-(2**60) - 1)


def test_properties_become_columns(spark: SparkSession, small_town: Town, tmp_path: Path) -> None:
    small_town.put(
        point("a", 1, 1, name="x", speed=50, size=1, ok=True, any=1, id="own", Name="upper"),
        point("b", 2, 2, name=None, speed=2**40, size=2.5, ok=False, any="1", deep={"k": [1]}),
        point("c", 3, 3, any=None, nothing=None, **{'it\'s "odd"': "x.y"}),
    )
    report = done(spark, small_town, tmp_path / "out", properties=Properties.COLUMNS)
    by_id = {row["id"]: row for row in query("SELECT * FROM FILES", tmp_path / "out")}
    given = {"speed", "size", "ok", "any", "deep", "nothing", 'it\'s "odd"'}
    assert given | {"properties.id", "Name", "properties.name"} <= set(report.columns)
    assert "properties" not in report.columns
    assert [by_id["a"][k] for k in ("speed", "size", "ok")] == [50, 1.0, True]
    assert [by_id["b"][k] for k in ("speed", "size", "ok")] == [2**40, 2.5, False]
    assert [by_id[i]["any"] for i in "abc"] == ["1", '"1"', "null"]
    assert [by_id[i]["deep"] for i in "abc"] == [None, '{"k":[1]}', None]
    assert [by_id[i]["properties.name"] for i in "abc"] == ["x", None, None]
    assert (by_id["a"]["Name"], by_id["a"]["properties.id"]) == ("upper", "own")
    assert (by_id["c"]['it\'s "odd"'], by_id["c"]["nothing"]) == ("x.y", "null")


@pytest.mark.parametrize("properties", Properties)
def test_an_export_of_nothing_is_a_table_without_rows(
    spark: SparkSession, small_town: Town, tmp_path: Path, properties: Properties
) -> None:
    """For all who read it, also for ourselves: an empty collection, or a query without results."""
    output = tmp_path / "out"
    if properties is Properties.COLUMNS:
        small_town.put(point("a", 1, 1))
    nowhere = Query(spatial=Bbox(50, 50, 51, 51))
    report = done(spark, small_town, output, query=nowhere, properties=properties)
    (file,) = report.files
    assert (report.features, report.file_count, file.features, file.bbox) == (0, 1, 0, None)
    check_file(output / file.path)
    table = geopandas.read_parquet(output)
    assert (len(table), table.crs, table.geometry.name) == (0, "OGC:CRS84", "geometry")
    assert set(report.columns) - {BBOX} <= set(table.columns)
    assert query("SELECT * FROM FILES", output) == []
    mirror: dict[str, Any] = {"place": small_town.place, "files": (str(output),)}
    emptied: dict[str, Any] = {
        "collection": "places",
        "mode": WriteMode.MIRROR,
        "delete_all": True,
    }
    loaded = load(spark, Load(**mirror, **emptied, app_id="test"), SilentProgress())
    assert (loaded.records, loaded.deleted) == (0, int(properties is Properties.COLUMNS))
    compared = diff(spark, Diff(**mirror, collection="places"), SilentProgress())
    assert (compared.created, compared.updated, compared.deleted) == (0, 0, 0)


def test_readers_skip_what_is_elsewhere(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    """By the files' boxes, and by the statistics of row groups: rows lie in order."""
    schema = pa.schema([pa.field("geometry", pa.binary()), pa.field("bbox", BOX)])
    file = GeoParquetFile(tmp_path / "one.parquet", schema, row_group_rows=10)
    for start in range(0, 100, 7):
        places = np.arange(start, min(start + 7, 100), dtype=float)
        points = shapely.to_wkb(shapely.points(places, places)).tolist()
        boxes = [dict.fromkeys(("xmin", "ymin", "xmax", "ymax"), n) for n in places]
        file.write(
            pa.RecordBatch.from_arrays([pa.array(points), pa.array(boxes, BOX)], schema=schema)
        )
    file.close()
    assert file.bbox == [0.0, 0.0, 99.0, 99.0]
    (whole,) = dataset.dataset(tmp_path / "one.parquet").get_fragments()
    inside = (dataset.field("bbox", "xmin") <= 25) & (dataset.field("bbox", "xmax") >= 21)
    assert len(whole.row_groups) == 10
    assert [group.id for group in whole.subset(inside).row_groups] == [2]

    small_town.put(*scattered(200, 5))
    done(spark, small_town, tmp_path / "out", features_max=20)
    here = (0, 0, 180, 90)
    table = geopandas.read_parquet(tmp_path / "out", bbox=here)
    inside_here = small_town.states(Query(spatial=Bbox(*here)))
    check_shapes(table, inside_here)
    assert 0 < len(table) < 200
    covered = "bbox.xmin <= 180 AND bbox.xmax >= 0 AND bbox.ymin <= 90 AND bbox.ymax >= 0"
    rows = query(f"SELECT id, geometry FROM FILES WHERE {covered}", tmp_path / "out")
    assert {row["id"] for row in rows} == set(inside_here)
    for row in rows:
        shape = msgspec.json.decode(shapely.to_geojson(shapely.from_wkb(row["geometry"])))
        assert same(shape, inside_here[row["id"]].feature["geometry"])


@pytest.mark.parametrize(
    "broken",
    [
        {"version": "1.0"},
        {"primary_column": "shape"},
        {"geometry_types": ["Circle"]},
        {"geometry_types": ["Point", "Point"]},
        {"encoding": "EWKB"},
        {"bbox": [0, 1, 2]},
        {"bbox": [0, 5, 1, 4]},
        {
            "covering": {
                "bbox": {edge: ["bbox", "xmin"] for edge in ("xmin", "ymin", "xmax", "ymax")}
            }
        },
    ],
)
def test_the_rules_are_noticed_when_broken(broken: dict[str, Any], tmp_path: Path) -> None:
    schema = pa.schema([pa.field("geometry", pa.binary()), pa.field("bbox", BOX)])
    file = GeoParquetFile(tmp_path / "one.parquet", schema)
    box = dict.fromkeys(("xmin", "ymin", "xmax", "ymax"), 1.0)
    columns = [pa.array([shapely.to_wkb(shapely.Point(1, 1))]), pa.array([box], BOX)]
    file.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    file.close()
    check_file(file.path)
    geo = file.metadata()
    check_metadata(geo)
    (geo if broken.keys() & geo.keys() else geo["columns"]["geometry"]).update(broken)
    with pytest.raises(AssertionError):
        check_metadata(geo)


class CancellingProgress(SilentProgress):
    """Progress that cancels the job at the start of a phase."""

    def __init__(self, phase: str) -> None:
        self._phase = phase

    def phase(self, name: str, total: int | None = None) -> None:
        if name == self._phase:
            raise Cancelled("enough")


def test_a_directory_is_there_whole_or_not_at_all(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    small_town.put(*scattered(10, 1))
    output = tmp_path / "out"
    spec = Export(place=small_town.place, collection="places", output=str(output))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Cancelled):
        export(spark, spec, CancellingProgress("writing"))
    assert sorted(tmp_path.iterdir()) == before
    assert done(spark, small_town, output).features == 10
    small_town.delete("f1")
    with pytest.raises(Conflict, match="already exists"):
        done(spark, small_town, output)
    with pytest.raises(Cancelled):
        export(spark, msgspec.structs.replace(spec, overwrite=True), CancellingProgress("writing"))
    assert len(geopandas.read_parquet(output)) == 10
    assert done(spark, small_town, output, overwrite=True).features == 9
    assert len(geopandas.read_parquet(output)) == 9
    assert sorted(tmp_path.iterdir()) == sorted([*before, output])


def test_an_output_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with (
        pytest.raises(Conflict, match="already exists"),
        published(target, overwrite=False) as work,
    ):
        (work / "mine").touch()
        target.mkdir()
        (target / "theirs").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]
    (tmp_path / "file").touch()
    with pytest.raises(Conflict, match="is not a directory"):
        check_output(str(tmp_path / "file"), overwrite=True)
    with pytest.raises(InvalidArgument, match="of the output does not exist"):
        check_output(str(tmp_path / "nowhere/out"), overwrite=False)


def test_a_column_has_a_type_that_all_values_fit_into() -> None:
    assert one_kind({ColumnKind.INTEGER, ColumnKind.NOTHING}) is ColumnKind.INTEGER
    assert one_kind({ColumnKind.INTEGER, ColumnKind.NUMBER}) is ColumnKind.NUMBER
    assert one_kind({ColumnKind.INTEGER, ColumnKind.TEXT}) is ColumnKind.JSON
    assert one_kind({ColumnKind.NOTHING}) is ColumnKind.JSON
    assert one_kind({ColumnKind.LONG, ColumnKind.NOTHING}) is ColumnKind.INTEGER
    assert one_kind({ColumnKind.LONG, ColumnKind.INTEGER}) is ColumnKind.INTEGER
    assert one_kind({ColumnKind.LONG, ColumnKind.INTEGER, ColumnKind.NUMBER}) is ColumnKind.JSON


def test_the_report_names_some_files_and_the_manifest_all(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    """So that a report is never too long."""
    most = limits.FILES_REPORTED_MAX + 5
    small_town.put(*(point(f"f{n}", n - 100.25, 20.25) for n in range(most)))
    report = done(spark, small_town, tmp_path / "out", features_max=1)
    text = (tmp_path / "out/_manifest.json").read_bytes()
    manifest = msgspec.json.decode(text, type=Exported)
    assert (report.file_count, len(report.files)) == (most, limits.FILES_REPORTED_MAX)
    assert (manifest.file_count, len(manifest.files)) == (most, most)
    assert manifest.files[: limits.FILES_REPORTED_MAX] == report.files
    assert {file.path for file in manifest.files} == {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")
    }
    assert len(msgspec.json.encode(report)) < limits.JOB_REPORT_BYTES_MAX

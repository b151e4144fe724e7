"""Rejected records and their files, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
import shapely
import shapely.geometry
from pyspark.sql import Row, SparkSession

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.spark.jobs.diff import JOB as DIFF
from naksha.spark.jobs.diff import Diff
from naksha.spark.jobs.frame import AnyJob, JobSpec, SilentProgress
from naksha.spark.jobs.load import JOB as LOAD
from naksha.spark.jobs.load import _check_counts
from naksha.spark.jobs.loading import geojson
from naksha.spark.jobs.loading.check import REJECTED, CheckedBatch, RecordChecker, keep_rejected
from naksha.spark.jobs.loading.files import files_of
from naksha.spark.jobs.loading.geojson import RECORDS
from naksha.spark.jobs.loading.records import records_of
from naksha.spark.jobs.loading.spec import Load
from naksha.spark.jobs.loading.staging import StagingTask
from naksha.spark.jobs.registry import read_spec
from tests.spark.jobs.loads import spec_of
from tests.spark.jobs.town import Town


def batch_of(*records: dict[str, Any]) -> pa.RecordBatch:
    """Records with the given columns; all others are null."""
    places = [pa.field("wkt", pa.string()), *(pa.field(n, pa.float64()) for n in ("lon", "lat"))]
    given = [{"source": "x", "line": n, "adjusted": False, **r} for n, r in enumerate(records, 1)]
    return pa.RecordBatch.from_pylist(given, schema=pa.schema([*RECORDS, *places]))


def checked(*records: dict[str, Any], **settings: Any) -> CheckedBatch:
    return RecordChecker(CollectionInfo(id="places", **settings), None).check(batch_of(*records))


def record_of(found: CheckedBatch) -> dict[str, Any]:
    (reported,) = found.rejected.to_pylist()
    made: dict[str, Any] = json.loads(reported["record"])
    return made


def test_rejected_records_are_reported_with_geometry_and_all_members() -> None:
    line = shapely.to_wkb(shapely.LineString([(1, 2), (3, 4)]))
    row = {"id": "a", "geometry": line, "properties": '{"n":1}', "members": '{"m":2}'}
    assert record_of(checked({**row, "tags": ["t"]}, points_only=True)) == {
        "type": "Feature",
        "id": "a",
        "geometry": {"type": "LineString", "coordinates": [[1, 2], [3, 4]]},
        "properties": {"n": 1},
        "m": 2,
        "tags": ["t"],
    }
    assert record_of(checked({"wkt": "POINT (1"}))["wkt"] == "POINT (1"
    assert record_of(checked({"lon": 1.0}))["lon"] == 1
    assert record_of(checked({"geometry": b"\x01\x02"}))["wkb"] == "0102"
    assert record_of(checked({"properties": "{"}))["properties"] == "{"
    assert record_of(checked({"problem": "p", "record": '{"as": "it was"}'})) == {"as": "it was"}


def test_the_reported_text_of_a_record_is_limited() -> None:
    long, length_max = "x" * 100_000, limits.REJECT_LENGTH_MAX
    (reported,) = checked({"id": long, "properties": "{}"}).rejected.to_pylist()
    mark = " … (truncated, 100000 characters in total)"
    assert reported["id"] == long[:length_max] + mark
    assert reported["record"].startswith('{"type":"Feature","id":"xxx')
    assert sum(len(str(text)) for text in reported.values()) < 4 * length_max
    row = {"problem": f"x: cannot be read as the requested type: {long}", "record": long}
    (reported,) = checked(row).rejected.to_pylist()
    assert reported["record"] == long[:length_max] + mark
    assert reported["reason"].endswith("characters in total)")
    (reported,) = checked({"problem": "p", "record": long[:length_max]}).rejected.to_pylist()
    assert reported["record"] == long[:length_max]


CURVE = bytes.fromhex("010A00000001000000010800000003000000") + bytes(48)
"""A polygon with a circle for its ring."""


def test_curves_are_rejected_each_by_itself() -> None:
    rows = [
        {"id": "a", "geometry": shapely.to_wkb(shapely.Point(1, 2))},
        {"id": "b", "geometry": CURVE},
        {"id": "c", "wkt": "POINT (3 4)"},
        {"id": "d", "wkt": "CIRCULARSTRING (0 0, 1 1, 2 0)"},
        {"id": "e", "wkt": CURVE.hex()},
        {"id": "f", "wkt": "COMPOUNDCURVE (CIRCULARSTRING (0 0, 1 1, 2 0), (2 0, 3 3))"},
        {"id": "g", "wkt": "CIRCLE (0 0, 1)"},
    ]
    found = checked(*rows)
    assert found.given[0].column("id").to_pylist() == ["a", "c"]
    reported = {row["id"]: row["reason"] for row in found.rejected.to_pylist()}
    curved = (
        "geometry is a curve or surface, which GeoJSON does not support; "
        "convert it to lines or polygons"
    )
    assert reported == dict.fromkeys("bdef", curved) | {"g": "geometry is not valid WKT"}
    (record,) = checked({"geometry": CURVE}).rejected.column("record").to_pylist()
    assert json.loads(record)["wkb"] == CURVE.hex()


def test_measures_are_rejected_unless_there_are_none() -> None:
    texts = ["POINT M (1 2 3)", "POINT ZM (1 2 3 4)", "POINT M (1 2 NaN)", "POINT ZM (1 2 3 NaN)"]
    found = checked(*({"id": f"f{n}", "wkt": text} for n, text in enumerate(texts)))
    assert {row["reason"] for row in found.rejected.to_pylist()} == {
        "geometry has measures (M), which GeoJSON does not support; remove them"
    }
    assert found.rejected.column("id").to_pylist() == ["f0", "f1"]
    kept = shapely.from_wkb(found.given[0].column("geometry").to_pylist())
    assert shapely.to_wkt(kept).tolist() == ["POINT (1 2)", "POINT Z (1 2 3)"]


def test_a_geometry_that_names_another_reference_system_is_not_misread() -> None:
    """Geometries have an SRID, as those of PostGIS do, in bytes or hexadecimal digits."""
    point = shapely.Point(500000, 5600000)
    named = shapely.to_wkb(shapely.set_srid(point, 25832), include_srid=True)
    rows = [{"wkt": named.hex()}, {"geometry": named}]
    for row in checked(*rows).rejected.to_pylist():
        assert row["reason"] == (
            "geometry has the reference system 25832; set that of all features in the mapping"
        )
    metres = RecordChecker(CollectionInfo(id="places"), "EPSG:25832")
    (given,) = metres.check(batch_of(*rows, {"wkt": shapely.to_wkb(point, hex=True)})).given
    assert len(set(given.column("geometry").to_pylist())) == 1
    assert shapely.from_wkb(given.column("geometry")[0].as_py()).x == pytest.approx(9)
    degrees = shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 4326), include_srid=True)
    (given,) = checked({"geometry": degrees}, {"wkt": degrees.hex()}).given
    assert given.column("geometry").to_pylist() == [shapely.to_wkb(shapely.Point(1, 2))] * 2


WIDE = shapely.box(-170, -60, 170, 60, ccw=False)
OVER = shapely.Polygon([(170, 0), (170, 10), (-170, 10), (-170, 0), (170, 0)])
"""Both are clockwise, the second one on the globe, where it is 20 degrees wide."""
BEYOND = shapely.LineString([(170, 0), (190, 0)])


def test_rings_of_shapefiles_are_clockwise() -> None:
    rows = [{"wkt": shape.wkt} for shape in (WIDE, OVER, BEYOND)]
    found = RecordChecker(CollectionInfo(id="places"), None, frozenset("x")).check(batch_of(*rows))
    wide, over, beyond = shapely.from_wkb(found.given[0].column("geometry").to_pylist())
    assert shapely.equals_exact(wide, WIDE)
    assert (over.geom_type, over.area, found.adjusted) == ("MultiPolygon", 200, 2)
    assert shapely.get_coordinates(beyond).tolist() == [[170, 0], [180, 0], [-180, 0], [-170, 0]]
    # By RFC 7946 they are meant the other way round.
    wide, over, _ = shapely.from_wkb(checked(*rows).given[0].column("geometry").to_pylist())
    assert (wide.area, shapely.equals_exact(over, OVER)) == (20 * 120, True)


def test_geometries_at_the_date_line_are_kept_on_request() -> None:
    checker = RecordChecker(CollectionInfo(id="places"), None, is_cut=False)
    found = checker.check(batch_of(*({"wkt": shape.wkt} for shape in (WIDE, OVER, BEYOND))))
    kept = shapely.from_wkb(found.given[0].column("geometry").to_pylist())
    assert (found.adjusted, shapely.equals_exact(kept, [WIDE, OVER]).all()) == (0, True)
    assert found.rejected.column("line").to_pylist() == [3]
    line = json.dumps({"type": "Feature", "geometry": shapely.geometry.mapping(BEYOND)}).encode()
    for is_cut, problems in ((True, 0), (False, 1)):
        records = geojson.records_of("x", [(1, line)], is_cut=is_cut)
        assert records.num_rows - records.column("problem").null_count == problems


def test_every_invalid_record_is_reported() -> None:
    rows = [{"id": f"f{n}", "properties": "{" if n % 3 else "{}"} for n in range(700)]
    found = checked(*rows)
    assert found.rejected.column("line").to_pylist() == [n + 1 for n in range(700) if n % 3]
    assert sum(map(len, found.features)) == sum(part.num_rows for part in found.given) == 234


def kept(**spec: Any) -> Path:
    row = Row(**{**dict.fromkeys(REJECTED.names), "source": "x", "reason": "r"})
    wanted = spec_of("file:x", **spec)
    file = keep_rejected(wanted, files_of(wanted), [row], SilentProgress())
    assert file is not None
    return Path(file)


def test_rejected_records_are_kept_where_no_later_load_takes_them_for_features(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("id")
    assert kept(path=folder / "a.csv") == folder / "a.csv.rejects.jsonl"
    assert kept(path=folder / "*.csv") == folder / "a.csv.rejects.jsonl"
    assert kept(path=f"{folder}/") == tmp_path / "in.rejects.jsonl"
    files = [str(folder / "a.csv"), str(folder / "b.csv")]
    assert files_of(spec_of("file:x", folder)) == files
    assert files_of(spec_of("file:x", folder / "*")) == files
    named = folder / "a.csv.rejects.jsonl"
    assert files_of(spec_of("file:x", named)) == [str(named)]


def test_rejected_records_are_kept_although_their_files_are_gone(tmp_path: Path) -> None:
    wanted = spec_of("file:x", tmp_path / "gone.csv", rejects=str(tmp_path / "why"))
    row = Row(**{**dict.fromkeys(REJECTED.names), "source": "x", "reason": "r"})
    for _ in range(2):
        file = keep_rejected(wanted, [str(tmp_path / "gone.csv")], [row], SilentProgress())
        assert file == str(tmp_path / "why")


def test_rejected_records_replace_nothing_but_others_of_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lon,lat\na,8,95\n")
    (tmp_path / "same.csv").symlink_to(path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes.json").write_text('{"source": "mine"}')
    (tmp_path / "a.csv.rejects.jsonl").write_text("[]")
    spark: Any = None
    for name in ("a.csv", "same.csv", "notes.txt", "notes.json", "", None):
        rejects = None if name is None else str(tmp_path / name)
        with pytest.raises(
            InvalidArgument, match=r"must not be the input file|exists with other content"
        ) as error:
            records_of(spark, spec_of("file:x", path, rejects=rejects))
        assert error.value.field == "rejects"
        with pytest.raises(InvalidArgument):
            kept(path=path, rejects=rejects)
    assert path.read_text() == "id,lon,lat\na,8,95\n"
    (tmp_path / "empty").touch()
    for _ in range(2):
        assert kept(path=path, rejects=str(tmp_path / "empty")) == tmp_path / "empty"


def test_a_task_that_has_rejected_too_many_reads_no_more(small_town: Town) -> None:
    checker = RecordChecker(CollectionInfo(id="places"), None)
    left = iter([batch_of({"id": f"f{n}"}, {"properties": "{"}) for n in range(9)])
    reported = list(StagingTask(small_town.place, "j", checker, 2)(left))
    reasons = [reason for batch in reported for reason in batch.column("reason").to_pylist()]
    assert len(list(filter(None, reasons))) == 3
    assert len(list(left)) == 6
    # It has no count of records, so it is not mistaken for the end.
    (end,) = reported[-1].to_pylist()
    assert (end["records"], end["features"]) == (None, 3)


def test_a_task_reports_the_number_of_records_read(small_town: Town) -> None:
    checker = RecordChecker(CollectionInfo(id="places"), None)
    batches = [batch_of({"id": f"f{n}"}, {"properties": "{"}) for n in range(3)]
    (*_, end) = StagingTask(small_town.place, "j", checker, 9)(iter(batches))
    assert end.select(["records", "features"]).to_pylist() == [{"records": 6, "features": 3}]
    (end,) = StagingTask(small_town.place, "j", checker, 0)(iter([]))
    assert end.select(["records", "table"]).to_pylist() == [{"records": 0, "table": None}]


@pytest.mark.parametrize("ends", [[3, 2], [5, None]])
def test_records_that_got_lost_on_the_way_are_noticed(ends: list[int | None]) -> None:
    rows = [Row(records=records, reason=None) for records in ends]
    with pytest.raises(NakshaError, match="5 records were read, but 4 were staged or rejected"):
        _check_counts([*rows, Row(records=None, reason="r")], 4)


def test_a_number_of_rejected_records_is_not_negative(small_town: Town) -> None:
    """A negative limit would be exceeded before any record is read and reported."""
    place, spark = small_town.place, cast("SparkSession", None)
    files = ("a.csv",)
    jobs: list[tuple[AnyJob, JobSpec]] = [
        (LOAD, Load(place=place, collection="c", files=files, app_id="test", rejects_max=-1)),
        (DIFF, Diff(place=place, collection="c", files=files, rejects_max=-1)),
    ]
    for job, spec in jobs:
        with pytest.raises(InvalidArgument, match="0 or more") as error:
            job.run(spark, spec, SilentProgress())
        assert error.value.field == "rejects_max"
        with pytest.raises(InvalidArgument) as error:
            read_spec(msgspec.json.encode(spec))
        assert error.value.field == "rejects_max"
        schema = msgspec.json.schema(job.spec)["$defs"][job.spec.__name__]["properties"]
        assert schema["rejects_max"]["minimum"] == 0

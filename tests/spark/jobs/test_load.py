"""Loading of files of all kinds: errors are reported, and no feature is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas
import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import naksha
from naksha.cli.sample import sample_spec
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Cancelled, InvalidArgument, LimitExceeded, NotFound
from naksha.spark.jobs.diff import Diff, diff
from naksha.spark.jobs.export import Export, export
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading import files
from naksha.spark.jobs.loading.spec import FileFormat, Load, Loaded, Mapping
from naksha.spi.staging import WriteMode
from tests.spark.jobs.loads import RecordedProgress, content, feature, loaded, rejects_of, spec_of
from tests.spark.jobs.town import Town

ROWS = [("a", 1.5, 2.0, "first"), ("b", -8.25, 50.125, "second"), ("c", 8.0, 49.0, None)]
"""Id, longitude, latitude and name."""


EXPECTED = {id_: ([lon, lat], {"name": name}) for id_, lon, lat, name in ROWS}


def geojson(path: Path) -> Path:
    features = [feature(id_, lon, lat, name=name) for id_, lon, lat, name in ROWS]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}, indent=2))
    return path


def lines(path: Path) -> Path:
    texts = [json.dumps(feature(id_, lon, lat, name=name)) for id_, lon, lat, name in ROWS]
    path.write_text("\n".join(texts))
    return path


def csv(path: Path) -> Path:
    rows = [f"{id_},{lon},{lat},{name or ''}" for id_, lon, lat, name in ROWS]
    path.write_text("\n".join(["id,lon,lat,name", *rows]))
    return path


def wkt(path: Path) -> Path:
    rows = [f"{id_}\tPOINT ({lon} {lat})\t{name or ''}" for id_, lon, lat, name in ROWS]
    path.write_text("\n".join(["id\twkt\tname", *rows]))
    return path


def hex_wkb(path: Path) -> Path:
    """Write a table with geometries in the form of PostGIS."""
    points = shapely.set_srid([shapely.Point(lon, lat) for _, lon, lat, _ in ROWS], 4326)
    digits = shapely.to_wkb(points, hex=True, include_srid=True)
    rows = [f"{id_};{wkb};{name or ''}" for (id_, *_, name), wkb in zip(ROWS, digits, strict=True)]
    path.write_text("\n".join(["id ; geom ;name", *rows]))
    return path


def parquet(path: Path) -> Path:
    points = [shapely.to_wkb(shapely.Point(lon, lat)) for _, lon, lat, _ in ROWS]
    ids, names = [row[0] for row in ROWS], [row[3] for row in ROWS]
    pyarrow.parquet.write_table(pa.table({"id": ids, "wkb": points, "name": names}), path)
    return path


def frame() -> geopandas.GeoDataFrame:
    points = [shapely.Point(lon, lat) for _, lon, lat, _ in ROWS]
    columns = {"id": [row[0] for row in ROWS], "name": [row[3] for row in ROWS]}
    return geopandas.GeoDataFrame(columns, geometry=points, crs="EPSG:4326")


def geoparquet(path: Path) -> Path:
    frame().to_parquet(path)
    return path


def geopackage(path: Path) -> Path:
    frame().to_file(path, layer="places")
    return path


def shapefile(path: Path) -> Path:
    frame().to_file(path)
    return path


FORMATS: dict[str, Callable[[Path], Path]] = {
    "a.geojson": geojson,
    "a.geojsonl": lines,
    "a.csv": csv,
    "a.tsv": wkt,
    "hex.csv": hex_wkb,
    "a.parquet": parquet,
    "geo.parquet": geoparquet,
    "a.gpkg": geopackage,
    "a.shp": shapefile,
}


def test_files_of_all_kinds_give_the_same_features(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    for number, (name, write) in enumerate(FORMATS.items()):
        done = loaded(spark, location, write(tmp_path / name), message=name)
        assert (done.records, done.rejected) == (3, 0), name
        assert content(location) == EXPECTED, name
        # The same again is nothing new.
        assert done.unchanged == (3 if number else 0), name
        assert (done.txn is None) == bool(number), name
    with naksha.connect(location, app_id="test") as db:
        messages = [entry.message for entry in db.versions.log()]
    assert messages.count("a.geojson") == 1


def test_invalid_records_are_reported_with_their_line_and_the_rest_is_loaded(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = tmp_path / "mixed.geojsonl"
    good = [json.dumps(feature(f"f{n}", n % 90, 1, n=n)) for n in range(700)]
    broken = {
        3: '{"type": "Feature"',
        5: json.dumps({"type": "Street"}),
        8: json.dumps({**feature("x", 1, 2), "geometry": {"type": "Point", "coordinates": [1]}}),
        9: json.dumps({**feature("", 1, 2)}),
        700: json.dumps(feature("y", 1, 95)),
    }
    texts = iter(good)
    path.write_text("\n".join(broken.get(n) or next(texts) for n in range(1, 706)) + "\n")
    done = loaded(spark, location, path)
    assert (done.records, done.rejected, done.created) == (705, 5, 700)
    assert done.rejects == f"{path}.rejects.jsonl"
    reported = [json.loads(line) for line in Path(done.rejects).read_text().splitlines()]
    assert {each["line"] for each in reported} == set(broken)
    reasons = {each["line"]: each["reason"] for each in reported}
    assert reasons[3].startswith("is not a valid GeoJSON feature")
    assert reasons[5] == "type must be 'Feature', not 'Street'"
    assert reasons[8].startswith("geometry.coordinates")
    assert reasons[9].startswith("id ")
    assert reasons[700].startswith("geometry")
    assert {each["source"] for each in reported} == {str(path)}
    assert len(content(location)) == 700


def test_too_many_rejected_records_end_a_load_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = tmp_path / "bad.geojsonl"
    path.write_text("\n".join([json.dumps(feature("a", 1, 2)), "{", "{", "{"]))
    with pytest.raises(LimitExceeded, match="More than 2 records were rejected"):
        loaded(spark, location, path, rejects_max=2, rejects=str(tmp_path / "out.jsonl"))
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    with naksha.connect(location, app_id="test") as db:
        assert [each.id for each in db.collections()] == []


def test_only_what_really_changed_is_written(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = tmp_path / "a.geojsonl"
    loaded(spark, location, lines(path))
    changed = [feature("a", 1.5, 2.0, name="other"), feature("b", -8.25, 50.125, name="second")]
    path.write_text("\n".join(map(json.dumps, [*changed, feature("d", 1, 1)])))
    done = loaded(spark, location, path, mode=WriteMode.MIRROR)
    counts = (done.created, done.updated, done.deleted, done.unchanged)
    assert counts == (1, 1, 1, 1)
    assert content(location).keys() == {"a", "b", "d"}


def test_a_load_that_is_repeated_is_done_once(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = lines(tmp_path / "a.geojsonl")
    first = loaded(spark, location, path, job_id="once")
    second = loaded(spark, location, path, job_id="once", mode=WriteMode.CREATE)
    assert (first.repeated, second.repeated) == (False, True)
    assert second.txn == first.txn


class PhaseCounter(SilentProgress):
    """Progress that counts the phases."""

    def __init__(self) -> None:
        self.phases = 0

    def phase(self, name: str, total: int | None = None) -> None:
        self.phases += 1


def test_a_load_that_was_done_needs_its_files_no_more(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    path = lines(tmp_path / "a.geojsonl")
    spec = spec_of(small_town.place.location, path, job_id="once")
    first = load(spark, spec, SilentProgress())
    path.unlink()
    progress = PhaseCounter()
    again = load(spark, spec, progress)
    assert again == msgspec.structs.replace(first, repeated=True, files=(), file_count=0)
    assert (again.created, again.records, progress.phases) == (3, 3, 0)


def test_columns_are_converted_by_the_mapping(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = tmp_path / "roads.csv"
    path.write_text(
        "key;X;Y;lanes;labels;note;secret\n1;8.5;50;2;a, b;n;s\n2;9;51;many;;m;t\n3;9;x;1;;;\n"
    )
    mapping = Mapping(
        id="key",
        tags="labels",
        rename={"lanes": "laneCount"},
        drop=("secret",),
        types={"lanes": "int"},
        constants={"source": {"name": "survey"}},
    )
    done = loaded(spark, location, path, mapping=mapping)
    assert (done.created, done.rejected) == (1, 2)
    with naksha.connect(location, app_id="test") as db:
        found = db["places"].get("1")
    assert found is not None
    namespace = found["properties"].pop("@ns:com:here:xyz")
    assert found["properties"] == {"laneCount": 2, "note": "n", "source": {"name": "survey"}}
    assert found["geometry"]["coordinates"] == [8.5, 50]
    assert namespace["tags"] == ["a", "b"]
    reported = rejects_of(done)
    assert [each["line"] for each in reported] == [3, 4]
    assert reported[0]["reason"] == "lanes: cannot be read as the requested type: many"
    assert reported[1]["reason"] == "Y: cannot be read as the requested type: x"


def test_properties_of_geojson_are_mapped_too(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    path = tmp_path / "a.geojsonl"
    given_ = feature("x", 1, 2, key=7, n="5", deep={"a": [1.25, None]}, gone=1)
    bad = feature("y", 1, 2, key=8, n="five")
    path.write_text(json.dumps({**given_, "extra": {"k": 1}}) + "\n" + json.dumps(bad))
    mapping = Mapping(id="key", rename={"n": "count"}, types={"n": "int"}, drop=("gone",))
    done = loaded(spark, location, path, mapping=mapping)
    assert (done.created, done.rejected) == (1, 1)
    with naksha.connect(location, app_id="test") as db:
        found = db["places"].get("7")
    assert found is not None
    del found["properties"]["@ns:com:here:xyz"]
    assert found["properties"] == {"deep": {"a": [1.25, None]}, "count": 5}
    assert found["extra"] == {"k": 1}


def test_other_reference_systems_and_the_date_line(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    frame().to_crs("EPSG:3857").to_file(tmp_path / "m.gpkg", layer="places")
    loaded(spark, location, tmp_path / "m.gpkg")
    for id_, ((lon, lat), _) in content(location).items():
        assert (lon, lat) == pytest.approx(EXPECTED[id_][0], abs=1e-9)
    over = {"type": "LineString", "coordinates": [[170, 0], [190, 10]]}
    jump = {"type": "LineString", "coordinates": [[170, 0], [-170, 10]]}
    path = tmp_path / "over.geojsonl"
    texts = [{**feature(name, 0, 0), "geometry": g} for name, g in (("o", over), ("j", jump))]
    path.write_text("\n".join(map(json.dumps, texts)))
    done = loaded(spark, location, path)
    assert (done.created, done.rejected, done.adjusted) == (2, 0, 2)
    halves = [[[170, 0], [180, 5]], [[-180, 5], [-170, 10]]]
    assert content(location)["o"][0] == content(location)["j"][0] == halves


def test_geojson_in_another_reference_system(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location, path = small_town.place.location, tmp_path / "a.geojson"
    metres = json.loads(frame().to_crs("EPSG:3857").to_json())
    for each in metres["features"]:
        each["id"] = each["properties"].pop("id")

    def load_with(name: str, crs: str | None = None) -> None:
        named = {"type": "name", "properties": {"name": name}}
        path.write_text(json.dumps({**metres, "crs": named}))
        done = loaded(spark, location, path, mapping=Mapping(crs=crs), mode=WriteMode.MIRROR)
        assert done.rejected == 0
        for id_, ((lon, lat), _) in content(location).items():
            assert (lon, lat) == pytest.approx(EXPECTED[id_][0], abs=1e-9)

    load_with("urn:ogc:def:crs:EPSG::3857")
    load_with("urn:ogc:def:crs:EPSG::4326", crs="EPSG:3857")
    with pytest.raises(InvalidArgument, match=r"a.geojson: the reference system .* is unknown"):
        load_with("EPSG:0")


def test_files_that_cannot_be_loaded(spark: SparkSession, tmp_path: Path, location: str) -> None:
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "b.geojson").write_text('{"type": "Topology"}')
    lines(tmp_path / "c.geojsonl")
    csv(tmp_path / "d.csv")
    with pytest.raises(NotFound, match="No file matches"):
        loaded(spark, location, tmp_path / "nothing*")
    with pytest.raises(InvalidArgument, match=r"The format of 'a\.doc' is unknown"):
        loaded(spark, location, tmp_path / "a.doc")
    with pytest.raises(InvalidArgument, match="must have the same format"):
        loaded(spark, location, tmp_path / "[cd].*")
    with pytest.raises(InvalidArgument, match="Unknown column 'nobody'"):
        loaded(spark, location, tmp_path / "d.csv", mapping=Mapping(id="nobody"))
    with pytest.raises(InvalidArgument, match="'EPSG:0' is unknown") as error:
        loaded(spark, location, tmp_path / "c.geojsonl", mapping=Mapping(crs="EPSG:0"))
    assert error.value.field == "mapping.crs"
    (tmp_path / "e.parquet").write_text("x")
    with pytest.raises(InvalidArgument, match=r"e.parquet is not a valid Parquet file"):
        loaded(spark, location, tmp_path / "e.parquet")
    with (tmp_path / "d.csv").open("a") as file:
        file.write("\na,1,2,again")
    with pytest.raises(InvalidArgument, match="twice") as error:
        loaded(spark, location, tmp_path / "d.csv")
    assert error.value.feature_id == "a"


def test_a_new_collection_has_the_requested_settings(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    info = CollectionInfo(id="places", max_age=7, id_prefix="p-", optimal_partitioning=True)
    path = lines(tmp_path / "a.geojsonl")
    with pytest.raises(InvalidArgument, match="must be those of 'places'"):
        loaded(spark, location, path, info=CollectionInfo(id="roads"))
    loaded(spark, location, path, info=info)
    with naksha.connect(location, app_id="test") as db:
        (made,) = db.collections()
    assert (made.max_age, made.id_prefix, made.optimal_partitioning) == (7, "p-", True)


def test_missing_members_are_reported(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location, heard = small_town.place.location, RecordedProgress()
    (tmp_path / "a.csv").write_text("code,shape,lon,lat\na,POINT (1 2),,\nb,POINT (1 2),1,2\n")
    some = load(spark, spec_of(location, tmp_path / "a.csv"), heard)
    assert (some.created, some.without_geometry, some.without_id) == (2, 1, 2)
    assert heard.texts == [
        "No feature has an id; if there is a column with it, name it in the mapping"
    ]
    heard = RecordedProgress()
    (tmp_path / "b.csv").write_text("code,shape\na,POINT (1 2)\n")
    mapping = Mapping(id="code")
    none = load(spark, spec_of(location, tmp_path / "b.csv", mapping=mapping), heard)
    assert (none.created, none.without_geometry, none.without_id) == (1, 1, 0)
    assert heard.texts == [
        "No feature has a geometry; if there is a column with it, name it in the mapping"
    ]


class CancelDuringWrite(SilentProgress):
    """Progress that cancels a load while it writes."""

    def __init__(self) -> None:
        self.is_writing = False

    def phase(self, name: str, total: int | None = None) -> None:
        self.is_writing = name == "write"

    def advance(self, count: int = 1) -> None:
        if self.is_writing:
            raise Cancelled("The job was cancelled")


def test_a_cancelled_load_reports_what_it_has_written(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    done = load(spark, spec_of(location, lines(tmp_path / "a.geojsonl")), CancelDuringWrite())
    assert (done.created, content(location)) == (3, EXPECTED)


def test_the_sample_has_its_sixteen_true_versions(spark: SparkSession, location: str) -> None:
    done = load(spark, msgspec.convert(sample_spec(location), Load), SilentProgress())
    assert done.transactions == 16
    with naksha.connect(location, app_id="test") as db:
        assert len(content(location, "airports")) == 596
        log = db.versions.log(newest_first=False)
        assert next(entry.message for entry in log) == "Release 20201106"
        changed = db.versions.diff("2022-11-01T00:00..2022-12-01T00:00", "airports")
        assert len(list(changed)) == 600


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 200), st.integers(1, 64))
def test_pieces_begin_and_end_with_lines(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "lines"
    path.write_bytes(b"".join(b"x" * length + b"\n" for length in lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_BYTES", size)
        patch.setattr(files, "_BLOCK", block)
        pieces = list(files.pieces_of(str(path)))
    whole = path.read_bytes()
    assert b"".join(whole[piece.start : piece.end] for piece in pieces) == whole
    for piece in pieces:
        assert piece.line == whole.count(b"\n", 0, piece.start) + 1
        assert piece.start == 0 or whole[piece.start - 1 : piece.start] == b"\n"


def test_a_format_can_be_named(spark: SparkSession, tmp_path: Path, location: str) -> None:
    done = loaded(spark, location, lines(tmp_path / "features.txt"), format=FileFormat.LINES)
    assert done.created == 3


def test_only_points_are_accepted_in_a_collection_of_points(
    spark: SparkSession, tmp_path: Path, location: str
) -> None:
    line = {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}
    given_ = [feature("a", 1, 2), {**feature("l", 1, 2), "geometry": line}, feature("b", 1, 2)]
    path = tmp_path / "a.geojsonl"
    path.write_text("\n".join(map(json.dumps, given_)))
    info = CollectionInfo(id="places", points_only=True)
    done = loaded(spark, location, path, info=info)
    (reported,) = rejects_of(done)
    assert (reported["line"], reported["id"]) == (2, "l")
    assert reported["reason"] == (
        "Feature 'l' must have a Point geometry: collection 'places' accepts points only"
    )
    assert content(location).keys() == {"a", "b"}


@pytest.mark.parametrize(
    "deleting",
    [{"mode": WriteMode.MIRROR}, {"mode": WriteMode.REPLACE, "key": ("properties", "kind")}],
    ids=str,
)
def test_rejected_features_are_deleted_only_on_request(
    spark: SparkSession, tmp_path: Path, small_town: Town, deleting: dict[str, Any]
) -> None:
    location, path = small_town.place.location, tmp_path / "a.geojsonl"
    small_town.put(feature("x", 1, 2, kind="k"), feature("y", 1, 2, kind="k"))
    broken = {**feature("x", 1, 2, kind="k"), "geometry": {"type": "Point"}}
    path.write_text("\n".join(map(json.dumps, [broken, feature("y", 3, 4, kind="k")])))
    before = content(location)
    with pytest.raises(InvalidArgument, match="would delete") as error:
        loaded(spark, location, path, **deleting)
    assert error.value.field == "delete_rejected"
    assert (tmp_path / "a.geojsonl.rejects.jsonl").exists()
    assert content(location) == before
    done = loaded(spark, location, path, **deleting, delete_rejected=True)
    assert (done.rejected, done.updated, done.deleted) == (1, 1, 1)
    assert content(location).keys() == {"y"}


def test_an_empty_delivery_deletes_features_only_on_request(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location, path = small_town.place.location, tmp_path / "a.geojsonl"
    small_town.put(feature("x", 1, 2))
    before = content(location)

    def mirrored(text: str, **allowed: bool) -> Loaded:
        path.write_text(text)
        return loaded(spark, location, path, mode=WriteMode.MIRROR, **allowed)

    with pytest.raises(InvalidArgument, match="is empty") as error:
        mirrored("", delete_all=True)
    assert error.value.field == "files"
    with pytest.raises(InvalidArgument, match="would delete all existing ones") as error:
        mirrored("{", delete_rejected=True)
    assert error.value.field == "delete_all"
    with pytest.raises(InvalidArgument, match="would delete all"):
        mirrored("\n")
    assert loaded(spark, location, path).records == 0
    assert content(location) == before
    assert (mirrored("\n", delete_all=True).deleted, content(location)) == (1, {})


def test_exported_features_are_loaded_unchanged(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    over = {"type": "LineString", "coordinates": [[-170, 10], [170, -10]]}
    small_town.put({**feature("l", 1, 2), "geometry": over})
    place = small_town.place
    output = str(tmp_path / "export")
    export(spark, Export(place=place, collection="places", output=output), SilentProgress())
    compared = diff(
        spark, Diff(place=place, collection="places", files=(output,)), SilentProgress()
    )
    assert (compared.created, compared.updated, compared.deleted) == (0, 0, 0)
    done = loaded(spark, place.location, output)
    assert (done.adjusted, done.unchanged) == (0, 1)

"""Several files at once: conflicts between them are reported, and no column is lost."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import geopandas
import pyarrow as pa
import pyarrow.parquet
import pyogrio
import pytest
import shapely
from pyspark.sql import SparkSession

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import FilePiece
from naksha.spark.jobs.loading.records import records_of
from naksha.spark.jobs.loading.spec import DatelineHandling, Mapping
from naksha.spark.jobs.loading.tables import _info, _stream
from tests.spark.jobs.loads import content, loaded, spec_of
from tests.spark.jobs.town import Town


def frame(id_: str, crs: str | None, **columns: Any) -> geopandas.GeoDataFrame:
    """One feature, at the same place whatever its reference system is."""
    given = {"id": [id_], **{name: [value] for name, value in columns.items()}}
    made = geopandas.GeoDataFrame(given, geometry=[shapely.Point(9, 50)], crs="EPSG:4326")
    return made if crs is None else made.to_crs(crs)


def refused(spark: SparkSession, tmp_path: Path, pattern: str, **more: Any) -> str:
    """Return the error for incompatible files, which is raised before any of them is read."""
    with pytest.raises(InvalidArgument) as error:
        records_of(spark, spec_of("file:nowhere.naksha", tmp_path / pattern, **more))
    return error.value.message


def write_parquet(path: Path, **columns: list[Any]) -> None:
    pyarrow.parquet.write_table(pa.table(columns), path)


def test_files_in_different_reference_systems_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame("a", "EPSG:25832").to_file(tmp_path / "a.shp")
    frame("b", None).to_file(tmp_path / "b.shp")
    frame("a", "EPSG:25832").to_parquet(tmp_path / "a.parquet")
    frame("b", None).to_parquet(tmp_path / "b.parquet")
    for pattern in ("*.shp", "*.parquet"):
        said = refused(spark, tmp_path, pattern)
        assert "a." in said, said
        assert "b." in said, said
        assert "ETRS89 / UTM zone 32N" in said, said
        assert "WGS 84" in said, said


def test_a_reference_system_that_is_given_is_that_of_all_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        frame(name, "EPSG:25832").to_file(tmp_path / f"{name}.shp")
    (tmp_path / "a.prj").unlink()
    assert "no reference system" in refused(spark, tmp_path, "*.shp")
    spec = spec_of("file:x", tmp_path / "*.shp", mapping=Mapping(crs="EPSG:25832"))
    assert records_of(spark, spec)[1] == "EPSG:25832"


def test_the_same_reference_system_may_have_several_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame("a", None).to_parquet(tmp_path / "a.parquet")
    frame("b", "OGC:CRS84").to_parquet(tmp_path / "b.parquet")
    records_of(spark, spec_of("file:x", tmp_path / "*.parquet"))


def test_files_with_different_geometry_columns_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame("a", None).to_parquet(tmp_path / "a.parquet")
    frame("b", None).rename_geometry("place").to_parquet(tmp_path / "b.parquet")
    said = refused(spark, tmp_path, "*.parquet")
    for each in ("a.parquet", "b.parquet", "'geometry'", "'place'"):
        assert each in said, said


def test_a_file_without_the_columns_of_the_place_or_the_id_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,lon,lat\na,1,2\n")
    (tmp_path / "b.csv").write_text("id,x,y\nb,1,2\n")
    (tmp_path / "c.csv").write_text("name,lon,lat\nb,1,2\n")
    said = refused(spark, tmp_path, "[ab].csv")
    assert "b.csv has no column 'lat'" in said, said
    assert "a.csv has one" in said, said
    assert "c.csv has no column 'id'" in refused(spark, tmp_path, "[ac].csv")
    assert "c.csv has no column 'id'" in refused(
        spark, tmp_path, "[ac].csv", mapping=Mapping(id="id")
    )


def test_columns_that_only_some_files_have_are_properties(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    (tmp_path / "a.csv").write_text("id,lon,lat,name\na,1,2,first\n")
    (tmp_path / "b.csv").write_text("kind;lat;lon;id\nroad;4;3;b\n")
    write_parquet(tmp_path / "a.parquet", id=["a"], lon=[1.0], lat=[2.0], name=["first"])
    write_parquet(tmp_path / "b.parquet", kind=["road"], lat=[4.0], lon=[3.0], id=["b"])
    for suffix in ("csv", "parquet"):
        loaded(spark, location, tmp_path / f"*.{suffix}")
        found = content(location)
        assert found["a"] == ([1, 2], {"name": "first", "kind": None}), suffix
        assert found["b"] == ([3, 4], {"name": None, "kind": "road"}), suffix


def test_types_that_hold_those_of_all_files_are_taken(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    narrow, wide = pa.array([1], pa.int32()), pa.array([2**60], pa.int64())
    half, third = pa.array([3], pa.int16()), pa.array([0.25], pa.float64())
    write_parquet(tmp_path / "a.parquet", id=["a"], lon=[1.0], lat=[2.0], n=narrow, m=third)
    write_parquet(tmp_path / "b.parquet", id=["b"], lon=[1.0], lat=[2.0], n=wide, m=half)
    loaded(spark, location, tmp_path / "*.parquet")
    found = content(location)
    assert found["a"][1] == {"n": 1, "m": 0.25}
    assert found["b"][1] == {"n": 2**60, "m": 3}
    frame("a", None, n=7).to_file(tmp_path / "a.gpkg", layer="x")
    frame("b", None, n=2**60, more="m").to_file(tmp_path / "b.gpkg", layer="x")
    loaded(spark, location, tmp_path / "*.gpkg")
    found = content(location)
    assert found["a"][1] == {"n": 7, "more": None}
    assert found["b"][1] == {"n": 2**60, "more": "m"}


def test_types_that_do_not_go_together_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame("a", None, n=1).to_file(tmp_path / "a.gpkg", layer="x")
    frame("b", None, n="one").to_file(tmp_path / "b.gpkg", layer="x")
    write_parquet(tmp_path / "a.parquet", id=["a"], n=[1])
    write_parquet(tmp_path / "b.parquet", id=["b"], n=[1.5])
    for pattern, types in (("*.gpkg", ("bigint", "string")), ("*.parquet", ("bigint", "double"))):
        said = refused(spark, tmp_path, pattern)
        for each in ("a.", "b.", "'n'", *types):
            assert each in said, said


def test_it_is_known_which_files_have_clockwise_rings(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a.gpkg", "b.shp"):
        frame("a", "EPSG:4326").to_file(tmp_path / name)
    found = records_of(spark, spec_of("file:x", tmp_path, dateline=DatelineHandling.KEEP))
    assert found.clockwise == {str(tmp_path / "b.shp")}


READ = """
import sys
from naksha.spark.jobs.loading.tables import _info
_info(sys.argv[1], None)
"""


HOLD = "from naksha.spark.jobs.loading import gdal; gdal.hold()"


@pytest.mark.parametrize("start", ["", HOLD, f"import pyogrio; pyogrio.list_drivers(); {HOLD}"])
def test_a_file_that_leads_to_another_one_is_refused(tmp_path: Path, start: str) -> None:
    """GDAL knows it by what is in it, whatever its name is."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.csv").write_text("id,lon,lat\na,1,2\n")
    (tmp_path / "a.gpkg").write_text(
        '<OGRVRTDataSource><OGRVRTLayer name="secret"><SrcDataSource>'
        f"{tmp_path}/elsewhere/secret.csv</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    )
    # Another module may have loaded GDAL with all of its drivers.
    command = [sys.executable, "-c", f"{start}\n{READ}", str(tmp_path / "a.gpkg")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (
        "a.gpkg is not a valid Shapefile, GeoPackage, FlatGeobuf, GML or KML file" in ended.stderr
    )


def test_kinds_of_files_are_known_to_others_in_the_same_process(tmp_path: Path) -> None:
    frame("a", "EPSG:4326").to_file(tmp_path / "a.geojson", driver="GeoJSON")
    known = pyogrio.list_drivers()
    with pytest.raises(InvalidArgument, match="is not a valid Shapefile"):
        _info(str(tmp_path / "a.geojson"), None)
    assert pyogrio.list_drivers() == known
    assert pyogrio.get_gdal_config_option("GML_DOWNLOAD_SCHEMA") is None
    assert len(pyogrio.read_dataframe(tmp_path / "a.geojson")) == 1


def test_others_may_use_gdal_while_files_are_opened(tmp_path: Path) -> None:
    """Removing a driver that another thread uses would crash the process."""
    frame("a", "EPSG:4326").to_file(tmp_path / "a.geojson", driver="GeoJSON")
    frame("b", "EPSG:4326").to_file(tmp_path / "b.gpkg", driver="GPKG")
    ended = Event()

    def read() -> int:
        count = 0
        while not ended.is_set():
            count += pyogrio.read_info(tmp_path / "a.geojson")["features"]
        return count

    with ThreadPoolExecutor() as threads:
        reading = threads.submit(read)
        for _ in range(20):
            assert _info(str(tmp_path / "b.gpkg"), None)["features"] == 1
        ended.set()
        assert reading.result() > 0


class RequestRecorder(BaseHTTPRequestHandler):
    """Server that must not receive requests."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_error(404)


def test_no_file_leads_to_a_server(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), RequestRecorder)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    (tmp_path / "a.gml").write_text(
        '<wfs:FeatureCollection xmlns:wfs="http://www.opengis.net/wfs" xmlns:n="http://n"'
        ' xmlns:gml="http://www.opengis.net/gml"'
        ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://n '
        f"{url}/?SERVICE=WFS&amp;VERSION=1.1.0&amp;REQUEST=DescribeFeatureType&amp;TYPENAME=n:a"
        f' http://www.opengis.net/wfs {url}/wfs.xsd"><gml:featureMember><n:a><n:id>a</n:id>'
        "<n:g><gml:Point><gml:pos>1 2</gml:pos></gml:Point></n:g></n:a></gml:featureMember>"
        "</wfs:FeatureCollection>"
    )
    (tmp_path / "a.kml").write_text(
        '<kml xmlns="http://www.opengis.net/kml/2.2"><Document><name>d</name><NetworkLink><Link>'
        f"<href>{url}/a</href></Link></NetworkLink><Placemark><name>a</name><Point><coordinates>"
        "1,2</coordinates></Point></Placemark></Document></kml>"
    )
    try:
        for name in ("a.gml", "a.kml"):
            assert _info(str(tmp_path / name), None)["features"] == 1
            with _stream(FilePiece(str(tmp_path / name))) as (_, reader):
                assert sum(batch.num_rows for batch in reader) == 1
    finally:
        server.shutdown()
        server.server_close()
    assert RequestRecorder.paths == []

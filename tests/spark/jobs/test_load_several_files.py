"""Several files at once: what they do not agree on is told, and no column of them is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import geopandas
import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely
from pyspark.sql import SparkSession

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.records import records_of
from naksha.spark.jobs.loading.spec import Mapping
from tests.spark.jobs.loads import content, loaded, spec_of
from tests.spark.jobs.town import Town


def frame(id_: str, crs: str | None, **columns: Any) -> geopandas.GeoDataFrame:
    """One feature, at the same place whatever its reference system is."""
    given = {"id": [id_], **{name: [value] for name, value in columns.items()}}
    made = geopandas.GeoDataFrame(given, geometry=[shapely.Point(9, 50)], crs="EPSG:4326")
    return made if crs is None else made.to_crs(crs)


def refused(spark: SparkSession, tmp_path: Path, pattern: str, **more: Any) -> str:
    """What is said of files that do not go together, before any of them is read."""
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
    assert "a.csv has" in said, said
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


READ = """
import sys
from naksha.spark.jobs.loading.tables import _info
_info(sys.argv[1], None)
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (READ, "not recognized as being in a supported file format"),
        # Somebody else has started GDAL, with all that it has.
        (f"import pyogrio\n{READ}", "it leads to others (OGR_VRT)"),
    ],
)
def test_a_file_that_leads_to_another_one_is_refused(
    tmp_path: Path, program: str, said: str
) -> None:
    """GDAL knows it by what is in it, whatever its name is."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.csv").write_text("id,lon,lat\na,1,2\n")
    (tmp_path / "a.gpkg").write_text(
        '<OGRVRTDataSource><OGRVRTLayer name="secret"><SrcDataSource>'
        f"{tmp_path}/elsewhere/secret.csv</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.gpkg")]
    # Loads in this process have told GDAL already.
    told = {name: text for name, text in os.environ.items() if name != "GDAL_SKIP"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=told)
    assert ended.returncode == 1
    assert said in ended.stderr

"""An archive written by 0.1, of a storage that no longer has its content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

import naksha
from naksha.model.errors import Expired
from naksha.spark.archive.archive import archived_features
from naksha.spark.source.options import StorageRef
from tests.compatibility.opening import DATA, recorded, unpacked


def test_every_version_of_an_archive(spark: SparkSession, tmp_path: Path) -> None:
    place = StorageRef(f"file:{unpacked('archived.naksha', tmp_path)}")
    archive = shutil.copytree(DATA / "archive", tmp_path / "archive")
    now, is_gone = {}, {}
    for version in recorded("archive"):
        rows = archived_features(spark, place, "roads", str(archive), version).collect()
        now[version] = {row.id: json.loads(row.properties)["n"] for row in rows}
        is_gone[version] = _is_gone(place.location, version)
    assert now == recorded("archive")
    assert is_gone["1"]


def _is_gone(location: str, version: str) -> bool:
    with naksha.connect(location, read_only=True) as db:
        try:
            return not list(db["roads"].at(version).query())
        except Expired:
            return True

"""Short calls that load files and inspect the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import naksha
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.source.options import StorageRef

Feature = dict[str, Any]


class RecordedProgress(SilentProgress):
    """Progress that records its messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, text: str) -> None:
        self.texts.append(text)


def feature(id_: str, lon: float, lat: float, **properties: Any) -> Feature:
    point = {"type": "Point", "coordinates": [lon, lat]}
    return {"type": "Feature", "id": id_, "geometry": point, "properties": properties}


def spec_of(location: str, path: Path | str, **more: Any) -> Load:
    return Load(
        place=StorageRef(location), collection="places", files=(str(path),), app_id="loader", **more
    )


def loaded(spark: SparkSession, location: str, path: Path | str, **more: Any) -> Loaded:
    return load(spark, spec_of(location, path, **more), SilentProgress())


def content(location: str, collection: str = "places") -> dict[str, Any]:
    """Coordinates, if there are some, and properties by id."""
    found = {}
    with naksha.connect(location, app_id="test") as db:
        for each in db[collection].query():
            properties = dict(each["properties"])
            del properties["@ns:com:here:xyz"]
            geometry = each.get("geometry") or {}
            found[each["id"]] = (geometry.get("coordinates"), properties)
    return found


def rejects_of(done: Loaded) -> list[dict[str, Any]]:
    """The lines of the file with what was rejected."""
    assert done.rejects is not None
    return [json.loads(line) for line in Path(done.rejects).read_text().splitlines()]

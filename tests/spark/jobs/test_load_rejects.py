"""Rejected records and their files, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import shapely
from pyspark.sql import Row

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.spark.jobs.frame import Silent
from naksha.spark.jobs.loading.checking import REJECTED, Checked, Checker, keep_rejected
from naksha.spark.jobs.loading.files import files_of
from naksha.spark.jobs.loading.geojson import RECORDS
from naksha.spark.jobs.loading.staging import Staging
from tests.spark.jobs.loads import spec_of
from tests.spark.jobs.town import Town


def batch_of(*records: dict[str, Any]) -> pa.RecordBatch:
    """Records, which have nothing but what is told."""
    places = [pa.field("wkt", pa.string()), *(pa.field(n, pa.float64()) for n in ("lon", "lat"))]
    given = [{"source": "x", "line": n, "adjusted": False, **r} for n, r in enumerate(records, 1)]
    return pa.RecordBatch.from_pylist(given, schema=pa.schema([*RECORDS, *places]))


def checked(*records: dict[str, Any], **settings: Any) -> Checked:
    return Checker(CollectionInfo(id="places", **settings), None).check(batch_of(*records))


def record_of(found: Checked) -> dict[str, Any]:
    (told,) = found.rejected.to_pylist()
    made: dict[str, Any] = json.loads(told["record"])
    return made


def test_a_record_is_told_with_its_geometry_and_all_else() -> None:
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


def test_what_is_told_of_a_record_has_an_end() -> None:
    long, length_max = "x" * 100_000, limits.REJECT_LENGTH_MAX
    (told,) = checked({"id": long, "properties": "{}"}).rejected.to_pylist()
    mark = " … (cut here: it has 100000 characters)"
    assert told["id"] == long[:length_max] + mark
    assert told["record"].startswith('{"type":"Feature","id":"xxx')
    assert sum(len(str(text)) for text in told.values()) < 4 * length_max
    row = {"problem": f"x: cannot be read as the wanted type: {long}", "record": long}
    (told,) = checked(row).rejected.to_pylist()
    assert told["record"] == long[:length_max] + mark
    assert told["reason"].endswith("characters)")
    (told,) = checked({"problem": "p", "record": long[:length_max]}).rejected.to_pylist()
    assert told["record"] == long[:length_max]


def test_many_that_are_wrong_are_told_each() -> None:
    rows = [{"id": f"f{n}", "properties": "{" if n % 3 else "{}"} for n in range(700)]
    found = checked(*rows)
    assert found.rejected.column("line").to_pylist() == [n + 1 for n in range(700) if n % 3]
    assert sum(map(len, found.features)) == sum(part.num_rows for part in found.given) == 234


def kept(**spec: Any) -> Path:
    row = Row(**{**dict.fromkeys(REJECTED.names), "source": "x", "reason": "r"})
    file = keep_rejected(spec_of("file:x", **spec), [row], Silent())
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


def test_a_task_that_has_rejected_too_many_reads_no_more(small_town: Town) -> None:
    checker = Checker(CollectionInfo(id="places"), None)
    left = iter([batch_of({"id": f"f{n}"}, {"properties": "{"}) for n in range(9)])
    told = list(Staging(small_town.place, "j", checker, 2)(left))
    reasons = [reason for batch in told for reason in batch.column("reason").to_pylist()]
    assert len(list(filter(None, reasons))) == 3
    assert len(list(left)) == 6

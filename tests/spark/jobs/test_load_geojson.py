"""GeoJSON as records, without Spark: ids, lines, and bytes that are no text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import Piece, format_of, pieces_of
from naksha.spark.jobs.loading.geojson import read_document, read_lines, records_of
from naksha.spark.jobs.loading.spec import Format
from tests.spark.jobs.loads import feature, spec_of


def given(*ids: str) -> list[tuple[int, bytes]]:
    """Features with ids as JSON has them, each in a line."""
    return [(n, b'{"type":"Feature","id":%b}' % id_.encode()) for n, id_ in enumerate(ids, 1)]


def test_integer_ids_are_exact() -> None:
    ids = ["9007199254740993", "-9223372036854775807", "1.0", "1e3", "2.5", '"007"', "null"]
    records = records_of("x", given(*ids))
    assert records.column("id").to_pylist() == [*ids[:2], "1", "1000", "2.5", "007", None]
    assert records.column("problem").null_count == len(ids)


def test_ids_that_nobody_could_keep_exact_are_rejected() -> None:
    records = records_of("x", given("9223372036854775808", "9007199254740993.0", "1e20", "1"))
    problems = records.column("problem").to_pylist()
    assert [problem and problem.partition(":")[0] for problem in problems] == ["id"] * 3 + [None]


def test_bytes_that_are_no_text_and_deep_nests_are_rejected_with_their_lines(
    tmp_path: Path,
) -> None:
    good = json.dumps(feature("a", 1, 2, n="ä"), ensure_ascii=False).encode()
    places = [b'"type":"Feature","id":"\xff"', b'"type":"Feature","properties":{"n":"\xff"}']
    places += [b'"\xff":1,"type":"Feature"', b'"type":"Feature","geometry":"\xff"']
    deep = b'{"type":"Feature","properties":' + b"[" * 9999 + b"]" * 9999 + b"}"
    bodies = [good, *(b"{%b}" % place for place in places), deep, good]
    (tmp_path / "a.geojsonl").write_bytes(b"\n".join(bodies))
    document = b'{"type":"FeatureCollection","features":[\n%b\n]}'
    (tmp_path / "a.geojson").write_bytes(document % b",\n".join([*bodies[:5], good]))
    (piece,) = pieces_of(str(tmp_path / "a.geojsonl"))
    (records,) = read_lines(piece)
    assert broken_lines(records) == [2, 3, 4, 5, 6]
    assert records.column("record").to_pylist()[1].count("\ufffd") == 1
    (records,) = read_document(Piece(str(tmp_path / "a.geojson")))
    assert broken_lines(records) == [3, 4, 5, 6]


def broken_lines(records: pa.RecordBatch) -> list[Any]:
    rows = records.select(["line", "problem"]).to_pylist()
    assert all(row["problem"] is None or "GeoJSON" in row["problem"] for row in rows)
    return [row["line"] for row in rows if row["problem"] is not None]


def test_a_document_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_bytes(b'{"type":"\xff"}')
    assert format_of(spec_of("file:x", path), [str(path)]) is Format.GEOJSON
    with pytest.raises(InvalidArgument, match="is no GeoJSON"):
        list(read_document(Piece(str(path))))


def test_the_same_feature_again_has_a_line_of_its_own(tmp_path: Path) -> None:
    text = json.dumps(feature("a", 1, 2), indent=1)
    path = tmp_path / "a.geojson"
    path.write_text('{"type":"FeatureCollection","features":[\n' + ",\n".join([text] * 3) + "]}")
    (records,) = read_document(Piece(str(path)))
    height = text.count("\n") + 1
    assert records.column("line").to_pylist() == [2, 2 + height, 2 + 2 * height]

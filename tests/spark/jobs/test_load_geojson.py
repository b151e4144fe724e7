"""GeoJSON as records, without Spark: ids, lines, and bytes that are not text."""

from __future__ import annotations

import codecs
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shapely

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading import references
from naksha.spark.jobs.loading.files import FilePiece, format_of, pieces_of
from naksha.spark.jobs.loading.geojson import crs_in, read_document, read_lines, records_of
from naksha.spark.jobs.loading.spec import FileFormat
from tests.spark.jobs.loads import feature, spec_of


def given(*ids: str) -> list[tuple[int, bytes]]:
    """Features with ids as JSON has them, each in a line."""
    return [(n, b'{"type":"Feature","id":%b}' % id_.encode()) for n, id_ in enumerate(ids, 1)]


def test_integer_ids_are_exact() -> None:
    ids = ["9007199254740993", "-9223372036854775807", "1.0", "1e3", "2.5", '"007"', "null"]
    records = records_of("x", given(*ids))
    assert records.column("id").to_pylist() == [*ids[:2], "1", "1000", "2.5", "007", None]
    assert records.column("problem").null_count == len(ids)


def test_ids_without_an_exact_representation_are_rejected() -> None:
    records = records_of("x", given("9223372036854775808", "9007199254740993.0", "1e20", "1"))
    problems = records.column("problem").to_pylist()
    assert [problem and problem.partition(" ")[0] for problem in problems] == ["id"] * 3 + [None]


def test_invalid_utf_8_and_deep_nesting_are_rejected_with_their_lines(
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
    (records,) = read_document(FilePiece(str(tmp_path / "a.geojson")))
    assert broken_lines(records) == [3, 4, 5, 6]


def broken_lines(records: pa.RecordBatch) -> list[Any]:
    rows = records.select(["line", "problem"]).to_pylist()
    assert all(row["problem"] is None or "GeoJSON" in row["problem"] for row in rows)
    return [row["line"] for row in rows if row["problem"] is not None]


def test_a_document_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_bytes(b'{"type":"\xff"}')
    assert format_of(spec_of("file:x", path), [str(path)]) is FileFormat.GEOJSON
    with pytest.raises(InvalidArgument, match="is not valid GeoJSON"):
        list(read_document(FilePiece(str(path))))


def test_the_same_feature_again_has_a_line_of_its_own(tmp_path: Path) -> None:
    text = json.dumps(feature("a", 1, 2), indent=1)
    path = tmp_path / "a.geojson"
    path.write_text('{"type":"FeatureCollection","features":[\n' + ",\n".join([text] * 3) + "]}")
    (records,) = read_document(FilePiece(str(path)))
    height = text.count("\n") + 1
    assert records.column("line").to_pylist() == [2, 2 + height, 2 + 2 * height]


READERS: dict[str, Callable[[FilePiece], Iterator[pa.RecordBatch]]] = {
    "a.geojsonl": read_lines,
    "a.geojson": read_document,
}


def written(path: Path, texts: list[str], before: bytes = b"") -> Path:
    """Features in lines, or as a document, as the name says."""
    text = "\n".join(texts)
    if path.suffix == ".geojson":
        text = '{"type":"FeatureCollection","features":[\n' + ",\n".join(texts) + "]}"
    path.write_bytes(before + text.encode())
    return path


def peak_of(batches: Iterator[pa.RecordBatch]) -> tuple[int, list[int]]:
    """How much memory it took to read them, and how many records each has."""
    tracemalloc.start()
    try:
        sizes = [batch.num_rows for batch in batches]
        return tracemalloc.get_traced_memory()[1], sizes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", READERS)
def test_long_records_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "LOAD_CHUNK_BYTES", 200_000)
    path = written(
        tmp_path / name, [json.dumps(feature(f"f{n}", 1, 2, x="x" * 90_000)) for n in range(100)]
    )
    peak, sizes = peak_of(READERS[name](FilePiece(str(path), 0, path.stat().st_size)))
    assert (sum(sizes), set(sizes[:-1])) == (100, {3})
    assert peak < 3_000_000


def test_nothing_is_read_beyond_the_end_of_a_piece(tmp_path: Path) -> None:
    text = json.dumps(feature("a", 1, 2, x="x" * 90_000)) + "\n"
    path = tmp_path / "a.geojsonl"
    path.write_text(text * 100)
    peak, sizes = peak_of(read_lines(FilePiece(str(path), 0, 2 * len(text))))
    assert (sizes, peak < 2_000_000) == ([2], True)


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_is_skipped(tmp_path: Path, name: str) -> None:
    texts = [json.dumps(feature(id_, 1, 2)) for id_ in "ab"]
    path = written(tmp_path / name, texts, codecs.BOM_UTF8)
    assert format_of(spec_of("file:x", path), [str(path)]).value.startswith("geojson")
    (records,) = READERS[name](FilePiece(str(path), 0, path.stat().st_size))
    assert records.column("problem").to_pylist() == [None, None]
    assert records.column("id").to_pylist() == ["a", "b"]


def test_lines_are_known_behind_a_byte_order_mark(tmp_path: Path) -> None:
    texts = [json.dumps(feature(id_, 1, 2)) for id_ in "ab"]
    path = tmp_path / "lines.geojson"
    path.write_bytes(codecs.BOM_UTF8 + "\n".join(texts).encode())
    assert format_of(spec_of("file:x", path), [str(path)]) is FileFormat.LINES


def test_a_document_of_one_feature_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(feature("a", 1, 2)).encode())
    (records,) = read_document(FilePiece(str(path)))
    assert records.select(["id", "problem"]).to_pylist() == [{"id": "a", "problem": None}]


def named(name: str) -> dict[str, Any]:
    return {"type": "name", "properties": {"name": name}}


METRES = named("urn:ogc:def:crs:EPSG::3857")


def test_the_reference_system_of_a_document_is_known(tmp_path: Path) -> None:
    def reported(**members: Any) -> str | None:
        path = tmp_path / "a.geojson"
        document = {"type": "FeatureCollection", "features": [feature("a", 1, 2, crs=1)]}
        path.write_bytes(codecs.BOM_UTF8 + json.dumps({**document, **members}).encode())
        return crs_in(str(path))

    assert (reported(), reported(crs=None)) == (None, None)
    assert reported(crs=METRES) == "urn:ogc:def:crs:EPSG::3857"
    link = {"type": "link", "properties": {"href": "http://nowhere"}}
    assert json.loads(reported(crs=link) or "") == link


@pytest.mark.parametrize(
    "name",
    [
        *("CRS84", "CRS:84", "OGC:CRS84", "EPSG:4326", "urn:ogc:def:crs:EPSG::4326"),
        *("urn:ogc:def:crs:OGC:1.3:CRS84", "http://www.opengis.net/def/crs/OGC/1.3/CRS84"),
    ],
)
def test_longitude_and_latitude_have_many_names(name: str) -> None:
    assert references.is_lon_lat(name)


def test_a_feature_with_a_reference_system_of_its_own_is_not_misread() -> None:
    given_ = feature("a", 1, 2)
    features = [
        {**given_, "crs": METRES},
        {**given_, "geometry": {**given_["geometry"], "crs": METRES}},
        {**given_, "crs": named("EPSG:4326"), "more": 1},
    ]
    texts = [(n, json.dumps(each).encode()) for n, each in enumerate(features)]
    reported = records_of("x", texts).select(["problem", "members"]).to_pylist()
    assert [str(each["problem"]).partition(" ")[0] for each in reported] == ["crs", "crs", "None"]
    assert reported[2]["members"] == '{"more":1}'
    # It is that of all features.
    assert records_of("x", texts, "EPSG:3857").column("problem").null_count == 3


def test_numbers_outside_of_degrees_are_unchanged() -> None:
    given_ = [feature("a", 894_000, 6_500_000), {**feature("b", 1, 2), "geometry": {"type": "x"}}]
    texts = [(n, json.dumps(each).encode()) for n, each in enumerate(given_)]
    records = records_of("x", texts, "EPSG:3857")
    point = shapely.from_wkb(records.column("geometry")[0].as_py())
    assert (point.x, point.y) == (894_000, 6_500_000)
    reported = records.column("problem").to_pylist()
    assert reported == [None, "geometry is not a valid GeoJSON geometry"]

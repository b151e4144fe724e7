"""Features in columns: the same as the same features in dicts, and errors that name the row."""

from __future__ import annotations

import math
import struct
from dataclasses import asdict
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.model import features as module
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.feature_columns import check_columns
from naksha.model.features import MARK_3D, NAMESPACE, PreparedFeatures, check_features
from naksha.model.limits import CRID_BYTES_MAX, FEATURE_ID_BYTES_MAX, JSON_DEPTH_MAX, TAGS_MAX
from naksha.spi.arrow import INPUT, as_input
from naksha.testing.models.strategies import features
from naksha.testing.storage.input_batches import given_batch

POINT = shapely.to_wkb(shapely.Point(8.5, 50.25))


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": f"r{n}"} | row for n, row in enumerate(rows)], INPUT)


def only(**row: Any) -> dict[str, Any]:
    prepared = check_columns(batch_of(row))
    assert len(prepared) == 1
    return {name: values[0] for name, values in asdict(prepared).items()}


def refused(first_row: int = 0, **row: Any) -> InvalidArgument:
    """The error about the last of three rows."""
    batch = batch_of({}, {"geometry": POINT}, row)
    with pytest.raises(InvalidArgument) as caught:
        check_columns(batch, first_row=first_row)
    assert caught.value.position == first_row + 2
    str(caught.value).encode()
    return caught.value


def wkb(text: str, **how: Any) -> bytes:
    made: bytes = shapely.to_wkb(shapely.from_wkt(text), **how)
    return made


def comparable(prepared: PreparedFeatures) -> dict[str, list[Any]]:
    columns = asdict(prepared)
    columns["json"] = [msgspec.json.decode(text) for text in columns["json"]]
    return columns


# ---- The same as in dicts ------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(features(), max_size=4, unique_by=lambda each: each["id"]), st.booleans())
def test_columns_are_as_good_as_dicts(made: list[dict[str, Any]], with_prefix: bool) -> None:
    prefix = made[0]["id"][:1] if with_prefix and made else None
    if any(each["id"] == prefix for each in made):
        with pytest.raises(InvalidArgument, match="longer than the id prefix"):
            check_columns(given_batch(made), id_prefix=prefix)
        return
    wanted = check_features(made, id_prefix=prefix)
    if len(wanted) < len(made):  # two are the same without the prefix
        with pytest.raises(InvalidArgument, match="occurs in rows 0 and 1"):
            check_columns(given_batch(made), id_prefix=prefix)
        return
    found = check_columns(given_batch(made), id_prefix=prefix)
    assert comparable(found) == comparable(wanted)


@settings(max_examples=15)
@given(st.lists(features(), min_size=1, max_size=4, unique_by=lambda each: each["id"]))
def test_slices_and_other_types_of_arrow_are_the_same(made: list[dict[str, Any]]) -> None:
    batch = given_batch(made)
    large = batch.cast(pa.schema([pa.field(each.name, large_type(each.type)) for each in INPUT]))
    whole = comparable(check_columns(batch))
    for first in range(len(made)):
        part = comparable(check_columns(as_input(large.slice(first)), first_row=first))
        assert part["ids"] == whole["ids"][first:]
        assert part["tags"] == whole["tags"][first:]
        assert part["json"] == whole["json"][first:]


def large_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.large_list(pa.large_string())
    return pa.large_binary() if pa.types.is_binary(kind) else pa.large_string()


def test_ordinary_rows_never_become_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("an ordinary row was judged")

    monkeypatch.setattr("naksha.model.feature_columns.check_features", fail)
    for text in (
        "POINT (1 2)",
        "POINT Z (1 2 3)",
        "LINESTRING (0 0, 1 1)",
        "MULTIPOINT ((0 0), (1 1))",
        "POLYGON ((0 0, 1 0, 1 1, 0 0), (0 0, 1 0, 1 1, 0 0))",
        "MULTIPOLYGON Z (((0 0 1, 1 0 2, 1 1 3, 0 0 1)))",
        "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3))",
    ):
        row = only(
            geometry=wkb(text),
            properties='{"a": [1, {"b": "ü\\n"}]}',
            members='{"bbox": [1, 2]}',
            tags=["A", "b,c"],
            crid="c",
        )
        assert row["tags"] == ["a", "b", "c"]
    assert only(id=None)["ids"].isalnum()


def test_rows_are_converted_to_features() -> None:
    row = only(
        id="pre:x",
        geometry=wkb("POINT Z (1 2 3)", flavor="extended"),
        properties=' {"n" : 1.50, "n" : 2e0 } ',
        members='{"title":"t"}',
        tags=["One,Two"],
    )
    assert row["json"] == (b'{"type":"Feature","title":"t","id":"pre:x","properties":{"n":2.0}}')
    assert row["wkb"] == wkb("POINT Z (1 2 3)", flavor="iso")
    assert (row["has_z"], row["tags"], row["crid"]) == (True, ["one", "two"], None)


def test_nulls_are_nothing() -> None:
    row = only(id="x", properties="null", members="null")
    assert row["json"] == b'{"type":"Feature","id":"x","properties":{}}'
    assert (row["wkb"], row["qrid"], row["tags"], row["crid"]) == (None, None, None, None)
    assert check_columns(batch_of()).ids == []


def test_columns_override_the_namespace() -> None:
    namespace = {"tags": ["old"], "crid": None, "uuid": "some:state", "version": 7, "action": "X"}
    text = msgspec.json.encode({NAMESPACE: namespace, "a": 1}).decode()
    row = only(properties=text, tags=["New"], crid="mine")
    assert msgspec.json.decode(row["json"])["properties"] == {"a": 1}
    assert (row["tags"], row["crid"]) == (["new"], "mine")
    assert (row["lock_uuid"], row["lock_version"]) == ("some:state", 7)
    assert only(properties=text)["crid"] == ""


def test_properties_come_last_whatever_the_row() -> None:
    rows: list[dict[str, Any]] = [
        {"properties": '{"a":1}', "members": '{"z":1}'},
        {"properties": f'{{"a":1,"{NAMESPACE}":{{}}}}', "members": f'{{"z":1,"{MARK_3D}":true}}'},
        {"id": None, "geometry": wkb("GEOMETRYCOLLECTION (POINT (1 2))")},
        {"members": '{"type":"Feature","z":1}'},
    ]
    for text in check_columns(batch_of(*rows)).json:
        assert [*msgspec.json.decode(text)][-1] == "properties"
        assert b"naksha:3d" not in text


# ---- What is refused, and where ------------------------------------------------------------------

GEOMETRIES = {
    "no WKB": (b"nonsense", "geometry", "not valid WKB"),
    "cut off": (POINT[:-1], "geometry", "not valid WKB"),
    "not closed": (
        struct.pack("<BIII", 1, 3, 1, 4) + struct.pack("<8d", 0, 0, 1, 0, 1, 1, 5, 5),
        "geometry",
        "not valid WKB",
    ),
    "empty": (wkb("POINT EMPTY"), "geometry.coordinates", "2 or 3 numbers"),
    "an empty polygon": (wkb("POLYGON EMPTY"), "geometry.coordinates", "at least 1"),
    "an empty part": (
        wkb("MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), EMPTY)"),
        "geometry.coordinates[1][0]",
        "at least 4",
    ),
    "an empty point": (wkb("MULTIPOINT (EMPTY, (1 2))"), "geometry", "empty part"),
    "a flat ring": (
        wkb("POLYGON ((0 0, 1 1, 0 0))"),
        "geometry.coordinates[0]",
        "at least 4",
    ),
    "not closed in height": (
        wkb("POLYGON Z ((0 0 1, 1 0 1, 1 1 1, 0 0 2))"),
        "geometry.coordinates[0]",
        "differ",
    ),
    "off the earth": (wkb("POINT (181 0)"), "geometry.coordinates[0]", "181"),
    "beyond the pole": (wkb("LINESTRING (0 0, 0 -91)"), "geometry.coordinates[1][1]", "-91"),
    "no number": (
        struct.pack("<BII4d", 1, 2, 2, 0, 0, math.nan, 1),
        "geometry.coordinates[1][0]",
        "finite",
    ),
    "no height": (wkb("POINT Z (1 2 nan)"), "geometry.coordinates[2]", "finite"),
    "no end of height": (
        wkb("LINESTRING Z (0 0 0, 1 1 inf)"),
        "geometry.coordinates[1][2]",
        "finite",
    ),
    "measures": (wkb("POINT M (1 2 3)"), "geometry", "measures"),
    "heights and measures": (wkb("POINT ZM (1 2 3 4)"), "geometry", "measures"),
    "a curve": (
        struct.pack("<BII", 1, 8, 3) + struct.pack("<6d", 0, 0, 1, 1, 2, 0),
        "geometry",
        "is a curve",
    ),
    "another system": (
        shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 3857), include_srid=True),
        "geometry",
        "3857",
    ),
    "mixed heights": (
        wkb("GEOMETRYCOLLECTION (POINT (1 2), POINT Z (1 2 3))"),
        "geometry.geometries[1].coordinates",
        "3 numbers",
    ),
    "deep collections": (
        wkb("GEOMETRYCOLLECTION (" * 9 + "POINT (1 2)" + ")" * 9),
        "geometry" + ".geometries[0]" * 8 + ".geometries",
        "nested",
    ),
}


@pytest.mark.parametrize(("geometry", "field", "message"), GEOMETRIES.values(), ids=GEOMETRIES)
def test_broken_geometries(geometry: bytes, field: str, message: str) -> None:
    error = refused(geometry=geometry)
    assert (error.field, error.feature_id) == (field, "r2")
    assert message in error.message


ROWS: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no object": ({"properties": "[1]"}, "properties", "must be an object, not an array"),
    "no JSON": ({"properties": "{"}, "properties", "not valid JSON"),
    "two values": ({"properties": "{} {}"}, "properties", "not valid JSON"),
    "NaN": ({"properties": '{"a":NaN}'}, "properties", "not valid JSON"),
    "half a character": ({"properties": '{"a":"\\ud800"}'}, "properties", "not valid JSON"),
    "NUL": ({"properties": '{"a":"\\u0000"}'}, "properties.a", "NUL"),
    "NUL in a name": ({"properties": '{"a":{"\\u0000":1}}'}, "properties.a.\\u0000", "NUL"),
    "deep": (
        {"properties": '{"a":' * JSON_DEPTH_MAX + "1" + "}" * JSON_DEPTH_MAX},
        ".".join(["properties", *"a" * (JSON_DEPTH_MAX - 1)]),
        "nested",
    ),
    "very deep": (
        {"properties": '{"a":' * 3000 + "1" + "}" * 3000},
        "properties",
        "not valid JSON",
    ),
    "members that are not an object": ({"members": '"x"'}, "members", "must be an object"),
    "an id among the members": (
        {"members": '{"id":"x"}'},
        "members.id",
        "must be given in the column id, not in members",
    ),
    "another type": ({"members": '{"type":"Road"}'}, "type", "must be 'Feature'"),
    "a namespace that is none": (
        {"properties": f'{{"{NAMESPACE}":1}}', "tags": ["a"]},
        f"properties.{NAMESPACE}",
        "must be an object",
    ),
    "a null among the tags": ({"tags": ["a", None]}, "tags[1]", "must be a string"),
    "too many tags": (
        {"tags": [str(n) for n in range(TAGS_MAX + 1)]},
        "tags",
        "but at most 1000 are allowed",
    ),
    "no crid": ({"crid": ""}, "crid", "must not be empty"),
    "a long crid": (
        {"crid": "x" * (CRID_BYTES_MAX + 1)},
        "crid",
        f"but at most {CRID_BYTES_MAX} are allowed",
    ),
}


@pytest.mark.parametrize(("row", "field", "message"), ROWS.values(), ids=ROWS)
def test_broken_rows(row: dict[str, Any], field: str | None, message: str) -> None:
    error = refused(first_row=1000, **row)
    assert (error.field, error.feature_id) == (field, "r2")
    assert message in error.message


@pytest.mark.parametrize("id_", ["", "a\0b", "ü" * FEATURE_ID_BYTES_MAX])
def test_broken_ids(id_: str) -> None:
    error = refused(id=id_)
    assert (error.field, error.feature_id) == ("id", None)


def test_the_prefix_alone_is_not_an_id() -> None:
    with pytest.raises(InvalidArgument, match="longer than the id prefix"):
        check_columns(batch_of({"id": "p:"}), id_prefix="p:")


def test_an_id_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="The id 'x' occurs in rows 5 and 7") as caught:
        check_columns(batch_of({"id": "x"}, {}, {"id": "p:x"}), id_prefix="p:", first_row=5)
    assert (caught.value.feature_id, caught.value.position) == ("x", 7)


def test_a_feature_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEATURE_BYTES_MAX", 100)
    monkeypatch.setattr("naksha.model.feature_columns.FEATURE_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded) as caught:
        check_columns(batch_of({}, {"properties": msgspec.json.encode({"a": "x" * 99}).decode()}))
    assert (caught.value.feature_id, caught.value.position) == ("r1", 1)


def test_rows_that_are_too_large_only_together_are_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WRITE_BYTES_MAX", 100)
    rows = [{"properties": f'{{"{NAMESPACE}":{{"version":{n}}}}}'} for n in range(10)]
    assert check_columns(batch_of(*rows)).lock_version == list(range(10))


# ---- Batches -------------------------------------------------------------------------------------


def test_columns_that_are_missing_are_null() -> None:
    batch = as_input(pa.RecordBatch.from_pydict({"crid": ["c"], "id": ["x"]}))
    assert batch.schema.equals(INPUT)
    assert check_columns(batch).crid == ["c"]


@pytest.mark.parametrize(
    ("columns", "field"),
    [({"id": ["x"], "name": ["y"]}, "batch"), ({"id": [["x"]]}, "id"), ({"tags": ["x"]}, "tags")],
)
def test_other_columns_are_refused(columns: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        as_input(pa.RecordBatch.from_pydict(columns))
    assert caught.value.field == field


def test_text_that_is_not_utf_8_is_refused() -> None:
    broken = pa.StringArray.from_buffers(
        1, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(b"\xff")
    )
    batch = as_input(pa.RecordBatch.from_arrays([broken], names=["id"]))
    with pytest.raises(InvalidArgument, match="UTF8"):
        check_columns(batch)

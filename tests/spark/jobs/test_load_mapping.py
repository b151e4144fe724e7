"""Mapping of records to features, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.records import records_of
from naksha.spark.jobs.loading.spec import Mapping
from tests.spark.jobs.loads import content, feature, loaded, rejects_of, spec_of
from tests.spark.jobs.town import Town


def bare(id_: str, properties: str) -> str:
    """A feature with properties as JSON may have them, too."""
    return json.dumps(feature(id_, 1, 2)).replace('"properties": {}', f'"properties": {properties}')


def test_properties_other_than_a_plain_object_are_rejected(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    path = tmp_path / "a.geojsonl"
    broken = ['{"n": 1, "n": 2}', "[]", '"text"', "7"]
    texts = [bare(f"b{n}", text) for n, text in enumerate(broken)]
    path.write_text("\n".join([*texts, bare("null", "null"), bare("good", '{"n": "3", "m": 1}')]))
    done = loaded(spark, location, path, mapping=Mapping(rename={"m": "k"}, types={"n": "int"}))
    reported = rejects_of(done)
    assert [each["line"] for each in reported] == [1, 2, 3, 4]
    assert {each["reason"] for each in reported} == {
        "properties must be a JSON object with unique names"
    }
    assert {id_: rest for id_, (_, rest) in content(location).items()} == {
        "null": {},
        "good": {"k": 1, "n": 3},
    }


def test_tags_and_ids_of_geojson_are_what_they_are_without_a_mapping(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "a.geojsonl"
    tags = ['["red", "a, b"]', '"red, green;"', "[]", "7", "null", '{"red": 1}', "true"]
    ids = ["7", "1e3", "9007199254740993", '"[1]"', "null", "[1]", '{"a": 1}', "true", "1e20"]
    texts = [bare("t", f'{{"t": {each}}}') for each in tags]
    texts += [bare("own", f'{{"l\'\\"id": {each}}}') for each in ids]
    path.write_text("\n".join(texts))
    spec = spec_of("file:x", path, mapping=Mapping(id="l'\"id", tags="t"))
    rows = sorted(records_of(spark, spec)[0].collect(), key=lambda row: row.line)
    of_tags, of_ids = rows[: len(tags)], rows[len(tags) :]
    given = [["red", "a, b"], ["red", "green"], [], ["7"], None]
    assert [row.tags for row in of_tags if row.problem is None] == given
    assert [row.id for row in of_ids if row.problem is None] == [
        *("7", "1000", "9007199254740993", "[1]", "own")
    ]
    said = "properties.l'\"id: an id must be a string or a number"
    assert [row.problem for row in of_ids[5:]] == [
        *[said] * 3,
        "properties.l'\"id is too large for a number and must be a string",
    ]
    assert {row.problem for row in of_tags[5:]} == {
        "properties.t: tags must be an array or a string"
    }


def test_names_with_quotes_are_read_as_another_type(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.geojsonl"
    path.write_text(bare("a", '{"l\'n": "5", "l\'x": "x"}'))
    spec = spec_of("file:x", path, mapping=Mapping(types={"l'n": "int"}, drop=("l'x",)))
    (row,) = records_of(spark, spec)[0].collect()
    assert (row.problem, row.properties) == (None, '{"l\'n":5}')


def test_a_property_that_would_get_the_name_of_another_one_is_rejected(
    spark: SparkSession, tmp_path: Path, small_town: Town
) -> None:
    location = small_town.place.location
    path = tmp_path / "a.geojsonl"
    given = [
        feature("both", 1, 2, a=1, b=2),
        feature("typed", 1, 2, n="1", count=2),
        feature("two", 1, 2, c=1, d=2),
        feature("swapped", 1, 2, x=1, y=2, a=3),
        feature("one", 1, 2, d=2, b=4, gone=5),
    ]
    path.write_text("\n".join(map(json.dumps, given)))
    mapping = Mapping(
        rename={"a": "b", "n": "count", "c": "e", "d": "e", "x": "y", "y": "x", "b0": "gone"},
        types={"n": "int"},
        drop=("gone",),
    )
    done = loaded(spark, location, path, mapping=mapping)
    reasons = {each["id"]: each["reason"] for each in rejects_of(done)}
    assert reasons.keys() == {"both", "typed", "two"}
    assert reasons["both"] == "properties.a: cannot be renamed to 'b', which already exists"
    assert reasons["typed"] == "properties.n: cannot be renamed to 'count', which already exists"
    assert reasons["two"].startswith("properties.c: cannot be renamed to 'e'")
    found = {id_: rest for id_, (_, rest) in content(location).items()}
    assert found == {"swapped": {"y": 1, "x": 2, "b": 3}, "one": {"e": 2, "b": 4}}


def test_a_column_that_would_get_the_name_of_another_one_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,lon,lat,a,b\nx,1,2,3,4\n")
    (tmp_path / "a.geojsonl").write_text(json.dumps(feature("a", 1, 2)))

    def refused(name: str, mapping: Mapping) -> str:
        with pytest.raises(InvalidArgument) as error:
            records_of(spark, spec_of("file:x", tmp_path / name, mapping=mapping))
        assert error.value.field == "mapping.rename"
        return error.value.message

    said = refused("a.csv", Mapping(rename={"a": "b"}))
    assert said.startswith("The columns 'b' and 'a' would both become the property 'b';")
    for name in ("a.csv", "a.geojsonl"):
        said = refused(name, Mapping(rename={"a": "k"}, constants={"k": 1}))
        assert said.startswith("The column 'a' cannot be renamed to 'k', which is a constant")
    records_of(
        spark,
        spec_of("file:x", tmp_path / "a.csv", mapping=Mapping(rename={"a": "b"}, drop=("b",))),
    )


def test_constants_of_the_mapping_override_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,lon,lat,a,b\nx,1,2,3,4\n")
    spec = spec_of("file:x", tmp_path / "a.csv", mapping=Mapping(constants={"b": 5}))
    (row,) = records_of(spark, spec)[0].collect()
    assert row.properties == '{"a":"3","b":5}'


def test_numbers_that_json_has_not(spark: SparkSession, tmp_path: Path, small_town: Town) -> None:
    location, nan, inf = small_town.place.location, float("nan"), float("inf")
    columns = {
        "id": ["good", "nan", "inf", "deep"],
        "x": [1.5, nan, -inf, None],
        "f": pa.array([0.5, nan, 1, 1], pa.float32()),
        "many": [[1.5], [nan, 2.5], None, [inf]],
        "deep": [{"a": {"b": 1.5}}, {"a": {"b": nan}}, {"a": None}, None],
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = loaded(spark, location, tmp_path / "a.parquet")
    assert {id_: rest for id_, (_, rest) in content(location).items()} == {
        "good": {"x": 1.5, "f": 0.5, "many": [1.5], "deep": {"a": {"b": 1.5}}},
        "nan": {"x": None, "f": None, "many": [None, 2.5], "deep": {"a": {"b": None}}},
    }
    reasons = {each["id"]: each["reason"] for each in rejects_of(done)}
    assert reasons == {
        "inf": "x: The value is infinite, which JSON cannot represent",
        "deep": "many: The value is infinite, which JSON cannot represent",
    }


def test_ids_of_floating_numbers_are_whole_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """Programs have them where some ids are missing."""
    doubles = [12345678.0, 2.0, float("nan"), None, -0.0, 2.0**53 - 1, 2.0**53, 1.5, float("inf")]
    floats = pa.array([1.0, 2.0**24], pa.float32())
    pyarrow.parquet.write_table(pa.table({"id": doubles, "n": [1.5] * 9}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"id": floats}), tmp_path / "b.parquet")
    reported = []
    for name in ("a", "b"):
        rows = records_of(spark, spec_of("file:x", tmp_path / f"{name}.parquet"))[0].collect()
        reported += [row.problem or row.id for row in rows]
    said = "id is not an exact integer: {}; use a string".format
    assert reported == [
        *("12345678", "2", None, None, "0", "9007199254740991"),
        *(said(number) for number in ("9.007199254740992E15", "1.5", "Infinity")),
        *("1", said("1.6777216E7")),
    ]


def test_types_that_spark_does_not_know_are_refused_by_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,p\na,1\n")
    (tmp_path / "a.geojsonl").write_text(bare("a", '{"p": 1}'))
    for name in ("a.csv", "a.geojsonl"):
        for type_ in ("foo", "", "array<"):
            mapping = Mapping(types={"p": type_})
            with pytest.raises(
                InvalidArgument, match="The mapping gives column 'p' the type"
            ) as error:
                records_of(spark, spec_of("file:x", tmp_path / name, mapping=mapping))
            assert error.value.field == "mapping.types.p"


def test_texts_that_are_read_as_such_numbers(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\na,NaN\nb,-Infinity\nc,2.5\n")
    texts = [json.dumps(feature(x, 1, 2, x=x)) for x in ("NaN", "Infinity", "2.5")]
    (tmp_path / "a.geojsonl").write_text("\n".join(texts))

    def read(name: str) -> list[tuple[str | None, str | None]]:
        mapping = Mapping(types={"x": "double"})
        rows = records_of(spark, spec_of("file:x", tmp_path / name, mapping=mapping))[0].collect()
        return [(row.properties, row.problem) for row in sorted(rows, key=lambda row: row.line)]

    nothing, infinite, number = read("a.csv")
    assert (nothing, number) == (('{"x":null}', None), ('{"x":2.5}', None))
    assert infinite[1] == "x: The value is infinite, which JSON cannot represent"
    *wrong, number = read("a.geojsonl")
    assert number == ('{"x":2.5}', None)
    assert {(problem or "").partition(": ")[0] for _, problem in wrong} == {"properties.x"}

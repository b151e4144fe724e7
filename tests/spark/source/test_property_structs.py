"""Properties as structs and variants: equal to Spark's own conversion, with filters pushed down."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql import functions as sf
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import naksha.spark
from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.spark.source import property_structs as properties
from naksha.spark.source.property_structs import _at_once, structs_of
from naksha.spark.source.pushdown import pushed
from naksha.spi.locations import path_of
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import SUITE_CHECKS_OFF, published
from tests.spark.conftest import TownMaker
from tests.spark.source.test_pushdown import holds
from tests.spark.towns import Town

COLLECTION = "roads"
SCHEMA = "speed INT, length DOUBLE, count BIGINT, name STRING, oneway BOOLEAN, at STRUCT<a: INT>"
VALUES: list[dict[str, Any]] = [
    {},
    {"speed": 30, "length": 1.5, "count": 2**53 + 1, "name": "main", "oneway": True},
    {"speed": 50, "length": 7, "count": 2**63 - 1, "name": "tower", "oneway": False, "other": [1]},
    {"speed": 50, "at": {"a": 1, "b": 2}, "name": 'a "name"\n'},
    {"speed": 50.0, "length": 2**53 + 1, "at": {"a": 1.5}},
    {"speed": 2**31, "length": "long", "count": 2**63, "name": 50, "oneway": 1, "at": [1]},
    {"speed": "50", "length": None, "count": -1, "name": True, "oneway": "true", "at": {"a": None}},
    {"speed": None, "name": {"b": [1, "x"], "a": {}}, "at": {}},
    {"speed": True, "length": 0.1, "name": "50", "at": 3},
    {"speed": -(2**31), "length": -0.0, "count": 1.0, "name": ""},
]


@pytest.fixture(scope="module", params=["file", "postgresql"])
def roads(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage with roads, whose properties are of all types."""

    async def fill(storage: Storage) -> None:
        features = [
            {"type": "Feature", "id": f"r{n}", "geometry": None, "properties": values}
            for n, values in enumerate(VALUES)
        ]
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id=COLLECTION))
            await session.create(COLLECTION, features)
        await published(storage)

    with town_maker(request.param) as made:
        made.call(fill)
        yield made


def arrow_type(schema: str) -> pa.StructType:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return pa.struct(list(to_arrow_schema(found)))


def read(spark: SparkSession, roads: Town, properties: str, **more: Any) -> Any:
    return naksha.spark.features(
        spark,
        roads.location,
        COLLECTION,
        columns=["id", "properties"],
        properties=properties,
        **more,
    )


# ---- What is read --------------------------------------------------------------------------------


def test_structs_are_what_spark_makes_of_the_json(spark: SparkSession, roads: Town) -> None:
    table = read(spark, roads, SCHEMA)
    texts = read(spark, roads, "json").select("id", sf.from_json("properties", SCHEMA).alias("p"))
    wanted = {row.id: row.p.asDict(recursive=True) for row in texts.collect()}
    found = {row.id: row.properties.asDict(recursive=True) for row in table.collect()}
    assert found == wanted


def test_properties_of_one_kind_are_parsed_at_once(spark: SparkSession) -> None:
    type_ = arrow_type(SCHEMA)
    for rows in (VALUES[:4], VALUES):
        texts = pa.array([json.dumps(row) for row in rows], pa.string())
        assert (_at_once(texts, type_) is not None) == (rows == VALUES[:4])
        one_by_one = [structs_of(texts.slice(n, 1), type_)[0] for n in range(len(rows))]
        assert structs_of(texts, type_) == pa.array(one_by_one, type_)
    assert len(structs_of(pa.array([], pa.string()), type_)) == 0


def test_only_columns_that_do_not_fit_are_read_row_by_row(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_so: list[str] = []
    value_of = properties._value

    def value(text: bytes, type_: pa.DataType) -> Any:
        read_so.append(text.decode())
        return value_of(text, type_)

    monkeypatch.setattr(properties, "_value", value)
    rows = [{"speed": 50, "name": "a", "length": 1.5}, {"speed": "fast", "name": "b"}]
    texts = pa.array([json.dumps(row) for row in rows], pa.string())
    found = structs_of(texts, arrow_type("name STRING, speed INT, length DOUBLE")).to_pylist()
    assert found == [
        {"name": "a", "speed": 50, "length": 1.5},
        {"name": "b", "speed": None, "length": None},
    ]
    assert read_so == ["50", '"fast"']


def test_variants_have_every_property_as_it_is(spark: SparkSession, roads: Town) -> None:
    table = read(spark, roads, "variant").select("id", sf.to_json("properties").alias("text"))
    assert {row.id: json.loads(row.text) for row in table.collect()} == {
        f"r{n}": values for n, values in enumerate(VALUES)
    }
    table = read(spark, roads, "variant")
    fast = table.where("try_variant_get(properties, '$.speed', 'int') >= 50")
    assert {"r2", "r3"} <= {row.id for row in fast.collect()}
    nested = table.selectExpr("id", "variant_get(properties, '$.at.b', 'int') AS b")
    assert {row.id: row.b for row in nested.collect() if row.b is not None} == {"r3": 2}


def test_types_that_only_spark_knows_are_parsed_by_spark(spark: SparkSession, roads: Town) -> None:
    table = read(spark, roads, "other ARRAY<INT>, speed INT")
    assert {row.id: row.properties.other for row in table.collect()}["r2"] == [1]
    reader = spark.read.format("naksha").schema("id string, properties struct<other: array<int>>")
    with pytest.raises(AnalysisException, match="The struct 'properties' must consist of"):
        reader.options(storage=roads.location, collection=COLLECTION).load().collect()


# ---- Filters on properties -----------------------------------------------------------------------

HANDED_ON = {
    "properties.speed = 50": {"r2", "r3", "r4"},
    "properties.speed > 30": {"r2", "r3", "r4", "r5"},
    "properties.speed IN (30, 31)": {"r1"},
    "properties.speed <=> 30": {"r1"},
    "properties.length <= 1.5D": {"r1", "r8", "r9"},
    "properties.count = 9007199254740993L": {"r1"},
    "properties.name = 'tower'": {"r2"},
    "properties.name LIKE 'to%'": {"r2"},
    "properties.oneway": {"r1"},
    "properties.at.a = 1": {"r3"},
    "properties.at.a >= 1": {"r3", "r4"},
}
"""Rows that the storage returns for each filter: more than Spark keeps, but not all."""
LEFT = (
    "properties.name = '50'",
    "properties.name LIKE 't%'",
    "properties.name > 'a'",
    "properties.length > 1e16D",
    "properties.speed IS NULL",
    "properties.speed <> 50",
)


def scanned(table: Any) -> int:
    """How many rows came from the storage."""
    scan = table._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())


@pytest.fixture(scope="module")
def kept(spark: SparkSession, roads: Town) -> dict[str, set[str]]:
    """Rows that Spark keeps for each condition, out of all rows."""
    texts = read(spark, roads, "json")
    parsed = texts.withColumn("properties", sf.from_json("properties", SCHEMA))
    conditions = [*HANDED_ON, *LEFT]
    rows = parsed.selectExpr("id", *conditions).collect()
    return {each: {row.id for row in rows if row[n]} for n, each in enumerate(conditions, 1)}


def test_the_storage_tests_properties(
    spark: SparkSession, roads: Town, kept: dict[str, set[str]]
) -> None:
    for condition, given_ in HANDED_ON.items():
        table = read(spark, roads, SCHEMA, pushFilters="true").where(condition)
        found = {row.id for row in table.collect()}
        assert found == kept[condition], condition
        assert scanned(table) == len(given_), condition
        assert set() < found <= given_, condition


@pytest.mark.long
def test_filters_with_other_semantics_are_left_to_spark(
    spark: SparkSession, roads: Town, kept: dict[str, set[str]]
) -> None:
    for condition in LEFT:
        table = read(spark, roads, SCHEMA, pushFilters="true").where(condition)
        assert {row.id for row in table.collect()} == kept[condition], condition


VALUE = {
    "speed": st.sampled_from([0, 29, 30, 50, 2**31 - 1, -(2**31)]),
    "length": st.sampled_from([-1.0, -0.0, 0.1, 1.5, 7.0, 2.0**53, 1e300]),
    "count": st.sampled_from([-1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]),
    "name": st.sampled_from(["", "main", "tower", "to", "t", "true", "50", "5", "{", "a\0", "x"]),
    "oneway": st.booleans(),
    "at.a": st.sampled_from([0, 1, 2]),
}
COMPARED = (ds.EqualTo, ds.EqualNullSafe, ds.In, ds.IsNull, ds.IsNotNull)
ORDERED = (ds.LessThan, ds.LessThanOrEqual, ds.GreaterThan, ds.GreaterThanOrEqual)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """A filter on a property."""
    name = draw(st.sampled_from([*VALUE]))
    kinds: list[Any] = [*COMPARED, *(ORDERED if name != "oneway" else ())]
    kind = draw(st.sampled_from([*kinds, *([ds.StringStartsWith] if name == "name" else [])]))
    path, value = ("properties", *name.split(".")), VALUE[name]
    made: Filter
    if kind in (ds.IsNull, ds.IsNotNull):
        made = kind(path)
    elif kind is ds.In:
        made = ds.In(path, tuple(draw(st.lists(value | st.none(), min_size=1, max_size=3))))
    else:
        made = kind(path, draw(value | st.none() if kind is ds.EqualNullSafe else value))
    return ds.Not(made) if draw(st.integers(0, 3)) == 0 else made


def flat(filter_: Any) -> Any:
    """The same, on a column."""
    if isinstance(filter_, ds.Not):
        return ds.Not(flat(filter_.child))
    return dataclasses.replace(filter_, attribute=(".".join(filter_.attribute[1:]),))


DIGITS = (
    *("0.1", "0.1000000000000000055", "0.09999999999999999999", "-0.1000000000000000055"),
    *("4503599627370497.00001", "4503599627370496.99999", "1e-400", "0", "1"),
)
"""Numbers in JSON that some program has written by itself."""
DOUBLES = sorted({float(text) for text in DIGITS})


def write_by_sql(town: Town, statements: list[str]) -> None:
    """Write with plain SQL, without the library."""
    if town.location.startswith("file:"):
        with contextlib.closing(sqlite3.connect(path_of(town.location))) as file:
            for statement in statements:
                file.execute(statement)
                file.commit()
        return

    async def write(_: Storage) -> None:
        connection = await asyncpg.connect(town.location)
        await connection.execute("SET search_path = naksha, public")
        async with connection.transaction():
            await connection.execute("SELECT naksha_tx_start('x')")
            for statement in statements:
                await connection.execute(statement)
        await connection.close()

    town.call(write)


def test_a_double_is_found_whatever_its_digits(roads: Town) -> None:
    info = CollectionInfo(id="digits")
    roads.call(lambda s: s.run(lambda w: w.create_collection(info), "test"))
    texts = [f'{{"id": "d{n}", "properties": {{"d": {text}}}}}' for n, text in enumerate(DIGITS)]
    into, values = "INSERT INTO digits (jsondata)", ""
    if roads.location.startswith("file:"):
        into, values = "INSERT INTO feature (collection, jsondata)", "'digits', "
    write_by_sql(roads, [f"{into} VALUES ({values}'{text}')" for text in texts])
    kinds = (ds.EqualTo, *ORDERED)
    given_ = [kind(("properties", "d"), value) for kind in kinds for value in DOUBLES]
    for each in [*given_, ds.In(("properties", "d"), (0.1, 1.0))]:
        query, left = pushed(Query(), [each])
        assert left == [each]
        assert query.where is not None

        async def ask(storage: Storage, query: Query = query) -> set[str]:
            return {state.id async for state in storage.states("digits", query)}

        found = roads.call(ask)
        for n, text in enumerate(DIGITS):
            assert f"d{n}" in found or not holds(flat(each), {"d": float(text)}), (each, text)
        assert not isinstance(each, ds.EqualTo) or len(found) < 4


@given(case=st.lists(filters(), min_size=1, max_size=3))
@settings(max_examples=200, suppress_health_check=SUITE_CHECKS_OFF)
def test_no_feature_is_lost_when_filters_are_handed_on(
    spark: SparkSession, roads: Town, case: list[Filter]
) -> None:
    texts = pa.array([json.dumps(row) for row in VALUES], pa.string())
    query, left = pushed(Query(), case)

    async def ask(storage: Storage) -> set[str]:
        return {state.id async for state in storage.states(COLLECTION, query)}

    given_ = roads.call(ask)
    for n, row in enumerate(structs_of(texts, arrow_type(SCHEMA)).to_pylist()):
        columns = {**row, "at.a": (row["at"] or {}).get("a")}
        is_kept = f"r{n}" in given_ and all(holds(flat(each), columns) for each in left)
        assert is_kept == all(holds(flat(each), columns) for each in case)

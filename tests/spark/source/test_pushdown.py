"""Pushdown of Spark's filters: equal results, including nulls, and no filter left to Spark."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import CaseInsensitiveDict, Filter

from naksha.model import limits
from naksha.model.query import Bbox, Query, States
from naksha.spark.source.columns import READ, schema_of
from naksha.spark.source.pushdown import pushed
from naksha.spark.source.read import FeatureReader, SplitPartition
from naksha.spark.source.source import NakshaSource
from naksha.spi.arrow import COLUMNS
from naksha.testing.storage.suite_support import SUITE_CHECKS_OFF
from tests.spark.towns import Town

ALL = Query(states=States.ALL)
COMPARED: dict[type[Filter], tuple[str, Callable[[Any, Any], bool]]] = {
    ds.EqualTo: ("{} = {}", operator.eq),
    ds.LessThan: ("{} < {}", operator.lt),
    ds.LessThanOrEqual: ("{} <= {}", operator.le),
    ds.GreaterThan: ("{} > {}", operator.gt),
    ds.GreaterThanOrEqual: ("{} >= {}", operator.ge),
    ds.StringStartsWith: ("startswith({}, {})", str.startswith),
    ds.StringEndsWith: ("endswith({}, {})", str.endswith),
    ds.StringContains: ("contains({}, {})", operator.contains),
}
"""Comparisons as Spark writes them, and what they mean for values that are not null."""
TEXT_ONLY = (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)
TEXTS = [f.name for f in COLUMNS if f.type == pa.string() and f.name not in ("feature", "members")]
NUMBERS = [f.name for f in COLUMNS if f.type == pa.int64()]
EDGES = ["west", "south", "east", "north"]
OTHERS = ["geometry", "tags", "members"]


def holds(filter_: Any, row: dict[str, Any]) -> bool | None:
    """Whether a filter is true of a row, by Spark's logic of three values."""
    if isinstance(filter_, ds.Not):
        inner = holds(filter_.child, row)
        return None if inner is None else not inner
    found = row[filter_.attribute[0]]
    match filter_:
        case ds.IsNull():
            return found is None
        case ds.IsNotNull():
            return found is not None
        case ds.EqualNullSafe(_, value):
            return bool(found == value)
        case ds.In(_, values):
            known = found is not None and found in [v for v in values if v is not None]
            return True if known else None if found is None or None in values else False
    if found is None or filter_.value is None:
        return None
    return COMPARED[type(filter_)][1](found, filter_.value)


def sql_of(filter_: Any) -> str:
    """A filter as a condition."""
    if isinstance(filter_, ds.Not):
        return f"NOT ({sql_of(filter_.child)})"
    name = filter_.attribute[0]
    match filter_:
        case ds.IsNull():
            return f"{name} IS NULL"
        case ds.IsNotNull():
            return f"{name} IS NOT NULL"
        case ds.EqualNullSafe(_, value):
            return f"{name} <=> {literal(name, value)}"
        case ds.In(_, values):
            return f"{name} IN ({', '.join(literal(name, value) for value in values)})"
    return COMPARED[type(filter_)][0].format(name, literal(name, filter_.value))


def literal(name: str, value: Any) -> str:
    kind = "BIGINT" if name in NUMBERS else "DOUBLE" if name in EDGES else "STRING"
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind != "STRING":
        return f"CAST('{value}' AS {kind})"
    return f"decode(X'{value.encode().hex()}', 'UTF-8')"


def values(name: str, there: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Some that are there, and others."""
    known = st.sampled_from(there)
    if name in NUMBERS:
        far = st.sampled_from([0, -1, limits.INT8_MAX, -limits.INT8_MAX - 1])
        return known | known.map(lambda n: n + 1) | known.map(lambda n: n - 1) | far
    if name in EDGES:
        return known | st.sampled_from([-200.0, -180.0, 0.0, 5.0, 8.5, 180.0, 1e300])
    return known | known.map(lambda text: text[:3]) | st.sampled_from(["", "nobody", "a\0", "ü'"])


@st.composite
def filters(draw: st.DrawFn, rows: list[dict[str, Any]]) -> Filter:
    """A filter of any kind on any column."""
    name = draw(st.sampled_from([*TEXTS, *NUMBERS, *EDGES, *EDGES, *OTHERS]))
    path = (name,)
    kinds = [each for each in COMPARED if name in TEXTS or each not in TEXT_ONLY]
    more: list[type[Filter]] = [ds.EqualNullSafe, ds.In, ds.IsNull, ds.IsNotNull]
    kind: Any = draw(st.sampled_from(more[2:] if name in OTHERS else [*kinds, *more]))
    there = (
        sorted({row[name] for row in rows if row[name] is not None}) if name not in OTHERS else []
    )
    some = values(name, there or [0 if name in NUMBERS else "x"])
    made: Filter
    if kind in (ds.IsNull, ds.IsNotNull):
        made = kind(path)
    elif kind is ds.In:
        made = ds.In(path, tuple(draw(st.lists(some | st.none(), min_size=1, max_size=4))))
    else:
        made = kind(path, draw(some | st.none() if kind is ds.EqualNullSafe else some))
    return ds.Not(made) if draw(st.integers(0, 2)) == 0 else made


def check(town: Town, rows: list[dict[str, Any]], case: list[Filter]) -> None:
    """Rows of the storage, filtered by the remaining filters, equal those that Spark selects."""
    query, left = pushed(ALL, case)
    assert all(any(one is each for each in case) for one in left)
    given_ = {state.uuid for state in town.states(query)}
    got = [r["uuid"] for r in rows if r["uuid"] in given_ and all(holds(f, r) for f in left)]
    assert got == [row["uuid"] for row in rows if all(holds(f, row) for f in case)]


@pytest.fixture(scope="module")
def rows(town: Town) -> list[dict[str, Any]]:
    """All states of the town."""
    return list(town.rows(ALL).to_pylist())


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=SUITE_CHECKS_OFF)
def test_pushed_filters_do_not_change_results(
    town: Town, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    check(town, rows, data.draw(st.lists(filters(rows), min_size=1, max_size=3)))


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=5000, suppress_health_check=SUITE_CHECKS_OFF)
def test_many_pushed_filters_do_not_change_results(
    town: Town, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    check(town, rows, data.draw(st.lists(filters(rows), min_size=1, max_size=4)))


@given(data=st.data())
@settings(max_examples=1, derandomize=True, suppress_health_check=SUITE_CHECKS_OFF)
def test_filters_mean_what_spark_means(
    spark: SparkSession, town: Town, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    """The function `holds` of the tests above evaluates each filter as Spark does."""
    cases = data.draw(st.lists(filters(rows), min_size=25, max_size=25))
    table = spark.createDataFrame(town.rows(ALL))
    reported = table.selectExpr("uuid", *map(sql_of, cases)).collect()
    by_uuid = {row["uuid"]: row for row in rows}
    for n, case in enumerate(cases):
        for each in reported:
            assert each[n + 1] == holds(case, by_uuid[each.uuid]), case


# ---- What the storage is asked -------------------------------------------------------------------

HANDED_ON = (
    "id = 'f01'",
    "id in ('f01', 'f02', 'nobody') and id <> 'f02'",
    "id like 'f0%'",
    "author = 'ann'",
    "author in ('ann', 'bob') and author > 'ann'",
    "app_id <=> 'robot'",
    "action = 'UPDATE'",
    "west <= 9 and east >= 1 and south <= 9 and north >= 1",
    "east > -10",
    "west is not null",
    "version >= 2",
    "txn > 5 and txn <= 2000000000000000000",
    "updated_at >= 1000 and updated_at < 99999999999999",
    "created_at between 1000 and 99999999999999",
    "qrid like '1%'",
    "mrid = 'crid-1'",
    "crid is null and puuid is not null",
)
LEFT = (
    "west >= 1",
    "west = 8",
    "west <= 1 and east >= 9",
    "geometry is not null",
    "id like '%1'",
    "size(tags) > 1",
)
ASKED: list[tuple[list[Filter], dict[str, Any]]] = [
    ([ds.EqualTo(("id",), "a"), ds.In(("id",), ("b", "a", None))], {"ids": ("a",)}),
    ([ds.In(("author",), ("ann", "bob"))], {"authors": ("ann", "bob")}),
    ([ds.EqualNullSafe(("app_id",), "robot")], {"app_ids": ("robot",)}),
    ([ds.EqualTo(("action",), "UPDATE")], {"actions": ("UPDATE",)}),
    (
        [
            ds.LessThanOrEqual(("west",), 9.0),
            ds.GreaterThanOrEqual(("east",), 1),
            ds.LessThan(("south",), 9.0),
            ds.GreaterThanOrEqual(("north",), 1.0),
        ],
        {"spatial": Bbox(1, 1, 9, math.nextafter(9, 0))},
    ),
    ([ds.GreaterThan(("txn",), 5), ds.LessThanOrEqual(("txn",), 9)], {"txn_from": 6, "txn_to": 10}),
    ([ds.EqualTo(("txn",), limits.INT8_MAX)], {"txn_from": limits.INT8_MAX, "txn_to": None}),
    (
        [ds.GreaterThanOrEqual(("updated_at",), 5), ds.LessThan(("updated_at",), 9)],
        {"updated_from": 5, "updated_to": 9},
    ),
    (
        [ds.GreaterThan(("created_at",), 5), ds.EqualTo(("created_at",), 7)],
        {"created_from": 7, "created_to": 8},
    ),
    ([ds.StringStartsWith(("qrid",), "1")], {"qrid_prefix": "1"}),
    ([ds.EqualTo(("mrid",), "m")], {"mrid_prefix": "m"}),
]


@pytest.fixture(scope="module")
def found_by_spark(spark: SparkSession, town: Town) -> dict[str, set[str]]:
    """The ids that Spark finds by itself: all of them, and those by each condition. It reads the
    town once, for all conditions at once."""
    plain = spark.createDataFrame(town.table(spark).collect(), schema_of(READ))
    reported = plain.selectExpr("id", *HANDED_ON).collect()
    found = {"true": {row.id for row in reported}}
    for n, condition in enumerate(HANDED_ON, 1):
        found[condition] = {row.id for row in reported if row[n]}
    return found


@pytest.mark.parametrize("condition", HANDED_ON)
def test_spark_has_nothing_left_to_filter(
    spark: SparkSession, town: Town, found_by_spark: dict[str, set[str]], condition: str
) -> None:
    table = town.table(spark, pushFilters="true").where(condition)
    rows = table.collect()
    assert "Filter (" not in plan_of(table)
    assert "Filter isnotnull" not in plan_of(table)
    scan = table._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().apply("numOutputRows").value() == len(rows)
    assert {row.id for row in rows} == found_by_spark[condition]
    everything = condition.startswith(("version", "txn", "created", "updated", "id like"))
    assert 0 < len(rows) < len(found_by_spark["true"]) or everything


def plan_of(table: Any) -> str:
    return str(table._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("condition", LEFT)
def test_filters_without_an_equivalent_are_left_to_spark(
    spark: SparkSession, town: Town, condition: str
) -> None:
    table = town.table(spark, pushFilters="true").where(condition)
    assert table.count() < 30
    assert "Filter" in plan_of(table).replace("RuntimeFilters", "")


def reader_of(town: Town, **options: str) -> FeatureReader:
    given = town.options(pushFilters="true", **options)
    source = NakshaSource(CaseInsensitiveDict(given))
    reader = source.reader(schema_of(READ))
    assert isinstance(reader, FeatureReader)
    return reader


def query_of(town: Town, reader: FeatureReader) -> list[Query]:
    """The queries of the splits that a storage has planned."""
    found = []
    for partition in reader.partitions():
        assert isinstance(partition, SplitPartition)
        parts = msgspec.msgpack.decode(partition.split.payload)
        (query,) = [part for part in parts if isinstance(part, dict) and "states" in part]
        found.append(msgspec.convert(query, Query))
    return found


def test_the_splits_have_the_filters(town: Town) -> None:
    reader = reader_of(town, tags="red,green+blue", states="all", bbox="-20,-20,20,20")
    given: list[Filter] = [
        ds.IsNotNull(("author",)),
        ds.EqualTo(("author",), "ann"),
        ds.GreaterThan(("txn",), 7),
        ds.LessThanOrEqual(("west",), 9.0),
        ds.GreaterThanOrEqual(("west",), 1.0),
    ]
    assert list(reader.pushFilters(given)) == [given[-1]]
    asked = query_of(town, reader)
    assert asked
    for query in asked:
        assert query.authors == ("ann",)
        assert query.txn_from == 8
        assert query.tags == (("red",), ("green", "blue"))
        assert query.spatial == Bbox(1.0, -20.0, 9.0, 20.0)
        assert query.states is States.ALL


@pytest.mark.parametrize(("filters", "parts"), ASKED)
def test_filters_become_what_an_index_serves(filters: list[Filter], parts: dict[str, Any]) -> None:
    query, left = pushed(Query(), filters)
    assert left == []
    assert {name: getattr(query, name) for name in parts} == parts


def test_nothing_is_read_where_nothing_can_be(town: Town) -> None:
    reader = reader_of(town)
    impossible: list[Filter] = [ds.IsNull(("id",))]
    assert list(reader.pushFilters(impossible)) == []
    assert list(reader.partitions()) == []


@pytest.mark.parametrize("spatial", ["bbox=170,-10,-170,10", "tile=12", "intersects=POINT(8 50)"])
def test_an_area_that_is_asked_for_stays(town: Town, spatial: str) -> None:
    name, _, text = spatial.partition("=")
    reader = reader_of(town, **{name: text})
    before = reader._query.spatial
    edge: list[Filter] = [ds.LessThan(("west",), 9.0)]
    assert list(reader.pushFilters(edge)) == edge
    assert reader._query.spatial == before is not None


def test_many_values_are_left_to_spark() -> None:
    many = tuple(map(str, range(limits.SPARK_PUSHED_IDS_MAX + 1)))
    few = tuple(map(str, range(limits.SPARK_PUSHED_VALUES_MAX + 1)))
    for filter_ in (ds.In(("id",), many), ds.In(("uuid",), few)):
        assert pushed(Query(), [filter_]) == (Query(), [filter_])

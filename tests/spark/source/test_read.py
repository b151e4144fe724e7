"""Features read as a table at any version, in any columns, equal to the storage's own results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import GeometryType, StructType, VariantType

import naksha.spark
from naksha.model import query as q
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NakshaError
from naksha.model.identity.uuids import Uuid
from naksha.model.query import And, Op, Query, States
from naksha.spark.runtime.failures import ours
from naksha.spark.source.columns import READ, Projection, schema_of
from naksha.spark.source.source import NakshaSource
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Storage
from naksha.testing.models.strategies import predicates, queries
from naksha.testing.storage.bulk.suite_bulk import check_rows
from naksha.testing.storage.suite_support import SUITE_CHECKS_OFF, fresh_name, point, published
from naksha.versioning import create_branch, create_tag, delete_tag, line_of
from tests.spark.conftest import TownMaker
from tests.spark.towns import ANN, COLLECTION, IDS, REFS, Town, found

NAMES = ("ann", "bob", "editor", "robot")
WHOLE = schema_of(COLUMNS.names)


def read(spark: SparkSession, town: Town, **options: str) -> list[dict[str, object]]:
    """All columns of a table, by id and txn."""
    reader = spark.read.format("naksha").schema(WHOLE).options(**town.options(**options))
    return [row.asDict() for row in found(reader.load())]


# ---- What is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", REFS)
def test_every_version_equals_that_of_the_storage(
    spark: SparkSession, town: Town, ref: str
) -> None:
    rows = read(spark, town, version=ref, states="all")
    check_rows(rows, town.states(Query(states=States.ALL), ref))
    assert bool(rows) == (ref != "0")


def test_any_way_to_name_a_version(spark: SparkSession, town: Town) -> None:
    second = town.call(lambda s: s.transactions())[1]
    assert second.published_ms is not None
    time = datetime.fromtimestamp(second.published_ms / 1000, UTC).isoformat()
    uuid = str(Uuid.of_txn(second.txn, town.call(number_of)))
    for ref in (str(second.txn), time, uuid, "main:2"):
        rows = read(spark, town, version=ref)
        check_rows(rows, town.states(Query(), ref))
        assert rows


async def number_of(storage: Storage) -> int:
    return storage.number


@pytest.mark.parametrize("kind", States)
def test_states_of_a_kind(spark: SparkSession, town: Town, kind: States) -> None:
    check_rows(read(spark, town, states=kind), town.states(Query(states=kind)))


ASKED = st.builds(
    lambda query, where: msgspec.structs.replace(query, where=where),
    queries(IDS, NAMES),
    st.none() | predicates(),
)


def options_of(query: Query) -> dict[str, str]:
    """Return the options of a query."""
    options = {"states": str(query.states)}
    if query.tags is not None:
        options["tags"] = ",".join("+".join(group) for group in query.tags)
    if query.where is not None:
        options["where"] = msgspec.json.encode(query.where).decode()
    match query.spatial:
        case q.Bbox(west, south, east, north):
            options["bbox"] = f"{west},{south},{east},{north}"
        case q.Tile(quadkey):
            options["tile"] = quadkey
        case q.Intersects(wkb):
            options["intersects"] = shapely.to_wkt(shapely.from_wkb(wkb), rounding_precision=17)
    return options


def condition_of(query: Query) -> str:
    """Return the SQL condition of a query."""
    parts = ["true"]
    for column, values in (
        ("id", query.ids),
        ("author", query.authors),
        ("app_id", query.app_ids),
        ("action", query.actions),
    ):
        if values is not None:
            texts = ", ".join("'" + value.replace("'", "\\'") + "'" for value in values)
            parts.append(f"{column} IN ({texts})" if values else "false")
    for column, prefix in (("mrid", query.mrid_prefix), ("qrid", query.qrid_prefix)):
        if prefix is not None:
            text = prefix.replace("\\", "\\\\")
            parts.append(f"startswith({column}, '{text}')")
    return " AND ".join(parts)


def check_query(spark: SparkSession, town: Town, query: Query, ref: str) -> None:
    rows = spark.read.format("naksha").schema(WHOLE).option("pushFilters", "true")
    table = rows.options(**town.options(version=ref, **options_of(query))).load()
    got = [row.asDict() for row in found(table.where(condition_of(query)))]
    check_rows(got, town.states(query, ref))


QUERIES = {"query": ASKED, "kind": st.sampled_from(States), "ref": st.sampled_from(REFS)}


def fits(query: Query) -> bool:
    """Return whether options can express a query: tags without "," and "+", a tile with a key."""
    tags = [tag for group in query.tags or () for tag in group]
    tile = not isinstance(query.spatial, q.Tile) or query.spatial.quadkey != ""
    return query.tags != () and not any("," in tag or "+" in tag for tag in tags) and tile


@given(**QUERIES)
@settings(max_examples=6, derandomize=True, suppress_health_check=SUITE_CHECKS_OFF)
def test_a_query_returns_the_same_as_the_storage(
    spark: SparkSession, town: Town, query: Query, kind: States, ref: str
) -> None:
    if fits(query):
        check_query(spark, town, msgspec.structs.replace(query, states=kind), ref)


@pytest.mark.long
@given(**QUERIES)
@settings(max_examples=300, suppress_health_check=SUITE_CHECKS_OFF)
def test_many_queries_return_the_same_as_the_storage(
    spark: SparkSession, town: Town, query: Query, kind: States, ref: str
) -> None:
    if fits(query):
        check_query(spark, town, msgspec.structs.replace(query, states=kind), ref)


def test_options_of_time(spark: SparkSession, town: Town) -> None:
    times = sorted({state.xyz["updatedAt"] for state in town.states(Query(states=States.ALL))})
    first, last = times[1], times[-1]
    rows = read(spark, town, states="all", updatedFrom=str(first), updatedTo=str(last))
    query = Query(states=States.ALL, updated_from=first, updated_to=last)
    check_rows(rows, town.states(query))
    assert rows
    assert read(spark, town, updatedFrom="2100-01-01T00:00") == []
    rows = read(spark, town, createdFrom=str(times[0]), createdTo=str(last))
    check_rows(rows, town.states(Query(created_from=times[0], created_to=last)))
    assert rows
    assert read(spark, town, createdFrom="2100-01-01T00:00") == []


# ---- One table, one version ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["file", "postgresql"])
def growing(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage for tests that write to collections of their own."""
    with town_maker(request.param) as made:
        yield made


def put(town: Town, name: str, *ids: str, branch: str = "main") -> None:
    async def do(storage: Storage) -> None:
        async with (await line_of(storage, branch)).storage.write("editor") as session:
            await session.upsert(name, [point(id_) for id_ in ids])
        await published(storage)

    town.call(do)


def new_collection(town: Town, *, history: bool = True) -> str:
    """A collection with a feature `old`."""
    info = CollectionInfo(id=fresh_name(), history_enabled=history)
    town.call(lambda s: s.run(lambda w: w.create_collection(info), "editor"))
    put(town, info.id, "old")
    return info.id


def by_format(spark: SparkSession, town: Town, name: str, ref: str) -> DataFrame:
    reader = spark.read.format("naksha").options(storage=town.location, collection=name)
    return reader.option("version", ref).load()


def by_features(spark: SparkSession, town: Town, name: str, ref: str) -> DataFrame:
    return naksha.spark.features(spark, town.location, name, version=ref, columns=["id"])


def ids_in(table: DataFrame) -> list[str]:
    return sorted(row.id for row in table.select("id").collect())


@pytest.mark.parametrize("load", [by_format, by_features])
def test_a_table_is_the_version_that_it_was_loaded_at(
    spark: SparkSession, growing: Town, load: Callable[..., DataFrame]
) -> None:
    name, branch = new_collection(growing), fresh_name("fix")
    growing.call(lambda s: create_branch(s, branch, ANN))
    head, on_branch = load(spark, growing, name, "HEAD"), load(spark, growing, name, branch)
    for line in ("main", branch):
        put(growing, name, "new", branch=line)
    for table in (head, on_branch):
        assert (table.count(), ids_in(table)) == (1, ["old"])
        assert ids_in(table.where("id >= 'a'")) == ["old"]
        assert ids_in(table.where("id = 'new'")) == []
    # So do two scans in one query.
    put(growing, name, "newer")
    assert ids_in(head.where("id >= 'n'").join(head, "id", "left_anti")) == []
    assert ids_in(head.where("id >= 'n'").join(head, "id")) == ["old"]
    assert ids_in(load(spark, growing, name, "HEAD")) == ["new", "newer", "old"]
    assert ids_in(load(spark, growing, name, branch)) == ["new", "old"]


@pytest.mark.parametrize("other", ["true", "id = 'second'"])
def test_a_table_is_read_with_any_filters(spark: SparkSession, growing: Town, other: str) -> None:
    name = new_collection(growing)
    put(growing, name, "second")
    table = by_features(spark, growing, name, "HEAD")
    wanted = ["old", *ids_in(by_features(spark, growing, name, "HEAD").where(other))]
    assert ids_in(table.where(other).union(table.where("id = 'old'"))) == sorted(wanted)
    assert ids_in(table) == ["old", "second"]


def test_a_table_stays_when_its_name_means_another_version(
    spark: SparkSession, growing: Town
) -> None:
    name, tag = new_collection(growing), fresh_name("tag")
    growing.call(lambda s: create_tag(s, tag, ANN))
    table = by_features(spark, growing, name, tag)
    put(growing, name, "new")
    growing.call(lambda s: delete_tag(s, tag, ANN))
    growing.call(lambda s: create_tag(s, tag, ANN))
    assert ids_in(table) == ids_in(table.where("id > 'a'")) == ["old"]
    assert ids_in(by_features(spark, growing, name, tag)) == ["new", "old"]


def test_a_table_with_a_schema_is_the_version_that_was_first_read(
    spark: SparkSession, growing: Town
) -> None:
    name = new_collection(growing)
    reader = spark.read.format("naksha").schema("id string")
    table = reader.options(storage=growing.location, collection=name).load()
    assert ids_in(table) == ["old"]
    put(growing, name, "new")
    assert ids_in(table) == ids_in(table.where("id > 'a'")) == ["old"]


def test_a_table_without_history_is_read_at_head(spark: SparkSession, growing: Town) -> None:
    name = new_collection(growing, history=False)
    table = by_features(spark, growing, name, "HEAD")
    put(growing, name, "new")
    assert ids_in(table) == ids_in(table.where("id > 'a'")) == ["new", "old"]


def test_missing_objects_are_reported_by_load(spark: SparkSession, growing: Town) -> None:
    for load in (by_format, by_features):
        with pytest.raises(
            AnalysisException, match="The collection 'nobody' does not exist"
        ) as caught:
            load(spark, growing, "nobody", "HEAD")
        assert isinstance(ours(caught.value), CollectionNotFound)


# ---- Columns -------------------------------------------------------------------------------------


def test_the_columns_of_a_table(spark: SparkSession, town: Town) -> None:
    table = town.table(spark)
    assert table.columns == list(READ)
    assert {"id", "geometry", "properties", "members", "tags", "west"} < set(table.columns)
    assert table.count() == len(town.states(Query()))


def test_a_schema_chooses_what_is_read(spark: SparkSession, town: Town) -> None:
    schema = "west double, id string, tags array<string>"
    reader = spark.read.format("naksha").schema(schema)
    rows = {row.id: row for row in reader.options(**town.options()).load().collect()}
    for state in town.states(Query()):
        assert rows.pop(state.id).tags == state.xyz["tags"]
    assert not rows
    wanted = schema_of(("id", "geometry"))
    assert Projection(wanted, COLUMNS.names).columns == ("id", "geometry")


def test_geometries_as_spark_has_them(spark: SparkSession, town: Town) -> None:
    options = town.options(geometry="geometry", states="all")
    table = spark.read.format("naksha").options(**options).load()
    assert table.schema["geometry"].dataType == GeometryType(4326)
    given = table.select(
        "uuid", sf.expr("st_asbinary(geometry)").alias("wkb"), sf.expr("st_srid(geometry)")
    )
    plain = town.rows(Query(states=States.ALL))
    wanted = dict(zip(*(plain.column(n).to_pylist() for n in ("uuid", "geometry")), strict=True))
    rows = given.collect()
    assert {row.uuid: row.wkb for row in rows} == wanted
    assert {row[2] for row in rows} == {None, 4326}
    shapes = [shapely.from_wkb(wkb) for wkb in wanted.values() if wkb is not None]
    assert {True, False} == {bool(shape.has_z) for shape in shapes}


def test_properties_as_variants_and_by_a_schema(spark: SparkSession, town: Town) -> None:
    states = {state.id: state.feature["properties"] for state in town.states(Query())}
    table = naksha.spark.features(
        spark, town.location, COLLECTION, columns=("id", "properties"), properties="variant"
    )
    assert table.schema["properties"].dataType == VariantType()
    texts = table.select("id", sf.expr("variant_get(properties, '$.a', 'string')").alias("a"))
    wanted = {id_: found["a"] for id_, found in states.items() if isinstance(found.get("a"), str)}
    assert wanted.items() <= {row.id: row.a for row in texts.collect()}.items()
    table = naksha.spark.features(spark, town.location, COLLECTION, properties="a STRING")
    rows = table.select("id", "properties.a").collect()
    assert wanted.items() <= {row.id: row.a for row in rows}.items()
    where = And((q.Test(("properties", "a"), Op.EXISTS),))
    some = naksha.spark.features(spark, town.location, COLLECTION, version="first", where=where)
    assert {row.id for row in some.collect()} == {
        state.id for state in town.states(Query(where=where), "first")
    }


# ---- What is refused -----------------------------------------------------------------------------


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"version": "1..3"}, "not at the range '1..3'"),
    ({"version": "nobody"}, "Tag or branch 'nobody' does not exist"),
    ({"version": "999"}, "Version 999 is not published yet"),
    ({"collection": "nobody"}, "The collection 'nobody' does not exist"),
    ({"storage": "file:nobody.naksha"}, r"The storage file .*nobody\.naksha does not exist"),
    ({"properties": "variant"}, "naksha.spark.features"),
    ({"colour": "red"}, "Unknown option 'colour'"),
    ({"states": "dead"}, "'states' must be one of live, deleted, all"),
    ({"bbox": "1,2,3"}, "'bbox' must be west,south,east,north, not '1,2,3'"),
    ({"bbox": "1,2,3,four"}, "which is not a number"),
    ({"tile": "01", "bbox": "1,2,3,4"}, "bbox and tile are mutually exclusive"),
    ({"intersects": "nothing"}, "'intersects' must be GeoJSON or WKT"),
    ({"where": "speed > 50"}, "'where' must be a predicate as JSON"),
    ({"updatedFrom": "yesterday"}, "'updatedFrom' must be a time"),
    ({"radius": "7"}, "'radius' requires the option 'intersects'"),
    ({"startingVersion": "now"}, "requires spark.readStream"),
    ({"geometry": "wkt"}, "'geometry' must be one of wkb, geometry"),
    ({"columns": "id, west"}, "Invalid schema in the option 'columns'"),
    ({"pushFilters": "perhaps"}, "must be true or false"),
]
WRONG_SCHEMAS = [
    ("id string, other string", "Unknown column 'other'"),
    ("id int", "The column 'id' must be string, not int"),
    ("geometry string", r"'geometry' must be binary or geometry\(4326\), not string"),
    ("properties variant", "naksha.spark.features"),
    ("geometry binary not null", "'geometry' must be nullable"),
    ("change string", "Unknown column 'change'"),
]
BY_SPARK = (
    "not at the range",
    "The collection",
    "The storage file",
    "Unknown option",
    "one of wkb",
    "'id' must be string",
)
"""Of what is refused in one place, one comes to the user through Spark, which starts processes for
each; the others do so when there is time."""


def through_spark(cases: Sequence[tuple[Any, str]]) -> list[Any]:
    """All of them, those that can wait marked."""
    return [
        pytest.param(
            *case, marks=[] if any(part in case[1] for part in BY_SPARK) else pytest.mark.long
        )
        for case in cases
    ]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_invalid_read_options_are_refused(town: Town, options: dict[str, str], words: str) -> None:
    source = NakshaSource(CaseInsensitiveDict({**town.options(), **options}))
    with pytest.raises(NakshaError, match=words):
        source.reader(source.schema()).partitions()


@pytest.mark.parametrize(("schema", "words"), WRONG_SCHEMAS)
def test_columns_that_cannot_be_are_refused(town: Town, schema: str, words: str) -> None:
    source = NakshaSource(CaseInsensitiveDict(town.options()))
    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)
    with pytest.raises(NakshaError, match=words):
        source.reader(columns)


@pytest.mark.parametrize(("options", "words"), through_spark(REFUSED))
def test_errors_reach_the_user_with_their_message(
    spark: SparkSession, town: Town, options: dict[str, str], words: str
) -> None:
    given = {**town.options(), **options}
    with pytest.raises(AnalysisException, match=words):
        spark.read.format("naksha").options(**given).load().collect()


@pytest.mark.parametrize(("schema", "words"), through_spark(WRONG_SCHEMAS))
def test_a_schema_that_cannot_be_is_refused(
    spark: SparkSession, town: Town, schema: str, words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        spark.read.format("naksha").schema(schema).options(**town.options()).load().collect()

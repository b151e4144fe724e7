"""Query plans: the leaves and days that a statement touches, and the use of an index.

The data is small for a database but large enough that the planner prefers the indices on its own,
with the settings the server comes with.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import shapely

from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.guid import Guid
from naksha.model.query import Bbox, Intersects, Op, Query, QueryPart, SortKey, States, Tile
from naksha.model.query import Test as PropertyTest
from naksha.model.state import MatchingState
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct, StorageConnection
from naksha.psql.read import statements
from naksha.psql.read.id_queries import found_statement
from naksha.psql.read.layers import state_statement
from naksha.psql.read.tiles import tile_statement
from naksha.psql.write.session import PsqlSession
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.support import connect_to, publish
from tests.psql.write.shell import quote

FEATURES = 8_000
FEATURES_LONG = 20_000
DAYS = [datetime(2031, 5, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
EMPTY_DAY = "_hst_2031_04_30"
XYZ = "jsondata->'properties'->'@ns:com:here:xyz'"


class Plan:
    """The plan of one statement."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.nodes = list(self._walk(root))

    def _walk(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield node
        for child in node.get("Plans", ()):
            yield from self._walk(child)

    @property
    def tables(self) -> set[str]:
        return {n["Relation Name"] for n in self.nodes if "Relation Name" in n}

    @property
    def sequential(self) -> set[str]:
        """Tables read from one end to the other, but for one that is known to be empty: it was
        made for the day of the first inserts, which leave no history."""
        found = {n["Relation Name"] for n in self.nodes if n["Node Type"] == "Seq Scan"}
        return {table for table in found if not table.endswith(EMPTY_DAY)}

    @property
    def pruned(self) -> int:
        """Partitions that a plan for all values leaves out when it learns the value."""
        return sum(n.get("Subplans Removed", 0) for n in self.nodes)

    @property
    def indices(self) -> set[str]:
        return {n["Index Name"] for n in self.nodes if "Index Name" in n}

    def of_head(self) -> set[str]:
        return {t for t in self.tables if re.fullmatch(r"roads_p[0-9a-f]", t)}

    def of_history(self) -> set[str]:
        return {t for t in self.tables if t.startswith("roads_hst")}


async def explain(connection: Direct, text: str, *values: Any) -> Plan:
    found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {text}", *values)
    return Plan(json.loads(found)[0]["Plan"])


async def explain_generic(connection: Direct, text: str, values: Sequence[Any]) -> Plan:
    """The plan that is made once for all values; connections of a storage use it."""
    await connection.execute(f"PREPARE asked AS {text}")
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    arguments = f"({', '.join(map(literal, values))})" if values else ""
    try:
        found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked{arguments}")
    finally:
        await connection.execute("RESET plan_cache_mode")
        await connection.execute("DEALLOCATE asked")
    return Plan(json.loads(found)[0]["Plan"])


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, list):
        return "ARRAY[" + ", ".join(map(literal, value)) + "]"
    return quote(value) if isinstance(value, str) else repr(value)


@pytest.fixture(scope="module")
async def filled(
    postgres_cluster: PostgresCluster, installed: str, pytestconfig: pytest.Config
) -> AsyncIterator[Direct]:
    """A collection of anything and one of points, with a history of four days, all analysed."""
    name = "explain"
    dsn = postgres_cluster.create_database(name, template=installed)
    connection = await connect_to(dsn)
    await _fill(connection, FEATURES_LONG if pytestconfig.getoption("--long") else FEATURES)
    yield connection
    await connection.close()
    postgres_cluster.drop_database(name)


async def _fill(connection: Direct, features: int) -> None:
    async def start(day: datetime, author: str) -> None:
        await connection.execute("BEGIN")
        await connection.execute("SELECT naksha_tx_start('app', $2, $1, false)", day, author)

    await start(DAYS[0] - timedelta(days=1), "author 0")
    settings = json.dumps({"pointsOnly": True, "partitions": 16})
    await connection.execute("SELECT naksha_collection_create('spots', $1)", settings)
    await connection.execute("SELECT naksha_grow('roads')")
    for table in ("roads", "spots"):
        await connection.execute(
            f"INSERT INTO {table} (geo, jsondata) SELECT ST_SetSRID(ST_MakePoint((n * 7919 %% "
            "360000) / 1000.0 - 180, (n * 104729 %% 180000) / 1000.0 - 90, 0), 4326), "
            "jsonb_build_object('id', 'r' || n, 'properties', jsonb_build_object('text', "
            "repeat(md5(n::text), 8), '@ns:com:here:xyz', "
            "jsonb_build_object('tags', jsonb_build_array('t' || n %% 1000)))) "
            f"FROM generate_series(1, {features}) n".replace("%%", "%")
        )
    await connection.execute("COMMIT")
    for number, day in enumerate(DAYS, 1):
        await start(day, f"author {number}")
        for table in ("roads", "spots"):
            await connection.execute(
                f"UPDATE {table} SET jsondata = jsonb_set(jsondata, '{{properties,n}}', "
                "to_jsonb($1::int)) WHERE i % 8 = $1",
                number,
            )
            await connection.execute(
                f"DELETE FROM {table} WHERE (substr(jsondata->>'id', 2))::int % 50 = $1", number
            )
        await connection.execute("COMMIT")
        await publish(connection)
    await connection.execute(
        "SELECT naksha_index_table(tbl, kind, points_only) FROM naksha_tables_to_index(NULL, 0)"
    )
    await connection.execute("ANALYZE")


@pytest.fixture(scope="module")
async def txn(filled: Direct) -> int:
    """A version between the second day and the third."""
    found: int = await filled.fetchval(
        "SELECT max(txn) FROM naksha_version WHERE txn < naksha_day_txn('2031-05-03')"
    )
    return found


async def test_an_id_touches_one_leaf_as_literal_and_as_parameter(filled: Direct) -> None:
    where = "WHERE jsondata->>'id' = {0} AND substring(md5(jsondata->>'id'), 1, 1) = {1}"
    leaf = statements.leaf_of("r77")
    literal = await explain(filled, "SELECT * FROM roads " + where.format("'r77'", f"'{leaf}'"))
    assert literal.of_head() == {f"roads_p{leaf}"}
    assert literal.indices == {f"roads_p{leaf}_id"}
    await filled.execute(
        "PREPARE one (text, text) AS SELECT * FROM roads " + where.format("$1", "$2")
    )
    for mode in ("force_custom_plan", "force_generic_plan"):
        await filled.execute(f"SET plan_cache_mode = {mode}")
        found = await filled.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) EXECUTE one('r77', '{leaf}')")
        text = "\n".join(row[0] for row in found)
        touched = set(re.findall(r"on (roads_p[0-9a-f])\b", text))
        never = text.count("never executed")
        assert len(touched) - never == 1, text
        assert "Seq Scan" not in text
    await filled.execute("RESET plan_cache_mode")
    await filled.execute("DEALLOCATE one")


async def test_ids_touch_only_their_leaves(filled: Direct) -> None:
    ids = ("r1", "r2", "r3")
    text, values = statements.states("roads", Query(ids=ids), None)
    plan = await explain(filled, text, *values)
    assert plan.of_head() == {f"roads_p{statements.leaf_of(i)}" for i in ids}
    assert plan.sequential == set()


@pytest.mark.parametrize(
    ("part", "leaves"),
    [(QueryPart(1, 16), "0"), (QueryPart(3, 8), "45"), (QueryPart(2, 3), "56789a")],
)
async def test_a_part_touches_only_its_leaves(filled: Direct, part: QueryPart, leaves: str) -> None:
    layers = [statements.LayerTables("roads", None, partitions=16)]
    query = Query(part=part, limit=50)
    by_property = (SortKey(("properties", "n")),)
    for text, values in (
        statements.layered_states(layers, query),
        found_statement(layers, query, (), None),
        found_statement(layers, query, by_property, None),
    ):
        plan = await explain_generic(filled, text, values)
        assert plan.of_head() == {f"roads_p{leaf}" for leaf in leaves}
        is_sorted = "jsonb_typeof" in text
        assert plan.sequential == (plan.of_head() if is_sorted else set()), "along the ids"


async def test_deleted_features_are_found_by_the_index_of_ids(filled: Direct) -> None:
    after = MatchingState("r5", "")
    layers = [statements.LayerTables("roads", None)]
    text, values = found_statement(layers, Query(limit=50), (), after)
    plan = await explain_generic(filled, text, values)
    assert plan.indices == {f"roads_p{leaf:x}_id" for leaf in range(16)}
    assert plan.sequential == set()


async def test_a_version_prunes_the_days_before_it(filled: Direct, txn: int) -> None:
    text, values = statements.states("roads", Query(ids=("r77",)), txn)
    plan = await explain(filled, text, *values)
    days = ("02", "03", "04")
    assert plan.of_history() == {f"roads_hst_2031_05_{day}" for day in days}
    assert len(plan.of_head()) == 1
    assert plan.sequential == set()
    once_for_all = await explain_generic(filled, text, values)
    assert once_for_all.of_history() == plan.of_history()
    assert len(once_for_all.of_head()) == 1
    assert once_for_all.pruned == 15, "leaves; earlier days are not in the plan at all"
    assert once_for_all.sequential == set()


@pytest.mark.parametrize("ids", [("r77",), ("r77", "r78")])
async def test_an_id_at_a_version_is_found_by_the_index_on_ids(
    filled: Direct, txn: int, ids: tuple[str, ...]
) -> None:
    """Not by the one on spans, of which the planner cannot know how many meet a version."""
    text, values = statements.states("roads", Query(ids=ids), txn)
    plan = await explain_generic(filled, text, values)
    assert {name[-3:] for name in plan.indices if "_hst_" in name} == {"_id"}


async def test_a_plan_of_a_version_makes_features_above_its_partitions(
    filled: Direct, txn: int
) -> None:
    """The expression is long; a copy for every partition takes time to plan and memory to keep."""
    asked = Query(spatial=Bbox(1, 1, 3, 3))
    text, values = statements.states("roads", asked, txn)
    await filled.execute(f"PREPARE whole AS {text}")
    await filled.execute("SET plan_cache_mode = force_generic_plan")
    try:
        arguments = ", ".join(map(literal, values))
        rows = await filled.fetch(f"EXPLAIN (VERBOSE) EXECUTE whole({arguments})")
    finally:
        await filled.execute("RESET plan_cache_mode")
        await filled.execute("DEALLOCATE whole")
    made = sum("st_asgeojson" in line[0] for line in rows)
    assert made == 2, "once above the leaves of HEAD, once above the days of the history"


async def test_a_whole_version_can_be_read_by_several_workers(filled: Direct, txn: int) -> None:
    await filled.execute(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; "
        "SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0"
    )
    try:
        plan = await explain_generic(filled, *statements.states("roads", Query(), txn))
    finally:
        await filled.execute(
            "RESET parallel_setup_cost; RESET parallel_tuple_cost; "
            "RESET min_parallel_table_scan_size; RESET min_parallel_index_scan_size"
        )
    assert any(node["Node Type"] == "Gather" for node in plan.nodes)


@pytest.mark.parametrize("collection", ["roads", "spots"])
async def test_a_box_at_a_version_reads_no_document_to_find_states_of_head(
    filled: Direct, txn: int, collection: str
) -> None:
    """The index on boxes tells when they began, but for points, where it has no spans."""
    text, values = statements.states(collection, Query(spatial=Bbox(1, 1, 3, 3)), txn)
    plan = await explain_generic(filled, text, values)
    found = [n for n in plan.nodes if n.get("Index Name", "").endswith("_geo")]
    of_head = [n for n in found if n["Relation Name"].startswith(f"{collection}_p")]
    assert len(of_head) == 16
    for node in of_head:
        in_index, filtered = node["Index Cond"], node["Filter"]
        assert ("int8range" in in_index) == (collection == "roads")
        assert filtered.count("'txn'") == (0 if collection == "roads" else 1)
        assert "txn_next" not in filtered
    of_history = [n for n in found if n["Relation Name"].startswith(f"{collection}_hst")]
    assert of_history
    for node in of_history:
        assert "int8range" in node["Index Cond"]
        assert node["Filter"].count("txn_next") == 1, "for the days that are not in the plan"


async def test_a_state_id_prunes_the_days_before_its_own(filled: Direct) -> None:
    """The date in it is when the state began, and no state ends before."""
    uuid = await filled.fetchval(
        f"SELECT {XYZ}->>'uuid' FROM roads_hst_2031_05_04 WHERE {XYZ}->>'author' = 'author 3' "
        f"AND naksha_xyz_action(jsondata) = 'UPDATE' LIMIT 1"
    )
    reference = Guid.parse(uuid)
    assert (reference.year, reference.month, reference.day) == (2031, 5, 3)
    source = statements.LayerTables("roads", None)
    text, values = state_statement([source], reference.i, reference.txn_min)
    (row,) = await filled.fetch(text, *values)
    assert uuid.encode() in row["feature"]
    for plan in (
        await explain(filled, text, *values),
        await explain_generic(filled, text, values),
    ):
        assert plan.of_history() == {f"roads_hst_2031_05_{day}" for day in ("03", "04")}
        assert plan.sequential == set()
        assert {name[-2:] for name in plan.indices} == {"_i"}


DOCUMENTED = {
    "i": "SELECT * FROM {t} WHERE i = 4711",
    "id": "SELECT * FROM {t} WHERE jsondata->>'id' = 'r77'",
    "id prefix": "SELECT * FROM {t} WHERE jsondata->>'id' LIKE 'r777%'",
    "id at a version": "SELECT * FROM {t} WHERE jsondata->>'id' = 'r77' AND naksha_xyz_txn("
    "jsondata) <= {v} AND naksha_xyz_txn_next(jsondata) > {v}",
    "mrid": "SELECT * FROM {t} WHERE {x}->>'mrid' LIKE '012301230123%'{live}",
    "qrid": "SELECT * FROM {t} WHERE {x}->>'qrid' LIKE '012301230123%'{live}",
    "geo": "SELECT * FROM {t} WHERE ST_Intersects(geo, ST_MakeEnvelope(1, 1, 2, 2, 4326)){live}",
    "geo at a version": "SELECT * FROM {t} WHERE geo && ST_MakeEnvelope(1, 1, 3, 3, 4326) "
    "AND naksha_span(jsondata) @> {v}::int8{live}",
    "action and author": "SELECT * FROM {t} WHERE {x}->>'action' = 'UPDATE' "
    "AND {x}->>'author' = 'nobody'",
    "tags": "SELECT * FROM {t} WHERE {x}->'tags' ?& ARRAY['t77']{live}",
    "tags at a version": "SELECT * FROM {t} WHERE {x}->'tags' ?& ARRAY['t77'] "
    "AND naksha_xyz_txn(jsondata) <= {v}{live}",
    "txn": "SELECT * FROM {t} WHERE naksha_xyz_txn(jsondata) = {v}{live}",
}


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_the_documented_queries_use_indices(filled: Direct, txn: int, name: str) -> None:
    for table in ("roads", "roads_hst"):
        live = "" if table == "roads" else " AND naksha_xyz_action(jsondata) <> 'DELETE'"
        text = DOCUMENTED[name].format(t=table, x=XYZ, v=txn, live=live)
        plan = await explain(filled, text)
        assert plan.sequential == set(), (table, text)


@pytest.mark.parametrize("name", ["geo", "geo at a version"])
async def test_the_documented_queries_use_the_indices_of_points(
    filled: Direct, txn: int, name: str
) -> None:
    for table in ("spots", "spots_hst"):
        live = "" if table == "spots" else " AND naksha_xyz_action(jsondata) <> 'DELETE'"
        plan = await explain(filled, DOCUMENTED[name].format(t=table, x=XYZ, v=txn, live=live))
        assert plan.sequential == set(), table
        assert {index[-4:] for index in plan.indices} == {"_geo"}


QUERIES = {
    "ids": Query(ids=("r1", "r77")),
    "box": Query(spatial=Bbox(1.0, 1.0, 2.0, 2.0)),
    "box over the date line": Query(spatial=Bbox(179.5, 1.0, -179.5, 2.0)),
    "tile": Query(spatial=Tile("01230123")),
    "geometry": Query(spatial=Intersects(shapely.box(1, 1, 2, 2).wkb)),
    "radius": Query(spatial=Intersects(shapely.Point(1, 1).wkb, 10_000.0)),
    "tags": Query(tags=(("t77",), ("t78", "t79"))),
    "mrid": Query(mrid_prefix="012301230123"),
    "qrid": Query(qrid_prefix="012301230123"),
    "author and action": Query(actions=("UPDATE",), authors=("nobody",)),
    "author": Query(authors=("nobody",)),
    "page of an author": Query(authors=("nobody",), limit=50),
    "txn": Query(txn_from=2031050300000000000, txn_to=2031050300000000001),
    "updated": Query(updated_from=int(DAYS[3].timestamp() * 1000) + 1),
    "created": Query(created_from=int(DAYS[3].timestamp() * 1000) + 1),
    "page": Query(limit=50),
    "page of a box": Query(spatial=Bbox(1.0, 1.0, 2.0, 2.0), limit=50),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_queries_of_the_library_use_indices(filled: Direct, txn: int, name: str) -> None:
    for states in States:
        asked = msgspec.structs.replace(QUERIES[name], states=states)
        for at in (None, txn):
            text, values = statements.states("roads", asked, at)
            plans = [await explain(filled, text, *values)]
            if not statements.depends_on_values(asked):
                plans.append(await explain_generic(filled, text, values))
            for plan in plans:
                assert plan.sequential == set(), (states, at, text, plan.sequential)


@pytest.mark.parametrize("name", QUERIES)
async def test_a_space_changes_no_plan(filled: Direct, txn: int, name: str) -> None:
    """It reads the same through the same indices, and adds no sort."""
    # Of a whole collection either way of reading is as good, and the planner may take any.
    for limit in (50,) if name == "page" else (None, 50):
        plain = msgspec.structs.replace(QUERIES[name], limit=limit)
        for at in (None, txn):
            plans = []
            for query in (plain, msgspec.structs.replace(plain, space="roads")):
                text, values = statements.states("roads", query, at)
                plan = await explain_generic(filled, text, values)
                sorts = [n for n in plan.nodes if "Sort" in n["Node Type"]]
                plans.append((plan.tables, plan.indices, len(sorts)))
            assert plans[0] == plans[1], (limit, at)


@pytest.mark.parametrize("at_head", [True, False])
async def test_a_tile_is_found_by_the_indices_on_places(
    filled: Direct, txn: int, at_head: bool
) -> None:
    layers = [statements.LayerTables("roads", None if at_head else txn)]
    tile = VectorTile.web(9, 268, 172)
    for ordered in (False, True):
        text, values = tile_statement(layers, Query(limit=100), tile, ordered=ordered)
        plan = await explain_generic(filled, text, values)
        assert plan.sequential == set()
        assert any(name.endswith("_geo") for name in plan.indices)


@pytest.mark.parametrize("kind", States)
async def test_replaced_states_are_found_by_what_ended_them(
    filled: Direct, txn: int, kind: States
) -> None:
    since: int = await filled.fetchval("SELECT max(txn) FROM naksha_version WHERE txn < $1", txn)
    query = Query(replaced_since=since, states=kind)
    text, values = statements.states("roads", query, txn)
    plan = await explain_generic(filled, text, values)
    assert plan.of_head() == set()
    assert plan.sequential == set()
    assert {name[-5:] for name in plan.indices} == {"_next"}


async def test_states_that_began_since_are_found_by_their_beginning(
    filled: Direct, txn: int
) -> None:
    since: int = await filled.fetchval("SELECT max(txn) FROM naksha_version WHERE txn < $1", txn)
    text, values = statements.states("roads", Query(txn_from=since + 1), txn)
    plan = await explain_generic(filled, text, values)
    assert plan.sequential == set()
    # What is valid still may be left to a second index, but not to that of all spans.
    assert {f"{table}_txn" for table in plan.tables} <= plan.indices
    assert {name[-4:] for name in plan.indices} <= {"_txn", "next"}


@pytest.mark.parametrize("name", [n for n, query in QUERIES.items() if query.spatial is not None])
async def test_queries_of_the_library_on_points_use_indices(
    filled: Direct, txn: int, name: str
) -> None:
    for states in States:
        asked = msgspec.structs.replace(QUERIES[name], states=states)
        for at in (None, txn):
            text, values = statements.states("spots", asked, at)
            for plan in (
                await explain(filled, text, *values),
                await explain_generic(filled, text, values),
            ):
                assert plan.sequential == set(), (states, at, text)
                assert any(index.endswith("_geo") for index in plan.indices)


SCANNING = {
    "app": Query(app_ids=("nobody",)),
    "property": Query(where=PropertyTest(("properties", "n"), Op.EQ, 77)),
    "updated before": Query(updated_to=int(DAYS[0].timestamp() * 1000)),
    "created before": Query(created_to=int(DAYS[0].timestamp() * 1000)),
}


@pytest.mark.parametrize("name", SCANNING)
async def test_queries_without_an_index(filled: Direct, name: str) -> None:
    """The exceptions that docs/storage.md names."""
    plan = await explain(filled, *_flat(statements.states("roads", SCANNING[name], None)))
    assert plan.sequential == plan.of_head()


@pytest.mark.parametrize("actions", [None, ("UPDATE",)])
@pytest.mark.parametrize("limit", [None, 50])
async def test_an_author_of_little_does_not_cost_what_the_others_wrote(
    filled: Direct, actions: tuple[str, ...] | None, limit: int | None
) -> None:
    """There are five authors, so a plan for anybody would expect a lot."""
    query = Query(actions=actions, authors=("nobody",), limit=limit)
    text, values = statements.states("roads", query, None)
    plan = await explain(filled, text, *values)
    assert {name[-7:] for name in plan.indices} == {"_action"}
    busy = msgspec.structs.replace(query, authors=("author 0",), actions=None, limit=50)
    plan = await explain(filled, *_flat(statements.states("roads", busy, None)))
    assert {name[-3:] for name in plan.indices} == {"_id"}


def _flat(statement: tuple[str, list[Any]]) -> tuple[Any, ...]:
    return (statement[0], *statement[1])


async def test_the_library_plans_for_the_author_it_asks_for(
    storage: PsqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    prepare = StorageConnection.prepare

    async def recorded(self: Direct, query: str, **options: Any) -> Any:
        planned.append(query)
        return await prepare(self, query, **options)

    monkeypatch.setattr(StorageConnection, "prepare", recorded)
    async with storage.write("app") as session:
        assert isinstance(session, PsqlSession)
        for query in (Query(authors=("a",)), Query(authors=("a",), limit=5), Query(limit=5)):
            await session.page("roads", query)
            await session.count("roads", query)
        async for _ in session.states("roads", Query(actions=("CREATE",))):
            pass
        rows = await session._own.fetch(
            "SELECT custom_plans, statement FROM pg_prepared_statements"
            " WHERE statement LIKE '%FROM \"roads%' AND statement NOT LIKE '%prepared%'"
        )
    # With its values in the text, a statement can only be planned for them.
    assert len(planned) == 5
    assert all("ARRAY['a']" in text or "ARRAY['CREATE']" in text for text in planned)
    assert not any("$1" in text for text in planned)
    # The others are planned once for all values, and only they are kept.
    assert [row["custom_plans"] for row in rows] == [0, 0]
    assert not any("author" in row["statement"] for row in rows)


async def test_every_partition_has_all_its_indices(filled: Direct) -> None:
    """Once it is not small any more."""
    rows = await filled.fetch(
        "SELECT c.relname, array_agg(replace(i.indexrelid::regclass::text, c.relname, '') "
        "ORDER BY 1) AS indices FROM pg_class c LEFT JOIN pg_index i ON i.indrelid = c.oid "
        "WHERE c.relkind = 'r' AND c.relname ~ '^(roads|spots)_(p[0-9a-f]$|hst_|del$)' "
        "GROUP BY c.relname"
    )
    suffixes = {"_i", "_id", "_geo", "_txn", "_mrid", "_qrid", "_action", "_tags"}
    assert len(rows) >= 2 * 17 + 4
    for row in rows:
        found = {name.strip('"') for name in row["indices"]}
        assert suffixes | ({"_next"} if "_hst_" in row["relname"] else set()) == found


async def test_points_have_an_index_of_their_own_kind(filled: Direct) -> None:
    await filled.execute("BEGIN")
    await filled.execute("SELECT naksha_tx_start('app')")
    settings = json.dumps({"pointsOnly": True, "partitions": 16})
    await filled.execute("SELECT naksha_collection_create('points', $1)", settings)
    found = await filled.fetch(
        "SELECT a.amname, count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_am a ON a.oid = c.relam WHERE c.relname ~ '^points_p[0-9a-f]_geo$' GROUP BY 1"
    )
    await filled.execute("ROLLBACK")
    assert [tuple(row) for row in found] == [("spgist", 16)]


async def test_the_sequencer_asks_by_index_only(filled: Direct) -> None:
    """In a log that is long enough for an index to be worth it."""
    await filled.execute("BEGIN")
    await filled.execute("SET LOCAL naksha.depth = '0'")
    await filled.execute(
        "INSERT INTO naksha_tx (ts, seq_number, txn, action, id, app_id) SELECT now(), n, "
        "2031050400001000000 + n, 'MESSAGE', 'm', 'app' FROM generate_series(100, 5000) n"
    )
    await filled.execute("ANALYZE naksha_tx")
    plan = await explain(
        filled, "SELECT txn FROM naksha_tx WHERE seq_number IS NULL AND txn > 2031050400000000000"
    )
    await filled.execute("ROLLBACK")
    assert plan.sequential == set()
    assert plan.indices

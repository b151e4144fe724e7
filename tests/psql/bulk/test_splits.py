"""Splits of the PostgreSQL storage: how they are cut, streamed, and kept correct under writes."""

import asyncio
import pickle
import sys
from typing import Any

import asyncpg
import msgspec
import pyarrow as pa
import pytest
import shapely

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired, InvalidArgument
from naksha.model.query import And, Intersects, Not, Op, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.version import HEAD, AtTxn
from naksha.psql import PsqlStorage
from naksha.psql.bulk import splits
from naksha.psql.bulk.splits import LEAVES, SplitPayload, payload_of
from naksha.psql.sql import inlined, literal
from naksha.spi.storage import Split
from naksha.testing.storage.suite_support import Handle, MovableClock, point
from tests.psql.support import Connect, until

DAY_MS = 86_400_000
TEXTS = ("", "'", "''", "\\", "\\'", "a\\\\'b", "$1::int8", "ü€😀", "\n\t\r", "%_", "{}", '"')


async def rows_of(storage: PsqlStorage, planned: list[Split]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for split in planned:
        async for batch in storage.read(split):
            rows += pa.Table.from_batches([batch]).to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["txn"]))


@pytest.fixture
async def places(storage: PsqlStorage) -> Handle:
    handle = Handle(storage, "places")
    await handle.create(*(point(f"f{n}", n % 90, n % 45, n=n) for n in range(200)))
    return handle


# ---- Literals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_literals_mean_what_they_are(connect: Connect, conforming: str) -> None:
    connection = await connect(standard_conforming_strings=conforming)
    for value, cast in (
        *((text, "text") for text in TEXTS),
        (list(TEXTS), "text[]"),
        ([], "text[]"),
        (None, "text"),
        *((number, "int8") for number in (0, -1, 2**63 - 1, -(2**63))),
        *((number, "float8") for number in (0.1, -1e300, 5e-324, 180.0)),
        *((data, "bytea") for data in (b"", b"\x00\xff\\'", bytes(range(256)))),
    ):
        statement = inlined(f"SELECT $1::{cast}", [value])
        assert await connection.fetchval(statement) == value, statement


@pytest.mark.parametrize("text", ["\0", "\ud800"])
def test_unsupported_queries_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        literal(text)


def test_no_other_type_becomes_a_literal() -> None:
    for value in (True, {}, object()):
        with pytest.raises(TypeError):
            literal(value)


async def test_values_of_a_query_arrive_as_they_are(storage: PsqlStorage) -> None:
    handle = Handle(storage, "places")
    await handle.create(*(point(f"t{n}", text=text) for n, text in enumerate(TEXTS)))
    for n, text in enumerate(TEXTS):
        where = And((PropertyTest(("properties", "text"), Op.EQ, text),))
        for query in (Query(where=where), Query(where=Not(Not(where)), ids=(f"t{n}",))):
            rows = await rows_of(storage, await storage.plan("places", query))
            assert [row["id"] for row in rows] == [f"t{n}"]


async def test_a_geometry_in_the_query(storage: PsqlStorage, places: Handle) -> None:
    area = shapely.box(-0.5, -0.5, 10.5, 10.5)
    query = Query(spatial=Intersects(shapely.to_wkb(area)))
    rows = await rows_of(storage, await storage.plan("places", query))
    assert len(rows) == await storage.count("places", query) > 0


# ---- Cutting -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sixteen")
async def test_a_large_head_is_cut_by_leaf_and_needs_no_history(
    storage: PsqlStorage, places: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "HEAD_SPLIT_BYTES", 8192)
    planned = await storage.plan("places", Query())
    parts = [payload_of(split) for split in planned]
    assert [(part.source, part.leaves) for part in parts] == [("", leaf) for leaf in LEAVES]
    assert {part.at for part in parts} == {(await places.published()).txn}


async def test_only_the_leaves_of_the_ids_are_read(storage: PsqlStorage, places: Handle) -> None:
    planned = await storage.plan("places", Query(ids=("f1",)))
    assert len(planned) == 1
    assert [row["id"] for row in await rows_of(storage, planned)] == ["f1"]


async def test_few_tombstones_are_one_split(storage: PsqlStorage, places: Handle) -> None:
    await places.delete(*(f"f{n}" for n in range(20)))
    planned = await storage.plan("places", Query(states=States.DELETED))
    assert [payload_of(split).source for split in planned] == ["_del"]
    assert len(await rows_of(storage, planned)) == 20


def cut(start: int, published: int, sizes: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    part = SplitPayload("_hst", start, published, LEAVES, Query())
    found = splits._history(part, start, sizes)
    return [(each.after, each.until, each.leaves) for each in found]


MIB = 1024 * 1024


def test_small_partitions_go_together() -> None:
    assert cut(5, 95, [(n * 10, MIB) for n in range(1, 11)]) == [(5, 95, LEAVES)]


def test_history_is_cut_where_partitions_end() -> None:
    sizes = [(n * 10, 40 * MIB) for n in range(1, 7)]
    ranges = sorted({(after, until) for after, until, _ in cut(5, 55, sizes)})
    assert ranges == [(5, 19), (19, 39), (39, 55)]


def test_a_large_partition_is_cut_by_leaf() -> None:
    found = cut(5, 9, [(10, 250 * MIB)])
    assert {(after, until) for after, until, _ in found} == {(5, 9)}
    assert len(found) == 4
    assert sorted("".join(leaves for *_, leaves in found)) == list(LEAVES)


@pytest.mark.parametrize("size", [0, 1, 63 * MIB, 64 * MIB, 5000 * MIB])
def test_each_leaf_of_each_moment_is_in_one_split(size: int) -> None:
    found = cut(3, 77, [(n, size) for n in (10, 20, 30, 100)])
    for moment in range(1, 80):
        leaves = [leaf for after, until, mine in found if after < moment <= until for leaf in mine]
        assert sorted(leaves) == (list(LEAVES) if 3 < moment <= 77 else [])


async def test_history_is_read_even_if_no_partition_is_known() -> None:
    assert cut(3, 9, []) == [(3, 9, LEAVES)]


@pytest.mark.usefixtures("sixteen")
async def test_many_cuts_still_give_each_state_once(
    storage: PsqlStorage, places: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await places.published()
    for n in range(3):
        await places.upsert(*(point(f"f{k}", n=-n - 1) for k in range(0, 200, n + 1)))
        await places.delete(*(f"f{k}" for k in range(n, 200, 7)))
        await places.upsert(*(point(f"f{k}", n=1000 + n) for k in range(n, 200, 14)))
    monkeypatch.setattr(splits, "SPLIT_BYTES", 8192)
    monkeypatch.setattr(splits, "HEAD_SPLIT_BYTES", 8192)
    for kind in States:
        for at in (AtTxn(first.txn), HEAD):
            query = Query(states=kind)
            planned = await storage.plan("places", query, at)
            wanted = await places.states(query, AtTxn((await storage.resolve(at)).txn))
            found = [(row["id"], row["uuid"]) for row in await rows_of(storage, planned)]
            assert found == [(state.id, state.uuid) for state in wanted]
    assert len(await storage.plan("places", Query(states=States.ALL))) > 40


@pytest.mark.usefixtures("sixteen")
async def test_a_small_collection_is_one_split_and_a_check_has_each_leaf(
    storage: PsqlStorage, places: Handle
) -> None:
    await places.published()
    assert [split.leaf for split in await storage.plan("places", Query())] == [None]
    every = await storage.plan("places", Query(states=States.ALL), hidden=True)
    assert [split.leaf for split in every if split.states is States.LIVE] == list(LEAVES)


# ---- Reading -------------------------------------------------------------------------------------


async def test_an_answer_comes_in_batches(
    storage: PsqlStorage, places: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BULK_BATCH_BYTES", 2000)
    (split, *_) = await storage.plan("places", Query())
    sizes = [batch.num_rows async for batch in storage.read(split)]
    assert len(sizes) > 1
    assert sum(sizes) == len(await rows_of(storage, [split]))


async def test_a_connection_that_was_kept_may_be_gone(
    storage: PsqlStorage, places: Handle, connect: Connect
) -> None:
    planned = await storage.plan("places", Query())
    wanted = await rows_of(storage, planned)
    observer = await connect()
    readers = """SELECT pid, state FROM pg_stat_activity
                  WHERE datname = current_database() AND query = 'COMMIT'
                    AND pid <> pg_backend_pid()"""
    # Streams end with "COMMIT"; the connections of the pool with "COMMIT;".
    (kept,) = await observer.fetch(readers)
    assert kept["state"] == "idle"
    assert await rows_of(storage, planned) == wanted
    assert [row["pid"] for row in await observer.fetch(readers)] == [kept["pid"]]
    assert await observer.fetchval("SELECT pg_terminate_backend($1, 5000)", kept["pid"])
    assert await rows_of(storage, planned) == wanted


async def test_an_aborted_read_leaves_no_connection_open(
    storage: PsqlStorage, places: Handle, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BULK_BATCH_BYTES", 1000)
    (split, *_) = await storage.plan("places", Query())
    stream = storage.read(split)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    watcher = await connect()

    async def nobody_is_in_a_transaction() -> bool:
        count = await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND state <> 'active'"
        )
        return bool(count == 0)

    await until(nobody_is_in_a_transaction)


async def test_history_removed_meanwhile_is_expired_not_missing(
    storage: PsqlStorage, places: Handle
) -> None:
    await places.change(history_enabled=False)
    planned = await storage.plan("places", Query())
    await places.update(point("f0", n="new"))
    with pytest.raises(Expired):
        await rows_of(storage, planned)


async def test_data_lost_during_a_read_raises_at_its_end(
    storage: PsqlStorage, places: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BULK_BATCH_BYTES", 1000)
    await places.change(history_enabled=False)
    (split, *_) = await storage.plan("places", Query())
    stream = storage.read(split)
    await anext(stream)
    await places.update(point("f0", n="new"))
    with pytest.raises(Expired):
        async for _ in stream:
            pass


async def test_a_new_day_between_lock_and_query_hides_nothing(bare: str) -> None:
    clock = MovableClock(1_900_000_000_000)
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    places = Handle(storage, "places")
    await places.create(*(point(f"f{n}", n=n) for n in range(50)))
    wanted = {state.id: state.uuid for state in await places.live()}
    found: dict[str, str] = {}
    for split in await storage.plan("places", Query()):
        reader = await asyncpg.connect(bare)
        before, query = splits.statements(
            '"naksha", public', "places", payload_of(split), ("id", "uuid")
        )
        await reader.execute("BEGIN")
        for statement in before:
            await reader.execute(statement)
        clock.time_ms += DAY_MS
        await places.upsert(*(point(f"f{n}", day=clock.time_ms) for n in range(50)))
        found |= {row["id"]: row["uuid"] for row in await reader.fetch(query)}
        await reader.close()
    await storage.close()
    assert found == wanted


async def test_a_split_is_read_in_another_process(
    storage: PsqlStorage, places: Handle, bare: str
) -> None:
    planned = await storage.plan("places", Query())
    await places.delete(*(f"f{n}" for n in range(100)))
    program = (
        "import asyncio, pickle, sys\n"
        "from naksha.psql import PsqlStorage\n"
        "async def main():\n"
        "    dsn, splits = pickle.load(sys.stdin.buffer)\n"
        "    storage = await PsqlStorage.open(dsn, 'test')\n"
        "    print(sum([b.num_rows for s in splits async for b in storage.read(s)]))\n"
        "    await storage.close()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(pickle.dumps((bare, planned)))
    assert said.strip() == b"200"


async def test_splits_of_others_and_limits_are_refused(
    storage: PsqlStorage, places: Handle
) -> None:
    (split, *_) = await storage.plan("places", Query())
    for wrong in (
        msgspec.structs.replace(split, storage="other"),
        msgspec.structs.replace(split, payload=b"nonsense"),
    ):
        with pytest.raises(InvalidArgument):
            await rows_of(storage, [wrong])
    with pytest.raises(InvalidArgument):
        await storage.plan("places", Query(limit=5))


async def test_a_collection_without_history_can_be_planned(storage: PsqlStorage) -> None:
    info = CollectionInfo(id="plain", history_enabled=False)
    await storage.run(lambda session: session.create_collection(info), "app")
    handle = Handle(storage, "plain")
    await handle.create(point("x"))
    for kind in States:
        planned = await storage.plan("plain", Query(states=kind))
        assert len(await rows_of(storage, planned)) == (kind is not States.DELETED)

"""Conformance: splits return exactly what a query returns; a bulk load acts like any insert."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import shapely
from shapely.geometry import mapping

from naksha.model import limits
from naksha.model.errors import Expired, InvalidArgument
from naksha.model.query import Bbox, Intersects, Op, Query, States, Test, id_hash
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.arrow import COLUMNS, STATES, schema_of
from naksha.spi.storage import Split, Storage, WriteSession
from naksha.testing.models.brute_force import bounds_of
from naksha.testing.models.json_values import same
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    content,
    feature,
    new_collection,
    point,
    seq,
    with_xyz,
)
from naksha.testing.storage.write.suite_geometry import FLAT, raised

COUNT = 60


def name(n: int) -> str:
    return f"k{n:03}"


def some_feature(n: int, value: object = 0) -> dict[str, Any]:
    geometry = (None, FLAT[n % len(FLAT)], raised(FLAT[n % len(FLAT)], n + 0.1))[n % 3]
    made = feature(name(n), geometry, n=n, value=value, text="ü'\\" * (n % 4))
    if n % 6 == 0:
        made |= {"bbox": [n, 1.5, "ü"], "other": {"properties": {"n": 1e-9}, "id": None}}
    return with_xyz(made, tags=[f"t{n % 5}"], crid=f"c{n}" if n % 4 == 0 else None)


@pytest.fixture
async def filled(places: Handle) -> Handle:
    """Sixty features, some of them updated, deleted, or deleted and created again."""
    await places.create(*(some_feature(n) for n in range(COUNT)), author="first")
    await places.update(*(some_feature(n, 1) for n in range(0, COUNT, 3)))
    await places.delete(*(name(n) for n in range(0, COUNT, 5)))
    await places.create(*(some_feature(n, 2) for n in range(0, COUNT, 10)), app="other")
    return places


async def stir(handle: Handle, value: object) -> None:
    """Change, delete and create many features, as concurrent writers would."""
    await handle.upsert(*(some_feature(n, value) for n in range(0, COUNT, 2)))
    await handle.delete(*(name(n) for n in range(1, COUNT, 4)))
    await handle.upsert(*(some_feature(n, value) for n in range(COUNT, COUNT + 10)))
    await handle.upsert(*(some_feature(n, f"{value}!") for n in range(1, COUNT, 8)))


async def rows_of(
    storage: Storage, split: Split, columns: Sequence[str] = COLUMNS.names
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async for batch in storage.read(split, columns):
        assert batch.schema.equals(schema_of(columns))
        rows += pa.Table.from_batches([batch]).to_pylist()
    return rows


async def stirred(handle: Handle) -> Version:
    await stir(handle, "meanwhile")
    return await handle.published()


async def read_all(storage: Storage, splits: list[Split]) -> list[dict[str, Any]]:
    """Return the rows of all splits, ordered by id and txn."""
    rows = [row for split in splits for row in await rows_of(storage, split)]
    return sorted(rows, key=lambda row: (row["id"], row["txn"]))


def check_row(row: dict[str, Any], state: State) -> None:
    """Check that a row of a split equals the state."""
    plain = {key: value for key, value in state.feature.items() if key != "geometry"}
    assert same(msgspec.json.decode(row["feature"]), plain)
    xyz = dict(state.xyz)
    members = {key: value for key, value in plain.items() if key not in ("id", "type")}
    properties = members.pop("properties")
    properties = {key: value for key, value in properties.items() if key != XYZ}
    assert same(msgspec.json.decode(row["properties"]), properties)
    assert (row["members"] is None) == (members == {})
    assert same(msgspec.json.decode(row["members"] or "{}"), members)
    assert (row["id"], row["uuid"], row["txn"]) == (state.id, state.uuid, state.txn)
    assert row["txn_next"] == int(xyz["txn_next"])
    names = {"app_id": "appId", "created_at": "createdAt", "updated_at": "updatedAt"}
    for column in NAMESPACE:
        assert row[column] == xyz[names.get(column, column)], column
    geometry = state.feature["geometry"]
    box = bounds_of(geometry) or (None,) * 4
    assert (row["west"], row["south"], row["east"], row["north"]) == box
    if geometry is None:
        assert row["geometry"] is None
    else:
        shape = shapely.from_wkb(row["geometry"])
        assert same(msgspec.json.decode(msgspec.json.encode(mapping(shape))), geometry)


NAMESPACE = (
    *("puuid", "muuid", "version", "action", "author", "app_id", "created_at", "updated_at"),
    *("rtcts", "rtuts", "tags", "crid", "qrid", "mrid"),
)
"""Columns that are members of the namespace and are compared as they are."""


def check_rows(rows: list[dict[str, Any]], states: list[State]) -> None:
    assert [(row["id"], row["uuid"]) for row in rows] == [(s.id, s.uuid) for s in states]
    for row, state in zip(rows, states, strict=True):
        check_row(row, state)


QUERIES = {
    "live": Query(),
    "deleted": Query(states=States.DELETED),
    "all": Query(states=States.ALL),
    "box": Query(spatial=Bbox(0, 0, 2, 2)),
    "tags": Query(tags=(("t1",), ("t2",))),
    "property": Query(where=Test(("properties", "n"), Op.GT, 30)),
    "ids": Query(ids=(name(1), name(3), "nobody")),
    "authors": Query(authors=("first",), states=States.ALL),
    "no ids": Query(ids=()),
}


class TestSplits:
    @pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
    async def test_splits_together_are_the_answer(self, filled: Handle, query: Query) -> None:
        version = await filled.published()
        await stir(filled, "later")
        last = await filled.published()
        for at, wanted in ((seq(version), version), (HEAD, last)):
            splits = await filled.storage.plan(filled.name, query, at)
            states = await filled.states(query, seq(wanted))
            check_rows(await read_all(filled.storage, splits), states)

    @pytest.mark.parametrize("query", list(QUERIES.values())[:4], ids=list(QUERIES)[:4])
    @pytest.mark.parametrize("past", [False, True])
    async def test_writers_between_plan_and_read_do_not_show(
        self, filled: Handle, query: Query, past: bool
    ) -> None:
        version = await filled.published()
        if past:
            await stir(filled, "before")
            await filled.published()
        at: VersionSelector = seq(version) if past else HEAD
        wanted = await filled.states(query, seq(version))
        splits = await filled.storage.plan(filled.name, query, at)
        rows = []
        for n, split in enumerate(splits):
            if n % 5 == 0:
                await stir(filled, f"between {n}")
            rows += await rows_of(filled.storage, split)
        check_rows(sorted(rows, key=lambda row: (row["id"], row["txn"])), wanted)

    async def test_writers_at_the_same_time_do_not_show(self, filled: Handle) -> None:
        version = await filled.published()
        wanted = await filled.live(seq(version))
        splits = await filled.storage.plan(filled.name, Query())

        async def writer() -> None:
            for n in range(6):
                await stir(filled, n)

        writing = asyncio.create_task(writer())
        read = [await read_all(filled.storage, splits) for _ in range(3)]
        await writing
        for rows in [*read, await read_all(filled.storage, splits)]:
            check_rows(rows, wanted)

    async def test_an_unpublished_transaction_is_not_in_the_plan(self, places: Handle) -> None:
        other = await new_collection(places.storage)
        await places.create(point("x", n=1))
        await places.published()
        async with places.storage.write(APP) as holding_back:
            await holding_back.create(other.name, [point("y")])
            await places.update(point("x", n=2))
            head = await places.storage.resolve(HEAD)
            splits = await places.storage.plan(places.name, Query())
            rows = await read_all(places.storage, splits)
            check_rows(rows, await places.live(seq(head)))

    async def test_splits_are_small_and_travel(
        self, filled: Handle, make_storage: StorageMaker
    ) -> None:
        splits = await filled.storage.plan(filled.name, Query())
        assert all(len(pickle.dumps(split)) < 10_000 for split in splits)
        assert {split.collection for split in splits} == {filled.name}
        travelled: list[Split] = pickle.loads(pickle.dumps(splits))
        second = await make_storage(beside=filled.storage)
        states = await filled.live(seq(await filled.published()))
        check_rows(await read_all(second, travelled), states)

    async def test_another_storage_of_the_same_id_does_not_read_them(self, filled: Handle) -> None:
        """A new storage in place of the first one has other transactions."""
        storage = filled.storage
        for split in await storage.plan(filled.name, Query()):
            assert split.storage == (storage.id, storage.number)
            foreign = msgspec.structs.replace(split, storage=(storage.id, storage.number ^ 1))
            with pytest.raises(InvalidArgument) as caught:
                await rows_of(storage, foreign)
            assert caught.value.field == "split"

    async def test_any_columns_in_any_order(self, filled: Handle) -> None:
        last = await filled.published()
        area = Intersects(shapely.to_wkb(shapely.box(-10, -10, 20, 20)))
        across = Query(spatial=Bbox(1.0, -90, 0.5, 90))
        for query in (Query(), across, Query(states=States.ALL), Query(spatial=area)):
            splits = await filled.storage.plan(filled.name, query, seq(last))
            for columns in (("version", "id"), ("txn_next", "txn", "geometry"), ("action",)):
                rows = [r for s in splits for r in await rows_of(filled.storage, s, columns)]
                wanted = [row for s in splits for row in await rows_of(filled.storage, s)]
                assert sorted(map(str, rows)) == sorted(
                    str({k: r[k] for k in columns}) for r in wanted
                )
            batches = [b for s in splits async for b in filled.storage.read(s)]
            assert {b.schema for b in batches} == {STATES}

    @pytest.mark.parametrize("columns", [("id", "nobody"), (), ("id", "id")])
    async def test_unknown_columns_are_refused(
        self, places: Handle, columns: tuple[str, ...]
    ) -> None:
        (split, *_) = await places.storage.plan(places.name, Query())
        with pytest.raises(InvalidArgument) as caught:
            await rows_of(places.storage, split, columns)
        assert caught.value.field == "columns"

    async def test_states_have_the_version_that_created_them(self, filled: Handle) -> None:
        versions = {t.txn: t.seq_number for t in await filled.storage.transactions()}
        last = await filled.published()
        splits = await filled.storage.plan(filled.name, Query(states=States.ALL), seq(last))
        rows = await read_all(filled.storage, splits)
        assert {row["txn"]: row["seq_number"] for row in rows}.items() <= versions.items()
        assert len({row["seq_number"] for row in rows}) == 4

    async def test_states_of_selected_transactions(self, filled: Handle) -> None:
        first, last = await filled.published(), await stirred(filled)
        await stir(filled, "later")
        query = Query(states=States.ALL, txn_from=first.txn + 1, txn_to=last.txn + 1)
        splits = await filled.storage.plan(filled.name, query, seq(last))
        await stir(filled, "after the plan")
        rows = await read_all(filled.storage, splits)
        check_rows(rows, await filled.states(query, seq(last)))
        assert {row["action"] for row in rows} == {"CREATE", "UPDATE", "DELETE"}

    async def test_large_features_come_in_small_batches(
        self, places: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader need not have memory for all of them at once."""
        size, most = 20_000, 100_000
        monkeypatch.setattr(limits, "BULK_BATCH_BYTES", most)
        some = [point(name(n), text="x" * size) for n in range(COUNT)]
        await places.create(*some, *(point(f"small {n}") for n in range(COUNT)))
        await places.published()
        splits = await places.storage.plan(places.name, Query())
        found = [b for s in splits async for b in places.storage.read(s, ["id", "feature"])]
        assert sum(batch.num_rows for batch in found) == 2 * COUNT
        assert max(batch.nbytes for batch in found) <= most + 2 * size
        assert len(found) < COUNT

    async def test_an_empty_collection(self, places: Handle) -> None:
        splits = await places.storage.plan(places.name, Query())
        assert await read_all(places.storage, splits) == []

    async def test_hidden_states_come_with_all_others(self, places: Handle) -> None:
        async def work(session: WriteSession) -> list[str | None]:
            made = await session.create(places.name, [point("x", n=1), point("y")])
            again = await session.update(places.name, [point("x", n=2)])
            gone = await session.delete(places.name, ["x", "y"])
            back = await session.create(places.name, [point("y", n=3)])
            return [outcome.uuid for outcome in (*made, *again, *gone, *back)]

        uuids = await places.write(work)
        at = seq(await places.published())
        await places.update(point("y", n=4))
        await places.published()
        plan = places.storage.plan
        splits = await plan(places.name, Query(states=States.ALL), at, hidden=True)
        rows = await read_all(places.storage, splits)
        # A storage may also return a backup of the tombstone.
        assert sorted({row["uuid"] for row in rows}) == sorted(map(str, uuids))
        spans = {row["uuid"]: xyz_of(row)["txn_next"] for row in rows}
        txn = str(rows[0]["txn"])
        assert [spans[str(uuid)] for uuid in uuids[:3]] == [txn] * 3
        assert spans[str(uuids[-1])] == "0"
        seen = await read_all(places.storage, await plan(places.name, Query(states=States.ALL), at))
        assert [row["uuid"] for row in seen] == [uuids[3], uuids[5]]
        for query in (Query(), Query(states=States.DELETED), Query(replaced_since=1)):
            with pytest.raises(InvalidArgument, match="hidden=True requires a query"):
                await plan(places.name, query, hidden=True)


class TestSplitsOfMain:
    """Reads by maintenance of a whole collection."""

    async def test_remaining_history_is_read_although_some_expired(self, filled: Handle) -> None:
        """Without history the next write removes the planned version of the feature."""
        await filled.change(history_enabled=False)
        at, query = seq(await filled.published()), Query(states=States.ALL)
        plan = filled.storage.plan
        splits = await plan(filled.name, query, at, hidden=True)
        before = {row["uuid"]: row["id"] for row in await read_all(filled.storage, splits)}
        changed = name(21)
        await filled.update(point(changed, n=-1))
        await filled.published()
        gone = [uuid for uuid, id_ in before.items() if id_ == changed]
        for again in (splits, await plan(filled.name, query, at, hidden=True)):
            left = {row["uuid"] for row in await read_all(filled.storage, again)}
            assert left < before.keys()
            assert before.keys() - left < set(gone)
        with pytest.raises(Expired):
            await read_all(filled.storage, await plan(filled.name, query, at))

    async def test_states_stored_twice_are_equal(self, filled: Handle) -> None:
        """Columns that repeat stored content agree with it, also for overwritten states."""

        async def work(session: WriteSession) -> None:
            await session.upsert(filled.name, [some_feature(n, "twice") for n in range(COUNT)])
            await session.upsert(filled.name, [point(name(n), n=n) for n in range(0, COUNT, 2)])
            await session.delete(filled.name, [name(n) for n in range(0, COUNT, 7)])

        await filled.write(work)
        await filled.restore(name(7))
        await filled.published()
        await filled.purge(name(14))
        await filled.published()
        assert await filled.storage.mismatches(filled.name, 10) == []

    async def test_splits_describe_their_table(self, filled: Handle) -> None:
        await filled.published()
        query = Query(states=States.ALL)
        splits = [
            *await filled.storage.plan(filled.name, query),
            *await filled.storage.plan(filled.name, query, hidden=True),
        ]
        assert {split.states for split in splits} == set(States)
        for split in splits:
            rows = await rows_of(filled.storage, split)
            actions = {row["action"] for row in rows}
            ended = {xyz_of(row)["txn_next"] != "0" for row in rows}
            if split.states is States.LIVE:
                assert actions <= {"CREATE", "UPDATE"}
            elif split.states is States.DELETED:
                assert actions == {"DELETE"}
            assert ended <= {split.states is States.ALL}
            if split.leaf is not None:
                assert {id_hash(row["id"])[0] for row in rows} <= {split.leaf}


def xyz_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the namespace of a row of a split."""
    found: dict[str, Any] = msgspec.json.decode(row["feature"])["properties"][XYZ]
    return found


def comparable(state: State) -> dict[str, Any]:
    """Return a state without the values that differ between any two inserts."""
    xyz = dict(state.xyz)
    for key in ("txn", "uuid", "createdAt", "updatedAt", "rtcts", "rtuts"):
        assert xyz.pop(key)
    return content(state) | {"xyz": xyz}

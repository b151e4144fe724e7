"""Branches: overlays that are filled from below and read through layers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import shapely

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureExists,
    InUse,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
    NotSupported,
)
from naksha.model.query import Bbox, Intersects, Query, States
from naksha.model.transaction import MAIN, LogFilter
from naksha.model.version import HEAD, AtTxn
from naksha.psql import PsqlStorage
from naksha.psql.read.layers import visible
from naksha.spi.storage import BranchLayer, Split, Storage, WriteSession
from naksha.testing.storage.suite_support import feature, point, published, with_xyz
from tests.psql.read.branches import (
    APP,
    EVERY,
    Branch,
    Twin,
    all_of,
    get,
    new_branch,
    put,
    remove,
)
from tests.psql.support import Connect

# ---- What a branch looks like ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
async def test_a_branch_looks_like_a_collection_with_the_same_edits(
    storage: PsqlStorage, seed: int
) -> None:
    twin = Twin(storage, "roads", "places", seed)
    for _ in range(8):
        await twin.edit()
    one = await new_branch(storage)
    twin.onto(one)
    await twin.check()
    for _ in range(8):
        await twin.edit()
        await twin.disturb(storage)
    await twin.check()
    two = await new_branch(storage, one)
    twin.onto(two)
    for _ in range(8):
        await twin.edit()
        await twin.disturb(one.storage)
        await twin.disturb(storage)
    await twin.check()


async def test_the_first_write_follows_the_state_below(branch: Branch) -> None:
    below = await get(branch.storage, "b")
    assert below.xyz["txn_next"] == "0"
    await put(branch.storage, point("b", n=2))
    state = await get(branch.storage, "b")
    assert (state.xyz["version"], state.xyz["puuid"]) == (2, below.uuid)
    assert state.xyz["createdAt"] == below.xyz["createdAt"]
    assert state.uuid.startswith("test:roads:")
    await remove(branch.storage, "b")
    (tomb,) = await all_of(branch.storage, Query(states=States.DELETED, ids=("b",)))
    assert (tomb.xyz["version"], tomb.xyz["puuid"]) == (3, state.uuid)


async def test_state_ids_are_unique_and_lock_on_the_branch(
    storage: PsqlStorage, branch: Branch
) -> None:
    below = await get(branch.storage, "b")
    with pytest.raises(Conflict) as caught:
        lock = (await get(storage, "b")).uuid
        await put(branch.storage, with_xyz(point("b", n="lost"), uuid=lock))
    assert caught.value.head == below.feature
    await put(branch.storage, with_xyz(point("b", n="won"), uuid=below.uuid))
    await put(storage, point("b", n="main again"))
    states = await all_of(storage, EVERY[States.ALL]) + await all_of(branch.storage, Query())
    by_uuid: dict[str, set[Any]] = {}
    for state in states:
        told = (state.id, state.xyz["version"], state.txn)
        by_uuid.setdefault(state.uuid, set()).add(told)
    assert all(len(told) == 1 for told in by_uuid.values())


async def test_merging_on_a_branch(branch: Branch) -> None:
    base = await get(branch.storage, "a")
    await put(branch.storage, point("a", 1, 1, n=2, mine=True))
    await branch.storage.run(
        lambda s: s.update("roads", [with_xyz(point("a", 1, 1, n=3), uuid=base.uuid)], merge=True),
        APP,
    )
    merged = await get(branch.storage, "a")
    assert merged.feature["properties"]["n"] == 3
    assert merged.feature["properties"]["mine"] is True
    assert merged.xyz["muuid"] == base.uuid


async def test_states_are_found_by_their_id_wherever_they_are(
    storage: PsqlStorage, branch: Branch
) -> None:
    await put(branch.storage, point("b", n=2), point("new"))
    states = [await get(branch.storage, id) for id in ("b", "new")]
    await put(branch.storage, point("b", n=3))
    await remove(branch.storage, "new")
    states += await all_of(branch.storage, EVERY[States.DELETED])
    for state in states:
        for reader in (storage, branch.storage):
            assert (await reader.state(state.uuid)).xyz["version"] == state.xyz["version"]
    with pytest.raises(NotFound):
        await storage.state(re.sub(r"\d+$", "999999", states[0].uuid))


async def test_places_are_looked_for_on_both_sides(branch: Branch) -> None:
    await put(branch.storage, point("b", 5, 5), point("new", 5.2, 5.2))
    box = shapely.box(4, 4, 6, 6)
    for spatial in (Bbox(4.0, 4.0, 6.0, 6.0), Intersects(box.wkb)):
        query = Query(spatial=spatial)
        assert [s.id for s in await all_of(branch.storage, query)] == ["b", "new"]
        assert await branch.storage.count("roads", query) == 2
    old = Query(spatial=Bbox(0.5, 0.5, 2.5, 2.5))
    assert [s.id for s in await all_of(branch.storage, old)] == ["a"]


async def test_versions_before_the_branch_are_those_of_main(
    storage: PsqlStorage, branch: Branch
) -> None:
    await put(branch.storage, point("a", n=7), point("c", n=7))
    await published(storage)
    base = branch.layers[-1].txn
    versions = [t.txn for t in await storage.transactions() if t.txn <= (base or 0)]
    assert len(versions) == 4
    for txn in versions:
        for query in EVERY.values():
            ours = await all_of(branch.storage, query, txn)
            assert [s.raw for s in ours] == [s.raw for s in await all_of(storage, query, txn)]


async def test_a_session_sees_the_branch_and_its_own_writes(
    storage: PsqlStorage, branch: Branch
) -> None:
    async with branch.storage.write(APP) as session:
        assert await session.count("roads", Query()) == 2
        await session.upsert("roads", [point("b", n=5), point("new")])
        await session.delete("roads", ["a"])
        seen = [s.id async for s in session.states("roads", Query())]
        assert sorted(seen) == ["b", "new"]
        page = await session.page("roads", Query(states=States.ALL, limit=100))
        assert [s.id for s in page.states] == ["a", "a", "a", "b", "b", "c", "c", "new"]
        assert await branch.storage.count("roads", Query()) == 2
    assert [s.id for s in await all_of(branch.storage, Query())] == ["b", "new"]
    assert len(await all_of(storage, Query())) == 3


async def test_a_purged_feature_stays_hidden(storage: PsqlStorage, branch: Branch) -> None:
    await remove(branch.storage, "b")
    await published(storage)
    (outcome,) = await branch.storage.run(lambda s: s.purge("roads", ["b"]), APP)
    assert outcome.action == "PURGED"
    for kind in (States.LIVE, States.DELETED):
        assert await all_of(branch.storage, Query(states=kind, ids=("b",))) == []
    await put(branch.storage, point("b", n="again"))
    assert (await get(branch.storage, "b")).xyz["version"] == 1


async def test_bulk_reads_give_the_same(storage: PsqlStorage, branch: Branch) -> None:
    await put(branch.storage, point("b", n=2), point("new"))
    await remove(branch.storage, "a")
    await published(storage)
    versions = [t.txn for t in await storage.transactions(where=LogFilter(overlays=None))]
    for txn in (versions[1], *versions[-2:]):
        for query in EVERY.values():
            splits = await branch.storage.plan("roads", query, AtTxn(txn))
            await put(branch.storage, point("c", n=txn))  # Moves another feature up meanwhile.
            found = await rows_of(storage, splits)
            wanted = await all_of(branch.storage, query, txn)
            assert sorted(found) == sorted((s.id, s.uuid, s.txn) for s in wanted)


async def test_partitioning(storage: PsqlStorage, branch: Branch) -> None:
    await put(branch.storage, point("b", n=2), feature("nowhere"))
    await published(storage)
    found = await branch.storage.partitioning("roads")
    assert found.pop("") == 1
    assert sum(found.values()) == 2


async def rows_of(storage: Storage, splits: list[Split]) -> list[tuple[str, str, int]]:
    return [
        (row["id"], row["uuid"], row["txn"])
        for split in splits
        async for batch in storage.read(split)
        for row in batch.to_pylist()
    ]


# ---- The log and the collections ---------------------------------------------------------------


async def test_the_log_says_where_a_transaction_wrote(storage: PsqlStorage, branch: Branch) -> None:
    before = await published(storage)

    async def work(session: WriteSession) -> None:
        await session.message("about", "on the branch")
        await session.upsert("roads", [point("a", 40, 40), point("new", 50, 50)])
        await session.delete("roads", ["b"])

    await branch.storage.run(work, APP, "ann")
    await put(storage, point("x"))
    await published(storage)
    (main,) = await storage.transactions(before.seq_number)
    (ours,) = await branch.storage.transactions(before.seq_number)
    everywhere = await storage.transactions(before.seq_number, where=LogFilter(overlays=None))
    assert [main.overlay, ours.overlay] == [MAIN, branch.overlay]
    assert everywhere == [ours, main]
    assert await branch.storage.transaction(ours.txn) == ours
    changes = {s.id: s for s in ours.signals}
    assert set(changes) == {"about", "roads"}
    signal = changes["roads"]
    assert (signal.created, signal.updated, signal.deleted) == (1, 1, 1)
    assert signal.bbox == (1.0, 1.0, 50.0, 50.0)
    assert await branch.storage.transactions(where=LogFilter(authors=("ann",))) == [ours]


async def test_overlays_are_not_collections(
    storage: PsqlStorage, branch: Branch, connect: Connect
) -> None:
    await put(branch.storage, point("a", n=7))
    for reader in (storage, branch.storage):
        names = [info.id for info in await reader.collections(dropped=True)]
        assert names == ["places", "roads"]
        with pytest.raises(CollectionNotFound):
            await reader.collection(f"naksha_o{branch.overlay}_1")
    shell = await connect()
    comment = await shell.fetchval(
        "SELECT count(*) FROM pg_class c JOIN pg_description d ON d.objoid = c.oid"
        " WHERE c.relname LIKE 'naksha\\_o%'"
    )
    assert comment == 0


async def test_collections_are_those_of_the_base(storage: PsqlStorage, branch: Branch) -> None:
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="later")), APP)
    await put(storage, point("x"), name="later")
    assert [info.id for info in await branch.storage.collections()] == ["places", "roads"]
    for call in (
        branch.storage.collection("later"),
        branch.storage.count("later", Query()),
        branch.storage.resolve(HEAD, "later"),
        branch.storage.plan("later", Query()),
        put(branch.storage, point("x"), name="later"),
    ):
        with pytest.raises(CollectionNotFound):
            await call


async def test_operations_on_main_only_are_refused_on_a_branch(branch: Branch) -> None:
    for work in (
        lambda s: s.create_collection(CollectionInfo(id="more")),
        lambda s: s.change_collection("roads", CollectionChange(author="me")),
        lambda s: s.drop_collection("roads"),
        lambda s: s.restore_collection("roads"),
    ):
        with pytest.raises(NotSupported, match="main"):
            await branch.storage.run(work, APP)


async def test_the_base_is_guarded(storage: PsqlStorage, branch: Branch) -> None:
    with pytest.raises(InUse, match=f"branch {branch.overlay}"):
        await storage.run(lambda s: s.drop_collection("roads"), APP)


async def test_without_history_nothing_can_be_written(storage: PsqlStorage) -> None:
    change = CollectionChange(history_enabled=False)
    await storage.run(lambda s: s.change_collection("places", change), APP)
    branch = await new_branch(storage)
    with pytest.raises(NotSupported, match="history"):
        await put(branch.storage, point("x"), name="places")


async def test_a_change_of_the_collection_holds_on_the_branch(
    storage: PsqlStorage, branch: Branch
) -> None:
    await put(branch.storage, point("a", n=7))
    change = CollectionChange(id_prefix="urn:", author="the boss")
    await storage.run(lambda s: s.change_collection("roads", change), APP)
    await put(branch.storage, point("urn:a", n=8), point("urn:new"))
    assert (await get(branch.storage, "a")).xyz["version"] == 4
    assert (await get(branch.storage, "new")).xyz["author"] == "the boss"


# ---- Layers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [BranchLayer(1, None)],
        [BranchLayer(MAIN, None), BranchLayer(1, 5)],
        [BranchLayer(1, None), BranchLayer(MAIN, None)],
        [BranchLayer(1, None), BranchLayer(1, 5), BranchLayer(MAIN, 4)],
        [BranchLayer(-1, None), BranchLayer(MAIN, 4)],
        [BranchLayer(2, None), BranchLayer(1, 4), BranchLayer(MAIN, 5)],
    ],
)
async def test_invalid_layers_are_refused(storage: PsqlStorage, layers: list[BranchLayer]) -> None:
    with pytest.raises(InvalidArgument):
        storage.on_branch(layers)


async def test_how_deep_branches_may_be(storage: PsqlStorage) -> None:
    parts = [BranchLayer(n, 100 - n if n else None) for n in (0, *range(1, 9))]
    layers = [BranchLayer(n + 1, part.txn) for n, part in enumerate(parts)]
    with pytest.raises(LimitExceeded):
        storage.on_branch([*layers, BranchLayer(MAIN, 1)])


def test_a_version_chooses_its_layers() -> None:
    branch = (BranchLayer(2, None), BranchLayer(1, 20), BranchLayer(MAIN, 10))
    assert visible(branch, None) == branch
    assert visible(branch, 25) == (BranchLayer(2, 25), BranchLayer(1, 20), BranchLayer(MAIN, 10))
    assert visible(branch, 20) == (BranchLayer(1, 20), BranchLayer(MAIN, 10))
    assert visible(branch, 15) == (BranchLayer(1, 15), BranchLayer(MAIN, 10))
    assert visible(branch, 10) == (BranchLayer(MAIN, 10),)
    assert visible(branch, 7) == (BranchLayer(MAIN, 7),)
    assert visible(branch[1:], 99) == branch[1:]
    assert visible(branch[1:], None) == branch[1:]


async def test_a_branch_of_the_greatest_depth(storage: PsqlStorage) -> None:
    await put(storage, point("x", n=0))
    branch: Branch | None = None
    for n in range(1, 9):
        branch = await new_branch(storage, branch)
        await put(branch.storage, point("x", n=n), point(f"y{n}"))
    assert branch is not None
    assert (await get(branch.storage, "x")).xyz["version"] == 9
    assert await branch.storage.count("roads", Query()) == 9
    assert len(await all_of(branch.storage, Query(ids=("x",), states=States.ALL))) == 9


async def test_the_topmost_layer_may_be_fixed_for_reading(
    storage: PsqlStorage, branch: Branch
) -> None:
    await put(branch.storage, point("a", n=7))
    version = await published(storage)
    await put(branch.storage, point("a", n=8))
    fixed = storage.on_branch([BranchLayer(branch.overlay, version.txn), *branch.layers[1:]])
    assert (await get(fixed, "a")).feature["properties"]["n"] == 7
    with pytest.raises(InvalidArgument):
        await put(fixed, point("a", n=9))


async def test_errors_on_a_branch_name_the_collection(branch: Branch) -> None:
    with pytest.raises(FeatureExists) as caught:
        await branch.storage.run(lambda s: s.create("roads", [point("a")]), APP)
    error: NakshaError = caught.value
    assert (error.collection_id, error.feature_id) == ("roads", "a")

"""Branches for tests: created as `naksha.versioning` does, and compared with a twin on main."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from naksha.model.errors import NakshaError
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtTxn
from naksha.psql import PsqlStorage
from naksha.spi.storage import BranchLayer, Storage, WriteSession
from naksha.testing.storage.suite_support import content, in_order, point, published

APP = "app"
IDS = [f"f{n}" for n in range(6)]
EVERY = {kind: Query(states=kind) for kind in States}


class Branch(NamedTuple):
    """A branch: its layers, and the storage as it sees it."""

    layers: list[BranchLayer]
    storage: Storage

    @property
    def overlay(self) -> int:
        return self.layers[0].overlay


async def new_branch(storage: PsqlStorage, parent: Branch | None = None) -> Branch:
    """A branch of main, or of another branch, from the last version on."""
    base = await published(storage)
    below = [BranchLayer(MAIN, base.txn)]
    if parent is not None:
        below = [BranchLayer(parent.overlay, base.txn), *parent.layers[1:]]

    async def work(session: WriteSession) -> int:
        overlay = await session.new_overlay()
        await session.pin(f"branch {overlay}", base, guards=True)
        return overlay

    layers = [BranchLayer(await storage.run(work, APP), None), *below]
    return Branch(layers, storage.on_branch(layers))


async def put(storage: Storage, *features: dict[str, Any], name: str = "roads") -> None:
    await storage.run(lambda s: s.upsert(name, features), APP)


async def remove(storage: Storage, *ids: str) -> None:
    await storage.run(lambda s: s.delete("roads", ids), APP)


async def get(storage: Storage, id: str) -> State:
    (state,) = [s async for s in storage.states("roads", Query(ids=(id,)))]
    return state


async def all_of(storage: Storage, query: Query, txn: int | None = None) -> list[State]:
    at = HEAD if txn is None else AtTxn(txn)
    return in_order([state async for state in storage.states("roads", query, at)])


async def raw_of(storage: Storage, txn: int) -> list[bytes]:
    return [state.raw for state in await all_of(storage, EVERY[States.ALL], txn)]


async def edited_branch(storage: PsqlStorage) -> Branch:
    """A branch of a collection with three features, one of them deleted and one changed since."""
    await put(storage, point("a", 1, 1, n=1), point("b", 2, 2, n=1), point("c", 3, 3, n=1))
    await put(storage, point("a", 1, 1, n=2))
    await remove(storage, "c")
    branch = await new_branch(storage)
    await put(storage, point("b", 9, 9, n="main"), point("later", 1, 1))
    return branch


class Twin:
    """The same edits in a collection on a branch and in one on main; both must look the same.

    Numbers of states and transactions differ, so a state is known by its feature and version and a
    transaction by the edit that it was."""

    def __init__(self, storage: PsqlStorage, collection: str, plain: str, seed: int) -> None:
        self.storage = storage
        self.random = random.Random(seed)
        self.sides: list[tuple[Storage, str]] = [(storage, collection), (storage, plain)]
        self.edits: list[list[int | None]] = [[], []]
        """The transactions of each side; None for an edit that changed nothing."""

    def onto(self, branch: Branch) -> None:
        """From now on the first side is on a branch."""
        self.sides[0] = (branch.storage, self.sides[0][1])

    def draw(self) -> tuple[str, list[str], int]:
        ops = ["create", "update", "upsert", "upsert", "delete", "delete", "restore", "purge"]
        ids = self.random.sample(IDS, self.random.randint(1, 3))
        return self.random.choice(ops), ids, self.random.randint(0, 3)

    async def edit(self) -> None:
        """One edit, with the same outcome on both sides."""
        edit = self.draw()
        await published(self.storage)  # A purge takes what is published.
        outcomes = []
        for side, (storage, name) in enumerate(self.sides):
            txn, outcome = await apply(storage, name, edit)
            self.edits[side].append(txn)
            outcomes.append(outcome)
        assert outcomes[0] == outcomes[1], edit

    async def disturb(self, storage: Storage) -> None:
        """An edit that the branch must not see."""
        await apply(storage, self.sides[0][1], self.draw())

    async def check(self) -> None:
        """Both sides are the same at HEAD and after every edit."""
        await published(self.storage)
        assert await self.seen(0, None) == await self.seen(1, None)
        for n, (left, right) in enumerate(zip(*self.edits, strict=True)):
            assert (left is None) == (right is None)
            if left is not None:
                assert await self.seen(0, n) == await self.seen(1, n), n

    async def seen(self, side: int, edit: int | None) -> dict[str, list[Any]]:
        storage, name = self.sides[side]
        txn = None if edit is None else self.edits[side][edit]
        every = await read(storage, name, States.ALL, None)
        known = {state.uuid: (state.id, state.xyz["version"]) for state in every}
        return {
            kind: [self.told(side, s, known) for s in await read(storage, name, kind, txn)]
            for kind in States
        }

    def told(self, side: int, state: State, known: dict[str, Any]) -> Any:
        xyz = state.xyz
        edits = self.edits[side]
        end = int(xyz["txn_next"])
        return (
            state.id,
            content(state),
            (xyz["action"], xyz["version"]),
            known.get(xyz["puuid"]) if xyz["puuid"] else None,
            edits.index(state.txn),
            edits.index(end) if end else None,
        )


async def read(storage: Storage, name: str, kind: States, txn: int | None) -> list[State]:
    """All states, read in each way there is; all must agree."""
    query = Query(states=kind)
    at = () if txn is None else (AtTxn(txn),)
    found = in_order([state async for state in storage.states(name, query, *at)])
    assert await storage.count(name, query, *at) == len(found)
    paged: list[State] = []
    cursor: str | None = None
    while True:
        page = await storage.page(name, Query(states=kind, limit=3, cursor=cursor), *at)
        paged += page.states
        cursor = page.cursor
        if cursor is None:
            break
    assert [state.raw for state in paged] == [state.raw for state in found]
    for id in IDS:
        one = [s async for s in storage.states(name, Query(states=kind, ids=(id,)), *at)]
        assert [s.raw for s in in_order(one)] == [s.raw for s in found if s.id == id]
    return found


async def apply(
    storage: Storage, name: str, edit: tuple[str, list[str], int]
) -> tuple[int | None, list[str] | type[NakshaError]]:
    """Do an edit in a transaction of its own; gives its number, and what came of it."""
    op, ids, n = edit
    values: list[Any] = [point(id, n, n, n=n) for id in ids]
    txn: int | None = None

    async def work(session: WriteSession) -> list[str]:
        nonlocal txn
        given = values if op in ("create", "update", "upsert") else ids
        outcomes = await getattr(session, op)(name, given)
        txn = session.txn
        return [outcome.action for outcome in outcomes]

    try:
        actions = await storage.run(work, APP)
    except NakshaError as error:
        return None, type(error)
    return txn, actions

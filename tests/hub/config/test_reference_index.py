"""The index of references: equal to a scan of all objects, while reading only changes."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from naksha.catalog.entities import Entities, EntityEdit, EntitySnapshot
from naksha.catalog.objects import Object, ObjectRef
from naksha.catalog.persistence import Persistence
from naksha.hub.auth.rights import all_rights
from naksha.hub.config.objects import (
    Connector,
    Extends,
    HubObject,
    ProcessorRef,
    Space,
    StorageChoice,
    patched,
)
from naksha.hub.config.reference_index import ReferenceIndex, Term, owned_by
from naksha.hub.config.references import stored_in, stored_references_of
from naksha.hub.config.space_changes import (
    change_connector,
    change_space,
    create_space,
    remove_space,
)
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor, UsageLimits
from naksha.hub.subscriptions.objects import ChangeSource, Subscription
from naksha.memory import MemoryCatalog
from naksha.model.errors import Retryable
from naksha.testing.catalog.suite_commits import persistence_on
from tests.hub.realms import ADMIN, a_realm

IDS: Final = [f"o{number}" for number in range(6)]
STORAGES: Final = ["default", "s"]
COLLECTIONS: Final = ["shared", "split"]
LIMITED: Final = Actor(app_id="tests", rights=all_rights(), limits=UsageLimits(max_spaces=1_000))


# ---- What it says --------------------------------------------------------------------------------


def a_space(id: str, choice: random.Random) -> Space:
    properties: dict[str, Any] = choice.choice([{}, {"collection": choice.choice(COLLECTIONS)}])
    plain = Space(id=id, owner=choice.choice(["ann", "bob"]), properties=properties)
    other = choice.choice(IDS)
    more: dict[str, Any] = choice.choice(
        [
            {},
            {"storage": StorageChoice("s", properties)},
            {"storage": StorageChoice("virtualspace", {"virtualspace": {"group": [other]}})},
            {"storage": StorageChoice("virtualspace", {"virtualspace": "damaged"})},
            {"extends": Extends(other)},
            {"event_handler_ids": tuple(choice.sample(IDS, choice.randint(1, 3)))},
            {"processors": [msgspec.to_builtins(ProcessorRef(id=other))]},
        ]
    )
    return msgspec.structs.replace(plain, **more)


def a_connector(id: str, choice: random.Random) -> Connector:
    collections = {"road": "split", "rail": "shared"}
    made: list[tuple[str, dict[str, Any]]] = [
        ("storage", {}),
        ("storage", {"storageId": "s"}),
        ("storage", {"collection": "shared"}),
        ("storage", {"collection": 7}),
        ("type-splitter", {"property": "properties.kind", "collections": collections}),
        ("to-space", {"spaceId": choice.choice(IDS)}),
        ("to-space", {}),
        ("view", {"spaceIds": choice.sample(IDS, 2)}),
        ("acme:unknown", {"deep": [{"storageId": "s"}]}),
    ]
    class_name, properties = choice.choice(made)
    return Connector(id=id, class_name=class_name, properties=properties)


def a_subscription(id: str, choice: random.Random) -> Subscription:
    source = choice.choice(
        [ChangeSource(space_id=choice.choice(IDS)), ChangeSource(storage_id="s")]
    )
    handlers = tuple(choice.sample(IDS, 1))
    return Subscription(id=id, source=source, event_handler_ids=handlers)


MAKERS: Final[dict[type[HubObject], Callable[[str, random.Random], HubObject]]] = {
    Space: a_space,
    Connector: a_connector,
    Subscription: a_subscription,
}


async def expected(snapshot: EntitySnapshot) -> dict[Term, set[str]]:
    """The references of all objects, by reading each object."""
    found: dict[Term, set[str]] = {}
    for kind in MAKERS:
        async for key, one in snapshot.list(f"{kind.kind}/", kind):
            terms: set[Term] = {name.key for name in stored_references_of(one.value)}
            if isinstance(one.value, Space):
                terms |= {owned_by(one.value.owner), *await places_of(snapshot, one.value)}
            for term in terms:
                found.setdefault(term, set()).add(key)
    return found


async def places_of(snapshot: EntitySnapshot, space: Space) -> set[Term]:
    without = msgspec.structs.replace(space, processors=None)
    try:
        return {each.place for each in await stored_in(snapshot, without)}
    except Exception:  # noqa: BLE001 - one that cannot serve requests
        return set()


ALL_TERMS: Final[list[Term]] = [
    *(f"{kind}/{id}" for kind in ("space", "connector") for id in IDS),
    *(f"storage/{id}" for id in STORAGES),
    *((storage, id) for storage in STORAGES for id in (*COLLECTIONS, *IDS)),
    *(owned_by(owner) for owner in ("ann", "bob", "nobody")),
]


async def check(index: ReferenceIndex, snapshot: EntitySnapshot) -> None:
    right = await expected(snapshot)
    assert right.keys() <= set(ALL_TERMS)
    for term in ALL_TERMS:
        assert await index.keys(snapshot, term) == right.get(term, set()), term


class _GivenUp(Exception):
    """An edit that is not committed."""


class Instance:
    """A hub among several: its entities and its index."""

    def __init__(self, persistence: Persistence, seed: int) -> None:
        self.entities = Entities(persistence, "config")
        self.index = ReferenceIndex()
        self.choice = random.Random(seed)

    async def change(self) -> None:
        """Change some objects; the index is asked in the middle of it."""

        async def work(edit: EntityEdit) -> None:
            for _ in range(self.choice.randint(1, 3)):
                kind, id = self.choice.choice([*MAKERS]), self.choice.choice(IDS)
                key = f"{kind.kind}/{id}"
                if self.choice.random() < 0.3:
                    edit.remove(key)
                else:
                    edit.put(key, MAKERS[kind](id, self.choice))
                if self.choice.random() < 0.5:
                    await check(self.index, edit)
            if self.choice.random() < 0.2:
                raise _GivenUp

        with suppress(_GivenUp, Retryable):
            await self.entities.commit(work)


async def instances(count: int) -> list[Instance]:
    backend = await MemoryCatalog.open("memory:")
    await persistence_on(backend, "tests").ensure_pointers(["config"])
    return [Instance(persistence_on(backend, "tests"), seed) for seed in range(count)]


async def test_the_index_equals_a_scan_of_all_objects() -> None:
    """Also about edits, about attempts that came to nothing, and about earlier states."""
    (only,) = await instances(1)
    kept = []
    for _ in range(80):
        await only.change()
        snapshot = await only.entities.now()
        kept.append(snapshot)
        await check(only.index, snapshot)
        await check(only.index, only.choice.choice(kept))


async def test_it_follows_the_commits_of_other_instances() -> None:
    first, second = await instances(2)
    for commits in (1, 2, 3, 5, 8, 30, 0, 45, 1):
        for _ in range(commits):
            await second.change()
        await check(first.index, await first.entities.now())
        await first.change()
        await check(second.index, await second.entities.now())


async def test_it_follows_the_attempt_that_wins() -> None:
    """Of instances that commit at once, most stand on a head that never was."""
    several = await instances(3)

    async def work(one: Instance) -> None:
        for _ in range(10):
            await asyncio.gather(one.change(), one.change())
            await check(one.index, await one.entities.recent())

    await asyncio.gather(*(work(one) for one in several))
    for one in several:
        await check(one.index, await one.entities.now())


async def test_a_look_up_that_is_cancelled_leaves_it_right() -> None:
    (only,) = await instances(1)
    for steps in range(1, 40):
        await only.change()
        snapshot = await only.entities.now()
        looking = asyncio.create_task(only.index.keys(snapshot, "space/o1"))
        for _ in range(steps % 8):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await check(only.index, snapshot)


# ---- What it reads -------------------------------------------------------------------------------


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[RealmHub]:
    async with a_realm(tmp_path) as realm:
        yield realm


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the spaces and connectors that are read from the catalog or its cache."""
    ids: list[str] = []
    fetch_many = Persistence.fetch_many

    async def counted(
        self: Persistence, refs: Sequence[ObjectRef | None], kind: type[Any]
    ) -> list[Object[Any] | None]:
        found = await fetch_many(self, refs, kind)
        ids.extend(
            one.value.id for one in found if one and isinstance(one.value, Space | Connector)
        )
        return found

    monkeypatch.setattr(Persistence, "fetch_many", counted)
    return ids


async def _remove(realm: RealmHub) -> None:
    await remove_space(realm, "mine", ADMIN)


async def _create(realm: RealmHub) -> None:
    await create_space(realm, Space(id="new"), LIMITED)


async def _change(realm: RealmHub) -> None:
    await change_space(realm, "mine", lambda old: patched(Space, old, {"title": "T"}), ADMIN)


async def _change_connector(realm: RealmHub) -> None:
    settings = Connector(id="c", class_name="storage", properties={"collection": {"maxAge": 5}})
    await change_connector(realm, "c", lambda _: settings, ADMIN)


@pytest.mark.parametrize("work", [_remove, _create, _change, _change_connector])
async def test_a_change_of_one_space_does_not_read_the_others(
    realm: RealmHub, visited: list[str], work: Callable[[RealmHub], Awaitable[None]]
) -> None:
    await realm.registry.create(Connector(id="c", class_name="storage"), ADMIN)
    for number in range(30):
        other = Connector(id=f"other{number}", class_name="storage")
        await realm.registry.create(other, ADMIN)
        await realm.registry.create(Space(id=other.id, event_handler_ids=(other.id,)), ADMIN)
    await create_space(realm, Space(id="mine", event_handler_ids=("c",)), ADMIN)
    await create_space(realm, Space(id="gone"), ADMIN)
    await remove_space(realm, "gone", ADMIN)  # The first removal of a process reads everything.
    visited.clear()
    await work(realm)
    assert {*visited} <= {"mine", "new", "c"}

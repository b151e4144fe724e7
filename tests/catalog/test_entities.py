"""Entities behind one pointer: reads, grouped commits, and the change log."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.catalog.entities import LIST_PAGE, Entities, EntitiesCommit, EntityEdit
from naksha.catalog.objects import Object, object_type
from naksha.memory import MemoryCatalog
from naksha.model.errors import Conflict, Expired, InvalidArgument, StorageCorrupt
from naksha.testing.catalog.suite_commits import persistence_on
from naksha.testing.catalog.suite_realms import Thing


@object_type("test-place")
class Place(msgspec.Struct, frozen=True):
    """An entity of the tests."""

    name: str


async def fresh() -> Entities:
    persistence = persistence_on(await MemoryCatalog.open("memory:"), "tests")
    await persistence.ensure_pointers(["config"])
    return Entities(persistence, "config")


@pytest.fixture
async def entities() -> Entities:
    return await fresh()


async def contents(entities: Entities, prefix: str = "") -> dict[str, str]:
    snapshot = await entities.now()
    return {key: found.value.name async for key, found in snapshot.list(prefix, Place)}


async def test_several_are_changed_by_one_commit(entities: Entities) -> None:
    async def first(edit: EntityEdit) -> None:
        edit.put("place/a", Place("A"))
        edit.put("place/b", Place("B"))

    async def second(edit: EntityEdit) -> None:
        edit.put("place/a", Place("A2"))
        edit.remove("place/b")
        edit.put("place/c", Place("C"))
        edit.remove("place/never-was")

    await entities.commit(first, message="make two", author="ann", app_id="tests")
    old = await entities.now()
    await entities.commit(second)
    assert await contents(entities) == {"place/a": "A2", "place/c": "C"}
    kept = await old.get("place/b", Place)
    assert kept is not None
    assert kept.value.name == "B"
    page = await entities.log.oldest_first()
    changes = [[(change.action, change.key) for change in c.value.changes] for c in page.commits]
    assert changes == [
        [("create", "place/a"), ("create", "place/b")],
        [("update", "place/a"), ("delete", "place/b"), ("create", "place/c")],
    ]
    made = page.commits[0].value
    assert (made.message, made.author, made.app_id) == ("make two", "ann", "tests")


async def test_only_the_edit_itself_sees_its_changes(entities: Entities) -> None:
    async def change(edit: EntityEdit) -> None:
        edit.put("a", Place("A"))
        found = await edit.get("a", Place)
        assert found is not None
        edit.remove("a")
        assert await edit.get("a", Place) is None
        raise Conflict("not after all")

    with pytest.raises(Conflict):
        await entities.commit(change)
    assert await contents(entities) == {}
    assert (await entities.log.newest_first()).commits == []


async def test_lists_and_references_of_an_edit_see_it_too(entities: Entities) -> None:
    async def make(edit: EntityEdit) -> None:
        edit.put("old", Place("old"))

    async def change(edit: EntityEdit) -> list[str]:
        edit.put("new", Place("new"))
        edit.remove("old")
        assert await edit.ref("new") is not None
        assert await edit.ref("old") is None
        with pytest.raises(InvalidArgument, match="is read as a Thing"):
            await edit.get("new", Thing)
        return [found.value.name async for _, found in edit.list("", Place)]

    await entities.commit(make)
    assert await entities.commit(change) == ["new"]


async def test_a_put_and_a_removal_in_one_commit_leave_no_trace(entities: Entities) -> None:
    async def change(edit: EntityEdit) -> None:
        edit.put("a", Place("A"))
        edit.remove("a")

    await entities.commit(change)
    assert (await entities.now()).commit is None


async def test_a_list_is_fetched_in_pages(entities: Entities) -> None:
    async def make(edit: EntityEdit) -> None:
        for number in range(2 * LIST_PAGE + 1):
            edit.put(f"{number:04}", Place(str(number)))

    await entities.commit(make)
    expected = {f"{number:04}": str(number) for number in range(2 * LIST_PAGE + 1)}
    assert await contents(entities) == expected


async def test_an_expired_entity_is_not_reported_as_absent(entities: Entities) -> None:
    async def make(edit: EntityEdit) -> None:
        edit.put("a", Place("A"))

    await entities.commit(make)
    snapshot = await entities.now()
    ref = await snapshot.ref("a")
    assert ref is not None
    assert snapshot.commit is not None
    await entities._persistence.delete([ref])
    with pytest.raises(Expired, match="'a' of commit 1"):
        await snapshot.get("a", Place)
    with pytest.raises(Expired):
        [key async for key, _ in snapshot.list("", Place)]
    await entities._persistence.delete([snapshot.commit.ref])
    with pytest.raises(StorageCorrupt, match="points to object"):
        await entities.now()


async def test_the_commits_of_a_snapshot_come_newest_first(entities: Entities) -> None:
    """The commits are listed as far back as they are kept."""

    async def listed() -> list[Object[EntitiesCommit]]:
        snapshot = await entities.now()
        return [commit async for commit in snapshot.commits()]

    assert await listed() == []
    for number in range(50):
        place = Place(str(number))

        async def change(edit: EntityEdit, place: Place = place) -> None:
            edit.put("place/a", place)

        await entities.commit(change)
    commits = await listed()
    assert [commit.value.seq for commit in commits] == [*range(50, 0, -1)]
    await entities._persistence.delete([commits[30].ref])
    assert await listed() == commits[:30]


@pytest.mark.parametrize("key", ["\ud800", "x" * 501])
async def test_keys_that_cannot_be_kept_are_refused(entities: Entities, key: str) -> None:
    async def make(edit: EntityEdit) -> None:
        edit.put(key, Place("A"))

    with pytest.raises(InvalidArgument, match="key"):
        await entities.commit(make)


async def test_an_edit_that_changes_nothing_makes_no_commit(entities: Entities) -> None:
    async def look(edit: EntityEdit) -> bool:
        edit.remove("nothing")
        return await edit.get("nothing", Place) is None

    assert await entities.commit(look)
    assert (await entities.now()).commit is None


async def test_only_one_of_many_creators_wins(entities: Entities) -> None:
    async def create(edit: EntityEdit) -> None:
        if await edit.get("a", Place) is not None:
            raise Conflict("exists")
        edit.put("a", Place("A"))

    results = await asyncio.gather(
        *(entities.commit(create) for _ in range(9)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 8


async def test_recent_reads_are_cached(entities: Entities) -> None:
    async def change(edit: EntityEdit) -> None:
        edit.put("a", Place("A"))

    await entities.commit(change)
    recent = await entities.recent()
    assert recent.commit is not None
    assert recent.commit == (await entities.now()).commit


KEYS = st.sampled_from([f"{kind}/{n}" for kind in ("p", "q") for n in range(30)])
EDITS = st.lists(st.dictionaries(KEYS, st.none() | st.text(max_size=5), max_size=8), max_size=12)


@given(EDITS)
@settings(max_examples=40, deadline=None)
def test_entities_behave_like_a_dictionary(edits: list[dict[str, str | None]]) -> None:
    asyncio.run(_check_against_a_dictionary(edits))


async def _check_against_a_dictionary(edits: list[dict[str, str | None]]) -> None:
    entities = await fresh()
    model: dict[str, str] = {}
    for wanted in edits:

        async def change(edit: EntityEdit, wanted: dict[str, str | None] = wanted) -> None:
            for key, name in wanted.items():
                if name is None:
                    edit.remove(key)
                else:
                    edit.put(key, Place(name))

        await entities.commit(change)
        for key, name in wanted.items():
            model.pop(key, None)
            if name is not None:
                model[key] = name
    assert await contents(entities) == dict(sorted(model.items()))
    places = {key: name for key, name in model.items() if key.startswith("p/")}
    assert await contents(entities, "p/") == dict(sorted(places.items()))

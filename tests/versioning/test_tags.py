"""Tags: names for versions, and the history they protect."""

from __future__ import annotations

import asyncio

import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    Expired,
    InUse,
    InvalidArgument,
    NakshaError,
    NotFound,
)
from naksha.spi.storage import Storage
from naksha.versioning import (
    Attribution,
    NameScope,
    branches,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    drop_expired_tags,
    open_branch,
    place_of,
    rebase,
    rename_branch,
    tag_of,
    tags,
)
from tests.versioning.town import ANN, BOB, content, make, place, put


async def test_a_tag_names_a_version_for_good(storage: Storage) -> None:
    await make(storage)
    version = await put(storage, place("a", n=1))
    made = await create_tag(storage, "summer", Attribution("editor", "ann", "before the roads"))
    assert (made.version, made.author, made.description) == (version, "ann", "before the roads")
    await put(storage, place("a", n=2))
    found = await place_of(storage, "summer")
    assert await content(found.storage, at=found.at) == {"a": {"n": 1}}
    assert await tags(storage) == [made]
    assert await tag_of(storage, "summer") == made
    with pytest.raises(Conflict, match="already"):
        await create_tag(storage, "summer", BOB)
    moved = await create_tag(storage, "summer", BOB, force=True)
    assert moved.version.seq_number == version.seq_number + 1
    await delete_tag(storage, "summer", BOB)
    assert await tags(storage) == []
    with pytest.raises(NotFound):
        await delete_tag(storage, "summer", BOB)


async def test_names_are_checked_and_not_shared_with_branches(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a"))
    with pytest.raises(InvalidArgument, match="is not a valid tag or branch name"):
        await create_tag(storage, "main", ANN)
    await create_branch(storage, "fix", ANN)
    for force in (False, True):
        with pytest.raises(Conflict, match="already"):
            await create_tag(storage, "fix", ANN, force=force)
    await create_tag(storage, "fix", ANN, scope=NameScope("space-1"))
    assert [tag.name for tag in await tags(storage, space="space-1")] == ["fix"]
    assert await tags(storage) == []


async def test_tagged_versions_are_protected(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    await create_tag(storage, "all", ANN)
    await create_tag(storage, "some", ANN, scope=NameScope(None, ("roads",)))
    for name in ("places", "roads"):
        with pytest.raises(InUse, match="tag"):
            await _switch_off(storage, name)
        with pytest.raises(InUse, match="tag"):
            await _drop(storage, name)
    await delete_tag(storage, "all", ANN)
    with pytest.raises(InUse, match="some"):
        await _drop(storage, "roads")
    await _drop(storage, "places")
    await delete_tag(storage, "some", ANN)
    await _drop(storage, "roads")


async def test_expiry_stops_at_a_tag(storage: Storage) -> None:
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="places", max_age=1))
    await put(storage, place("a", n=1))
    tag = await create_tag(storage, "keep", ANN)
    last = await put(storage, place("a", n=2))
    much_later = last.published_ms + 10 * 86_400_000
    await storage.maintain(much_later)
    found = await place_of(storage, "keep")
    assert await content(found.storage, at=found.at) == {"a": {"n": 1}}
    await delete_tag(storage, "keep", ANN)
    await storage.maintain(much_later)
    gone = await place_of(storage, str(tag.version.seq_number))
    with pytest.raises(Expired):
        await content(gone.storage, at=gone.at)


async def test_a_tag_that_protects_nothing_goes_with_its_version(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_tag(storage, "loose", ANN, protects=False)
    await create_tag(storage, "now", ANN, protects=False)
    assert await drop_expired_tags(storage, ANN) == 0
    await _switch_off(storage, "places")
    await put(storage, place("a", n=2))
    found = await place_of(storage, "loose")
    with pytest.raises(Expired):
        await content(found.storage, at=found.at)
    assert await drop_expired_tags(storage, ANN) == 2
    assert await tags(storage) == []


async def test_a_tag_stays_while_one_of_its_collections_is_readable(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_tag(storage, "loose", ANN, protects=False)
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="later", history_enabled=False))
    await storage.run(lambda s: s.upsert("later", [place("x", n=1)]), "app")
    await storage.run(lambda s: s.upsert("later", [place("x", n=2)]), "app")
    found = await place_of(storage, "loose")
    with pytest.raises(Expired):
        await found.storage.resolve(found.at, "later")
    assert await drop_expired_tags(storage, ANN) == 0
    assert await content(found.storage, at=found.at) == {"a": {"n": 1}}


async def _switch_off(storage: Storage, name: str) -> None:
    async with storage.write("app") as session:
        await session.change_collection(name, CollectionChange(history_enabled=False))


async def _drop(storage: Storage, name: str) -> None:
    async with storage.write("app") as session:
        await session.drop_collection(name)


async def test_a_tag_of_a_branch_that_has_another_name_now(storage: Storage) -> None:
    await make(storage)
    base = await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("a", n=2))
    await create_tag(storage, "tip", ANN, "fix")
    await create_tag(storage, "before", ANN, f"fix:{base.seq_number}")
    await create_branch(storage, "child", ANN, "fix")
    await rename_branch(storage, "fix", "repair", ANN)
    assert [(each.name, each.branch) for each in await tags(storage)] == [
        ("before", "repair"),
        ("tip", "repair"),
    ]
    assert [(b.name, b.parent) for b in await branches(storage)] == [
        ("child", "repair"),
        ("repair", "main"),
    ]
    # Another branch has the name, and is not the parent of any branch.
    await create_branch(storage, "fix", BOB)
    await put((await open_branch(storage, "fix")).storage, place("wrong"))
    await put((await open_branch(storage, "repair")).storage, place("b"))
    for name, expected in (("tip", {"a": {"n": 2}}), ("before", {"a": {"n": 1}})):
        made = await create_branch(storage, f"from-{name}", ANN, name)
        assert made.parent == "repair"
        line = await open_branch(storage, made.name)
        assert await content(line.storage) == expected
        await rebase(storage, made.name, BOB)
        line = await open_branch(storage, made.name)
        assert await content(line.storage) == {"a": {"n": 2}, "b": {}}


async def test_a_branch_stays_while_something_is_made_from_its_tag(storage: Storage) -> None:
    """The tag may be gone by then; who began to stand on the branch is not left without it."""
    await make(storage)
    await put(storage, place("a", n=1))
    for round_ in range(4):
        name = f"fix{round_}"
        await create_branch(storage, name, ANN)
        await put((await open_branch(storage, name)).storage, place("a", n=2))
        await create_tag(storage, f"tip{round_}", ANN, name)

        async def remove(number: int, name: str) -> None:
            await delete_tag(storage, f"tip{number}", ANN)
            await delete_branch(storage, name, ANN)

        results = await asyncio.gather(
            remove(round_, name),
            create_branch(storage, f"child{round_}", ANN, f"tip{round_}"),
            return_exceptions=True,
        )
        failed = [each for each in results if isinstance(each, BaseException)]
        assert all(isinstance(each, NakshaError) for each in failed)
        for each in await branches(storage):
            line = await open_branch(storage, each.name)
            assert await content(line.storage) == {"a": {"n": 2}}


async def test_unpublished_transactions_are_not_in_a_tag(storage: Storage) -> None:
    await make(storage, "places", "roads")
    last = await put(storage, place("a", n=1))
    async with storage.write("slow") as slow:
        await slow.create("roads", [place("r")])
        await storage.run(lambda s: s.upsert("places", [place("a", n=2)]), "app")
        made = await create_tag(storage, "now", ANN)
        assert made.version == last
    found = await place_of(storage, "now")
    assert await content(found.storage, at=found.at) == {"a": {"n": 1}}


async def test_a_scope_of_what_is_not_there(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    scope = NameScope(None, ("places", "plaecs"))
    with pytest.raises(CollectionNotFound) as caught:
        await create_tag(storage, "t", ANN, scope=scope)
    assert caught.value.collection_id == "plaecs"
    with pytest.raises(CollectionNotFound):
        await create_branch(storage, "b", ANN, scope=scope)
    assert await tags(storage) == []
    assert await branches(storage) == []


async def test_versions_after_a_tag_are_not_protected_by_it(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_tag(storage, "before", ANN)
    await create_branch(storage, "fix", ANN)
    await make(storage, "roads", "paths")
    await put(storage, place("r"), into="roads")
    await _switch_off(storage, "roads")
    await _drop(storage, "paths")
    with pytest.raises(InUse):
        await _drop(storage, "places")

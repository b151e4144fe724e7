"""Tags: names for versions, and what they protect."""

from __future__ import annotations

import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Conflict, Expired, InUse, InvalidArgument, NotFound
from naksha.spi.storage import Storage
from naksha.versioning import (
    Scope,
    Signed,
    create_branch,
    create_tag,
    delete_tag,
    drop_expired_tags,
    place_of,
    tag_of,
    tags,
)
from tests.versioning.town import ANN, BOB, content, make, place, put


async def test_a_tag_names_a_version_for_good(storage: Storage) -> None:
    await make(storage)
    version = await put(storage, place("a", n=1))
    made = await create_tag(storage, "summer", Signed("editor", "ann", "before the roads"))
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
    with pytest.raises(InvalidArgument, match="is no name"):
        await create_tag(storage, "main", ANN)
    await create_branch(storage, "fix", ANN)
    for force in (False, True):
        with pytest.raises(Conflict, match="already"):
            await create_tag(storage, "fix", ANN, force=force)
    await create_tag(storage, "fix", ANN, scope=Scope("space-1"))
    assert [tag.name for tag in await tags(storage, space="space-1")] == ["fix"]
    assert await tags(storage) == []


async def test_what_is_tagged_is_protected(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    await create_tag(storage, "all", ANN)
    await create_tag(storage, "some", ANN, scope=Scope(None, ("roads",)))
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


async def _switch_off(storage: Storage, name: str) -> None:
    async with storage.write("app") as session:
        await session.change_collection(name, CollectionChange(history_enabled=False))


async def _drop(storage: Storage, name: str) -> None:
    async with storage.write("app") as session:
        await session.drop_collection(name)

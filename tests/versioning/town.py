"""A small town to change: collections, features and short calls to write them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any, TypeVar

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.versioning import Attribution, create_branch, open_branch

T = TypeVar("T")
ANN = Attribution("editor", "ann")
BOB = Attribution("editor", "bob")


def place(id_: str, lon: float = 8.0, lat: float = 50.0, **properties: Any) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [lon, lat]}
    return {"type": "Feature", "id": id_, "geometry": geometry, "properties": properties}


async def make(storage: Storage, *names: str) -> None:
    async with storage.write("setup") as session:
        for name in names or ("places",):
            await session.create_collection(CollectionInfo(id=name))


async def put(
    storage: Storage,
    *features: Mapping[str, Any],
    into: str = "places",
    by: Attribution = ANN,
    message: str | None = None,
) -> Version:
    async with storage.write(by.app_id, by.author) as session:
        await session.upsert(into, features)
        if message is not None:
            await session.message("message", message)
    return await seen(storage, session.txn)


async def delete(
    storage: Storage, *ids: str, from_: str = "places", by: Attribution = ANN
) -> Version:
    async with storage.write(by.app_id, by.author) as session:
        await session.delete(from_, ids)
    return await seen(storage, session.txn)


async def seen(storage: Storage, txn: int | None) -> Version:
    assert txn is not None
    version = await storage.wait_published(txn, 60)
    assert version is not None
    return version


async def content(
    storage: StorageReader,
    name: str = "places",
    at: VersionSelector = HEAD,
    query: Query | None = None,
) -> dict[str, Any]:
    """Properties by id, without the namespace."""
    found = {}
    async for state in storage.states(name, query or Query(), at):
        properties = dict(state.feature["properties"])
        del properties["@ns:com:here:xyz"]
        found[state.id] = properties
    return found


async def all_of(things: AsyncIterable[T]) -> list[T]:
    return [each async for each in things]


def ids(things: Sequence[Any]) -> list[str]:
    return [each.id for each in things]


async def branch(storage: Storage, name: str = "fix", base: str = "HEAD") -> Storage:
    await create_branch(storage, name, ANN, base)
    return (await open_branch(storage, name)).storage

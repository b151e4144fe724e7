"""A storage to run jobs on, with short calls to write to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spark.runtime.storage_cache import shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning import Attribution, create_branch, open_branch
from naksha.versioning.version_refs import MAIN_BRANCH as MAIN

T = TypeVar("T")
APP = "test-app"


class Town:
    """A storage that this process has open."""

    def __init__(self, place: StorageRef) -> None:
        self.place = place

    @property
    def is_file(self) -> bool:
        return self.place.location.startswith("file:")

    @property
    def path(self) -> str:
        return self.place.location.removeprefix("file:")

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]], branch: str = MAIN) -> T:
        """Something that the storage does, or a branch of it."""

        async def on_branch(storage: Storage) -> T:
            return await work((await open_branch(storage, branch)).storage)

        return shared_storage(self.place).call(on_branch)

    def run(
        self, work: Callable[[WriteSession], Coroutine[Any, Any, object]], branch: str = MAIN
    ) -> Version:
        """One transaction; the version that it is."""

        async def written(storage: Storage) -> Version:
            async with storage.write(APP, "ann") as session:
                await work(session)
            assert session.txn is not None
            version = await storage.wait_published(session.txn, 60)
            assert version is not None
            return version

        return self.call(written, branch)

    def create_collection(self, name: str, **settings: Any) -> Version:
        info = CollectionInfo(id=name, **settings)
        return self.run(lambda session: session.create_collection(info))

    def branch(self, name: str, base: str = "HEAD") -> None:
        self.call(lambda storage: create_branch(storage, name, Attribution(APP), base))

    def put(self, *features: Mapping[str, Any], branch: str = MAIN) -> Version:
        return self.run(lambda session: session.upsert("places", features), branch)

    def delete(self, *ids: str, branch: str = MAIN) -> Version:
        return self.run(lambda session: session.delete("places", ids), branch)

    def states(
        self, query: Query | None = None, at: VersionSelector = HEAD, branch: str = MAIN
    ) -> dict[str, State]:
        """Return the states from the storage itself, by id."""

        async def read(storage: Storage) -> dict[str, State]:
            found = storage.states("places", query or Query(), at)
            return {state.id: state async for state in found}

        return self.call(read, branch)


def point(id_: str, lon: float, lat: float, **properties: Any) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [lon, lat]}
    return {"type": "Feature", "id": id_, "geometry": geometry, "properties": properties}


def scattered(count: int, seed: int = 0, **properties: Any) -> list[dict[str, Any]]:
    """Points all over the world, most of them in a few towns; some features are nowhere."""
    chance = random.Random(seed)
    towns = [(chance.uniform(-180, 180), chance.uniform(-90, 90)) for _ in range(4)]
    made = []
    for n in range(count):
        lon, lat = chance.choice(towns)
        spread = chance.choice([0.0, 1e-4, 0.1, 30.0])
        lon = min(max(lon + chance.uniform(-spread, spread), -180.0), 180.0)
        lat = min(max(lat + chance.uniform(-spread, spread), -90.0), 90.0)
        one = point(f"f{n}", lon, lat, n=n, **properties)
        if chance.random() < 0.1:
            one["geometry"] = None
        made.append(one)
    return made

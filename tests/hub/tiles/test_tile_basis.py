"""Dependencies of a tile, and whether they can change."""

import pytest

from naksha.hub.tiles.tile_basis import basis_of
from naksha.model.collection import CollectionInfo
from naksha.spi.storage import Storage
from tests.hub.handlers.support import CONTEXT, HubUnderTest, feature

MORNING, NOON = 1_767_249_000_000, 1_767_268_800_000
"""2026-01-01, 06:30 and 12:00."""


async def write(storage: Storage, id: str, at_ms: int) -> None:
    async with storage.write("tests", at_ms=at_ms) as session:
        await session.upsert("roads", [feature(id)])


@pytest.mark.parametrize("ref", ["2026-01-01T06:30:00Z", "0..2026-01-01T06:30:00Z"])
async def test_the_time_of_the_last_version_may_still_move(any_hub: HubUnderTest, ref: str) -> None:
    storage = await any_hub.realm.storage("default")
    async with storage.write("tests", at_ms=MORNING) as session:
        await session.create_collection(CollectionInfo(id="roads"))
    space = await any_hub.space("roads", ("storage", {"collection": {"id": "roads"}}))
    found = []
    for id, at_ms in (("a", MORNING), ("b", MORNING), ("c", NOON), ("d", NOON)):
        await write(storage, id, at_ms)
        basis = await basis_of(await any_hub.realm.resolved(CONTEXT), space, ref)
        assert basis is not None
        found.append((basis.is_lasting, basis.parts))
    first, second, third, fourth = found
    assert not first[0]
    assert not second[0]
    assert first[1] != second[1]
    assert third == fourth == (True, second[1])

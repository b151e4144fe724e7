"""Reading at a version, however it is said; and the errors of versions that are not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import Expired, InvalidArgument, NotFound, NotYetPublished, VersionNotFound
from naksha.model.query import Query
from naksha.model.uuids import Uuid
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning import create_tag, place_of, range_of
from tests.versioning.town import ANN, content, make, place, put


async def test_every_way_to_say_a_version_gives_it(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    version = await put(storage, place("a", n=2))
    last = await put(storage, place("a", n=3))
    await create_tag(storage, "second", ANN, str(version.seq_number))
    txn_uuid = str(Uuid.of_txn(version.txn, storage.number))
    state = (await storage.page("places", Query(), AtSeq(version.seq_number))).states[0]
    collection = await storage.collection("places")
    i = int(state.uuid.rpartition(":")[2])
    state_uuid = str(Uuid.of_state(version.txn, collection.number, i, storage.number))
    time = datetime.fromtimestamp(version.published_ms / 1000, UTC)
    said = [str(version.seq_number), str(version.txn), "second", txn_uuid, state_uuid]
    if last.published_ms > version.published_ms:
        said.append(time.isoformat())
    for text in said:
        found = await place_of(storage, text)
        assert (text, found.version) == (text, version)
        assert await content(found.storage, at=found.at) == {"a": {"n": 2}}
    head = await place_of(storage, "HEAD")
    assert head.version == last
    assert await content(head.storage, at=head.at) == {"a": {"n": 3}}
    nothing = await place_of(storage, "0")
    assert await content(nothing.storage, at=nothing.at) == {}


async def test_ranges_and_single_changes(storage: Storage) -> None:
    await make(storage)
    first = await put(storage, place("a", n=1))
    second = await put(storage, place("a", n=2))
    pairs = {
        "1..HEAD": (1, 3),
        f"{first.seq_number}..{second.txn}": (first.seq_number, second.seq_number),
        str(second.seq_number): (second.seq_number - 1, second.seq_number),
        "*": (0, 3),
    }
    for text, expected in pairs.items():
        one, other = await range_of(storage, text)
        assert (one.version.seq_number, other.version.seq_number) == expected


async def test_three_errors_for_versions_that_are_not_there(storage: Storage) -> None:
    await make(storage)
    last = await put(storage, place("a", n=1))
    with pytest.raises(NotYetPublished):
        await place_of(storage, str(last.seq_number + 1))
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(NotYetPublished):
        await place_of(storage, tomorrow.isoformat())
    with pytest.raises(VersionNotFound):
        await place_of(storage, str(last.txn - 10**12))
    with pytest.raises(VersionNotFound):
        await place_of(storage, str(Uuid.of_txn(last.txn, storage.number ^ 1)))
    with pytest.raises(NotFound, match="'nowhere'"):
        await place_of(storage, "nowhere")
    with pytest.raises(NotFound, match="branch 'nowhere'"):
        await place_of(storage, "nowhere:HEAD")
    with pytest.raises(InvalidArgument, match="not a range"):
        await place_of(storage, "1..2")
    async with storage.write("app") as session:
        await session.change_collection("places", CollectionChange(history_enabled=False))
    await put(storage, place("a", n=2))
    found = await place_of(storage, str(last.seq_number))
    with pytest.raises(Expired):
        await content(found.storage, at=found.at)

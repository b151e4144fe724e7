"""Reads at a version in every notation, and the errors of missing versions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Expired, InvalidArgument, NotFound, NotYetPublished, VersionNotFound
from naksha.model.identity.uuids import Uuid
from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning import (
    MergePolicy,
    SnapshotStep,
    create_branch,
    create_tag,
    import_history,
    place_of,
    range_of,
    rebase,
)
from tests.versioning.town import ANN, branch, content, make, place, put


async def test_every_notation_of_a_version_resolves_to_it(storage: Storage) -> None:
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
    with pytest.raises(NotFound, match="Branch 'nowhere'"):
        await place_of(storage, "nowhere:HEAD")
    with pytest.raises(
        InvalidArgument, match="A reference to one version is required, not the range"
    ):
        await place_of(storage, "1..2")
    async with storage.write("app") as session:
        await session.change_collection("places", CollectionChange(history_enabled=False))
    await put(storage, place("a", n=2))
    found = await place_of(storage, str(last.seq_number))
    with pytest.raises(Expired):
        await content(found.storage, at=found.at)


async def test_the_same_three_errors_on_a_branch_and_in_a_range(storage: Storage) -> None:
    await make(storage)
    last = await put(storage, place("a", n=1))
    fix = await branch(storage)
    last = await put(fix, place("a", n=2))
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for text in (str(last.seq_number + 1), str(last.txn + 1), tomorrow):
        for ref in (text, f"fix:{text}"):
            with pytest.raises(NotYetPublished):
                await place_of(storage, ref)
            with pytest.raises(NotYetPublished):
                await range_of(storage, ref.replace(text, f"1..{text}"))
    for text in (str(last.txn - 10**12), str(Uuid.of_txn(last.txn, storage.number ^ 1))):
        for ref in (text, f"fix:{text}"):
            with pytest.raises(VersionNotFound):
                await place_of(storage, ref)
            with pytest.raises(VersionNotFound):
                await range_of(storage, f"{ref}..HEAD")
    number = (await storage.collection("places")).number
    unknown = str(Uuid.of_state(last.txn, number, 999, storage.number))
    future = str(Uuid.of_txn(last.txn + 1, storage.number))
    for prefix in ("", "fix:"):
        with pytest.raises(NotFound):
            await place_of(storage, prefix + unknown)
        with pytest.raises(NotYetPublished):
            await place_of(storage, prefix + future)


async def test_versions_gone_from_the_log_are_expired_in_every_notation(storage: Storage) -> None:
    begin, day = datetime(2021, 1, 1, tzinfo=UTC), timedelta(days=1)
    steps = [
        SnapshotStep(int((begin + n * day).timestamp() * 1000), [place("a", n=n)])
        for n in (10, 20, 30)
    ]
    done = await import_history(storage, CollectionInfo(id="places"), steps, ANN)
    await create_tag(storage, "kept", ANN, "2")
    await put(storage, place("a", n=40))
    await branch(storage)
    await storage.keep_log(1)
    await storage.maintain()
    txn = done[0].txn or 0
    said = ["1", str(txn), str(Uuid.of_txn(txn, storage.number)), "2021-01-12T00:00"]
    for text in said:
        for ref in (text, f"fix:{text}"):
            with pytest.raises(Expired):
                await place_of(storage, ref)
        with pytest.raises(Expired):
            await range_of(storage, f"{text}..HEAD")
        with pytest.raises(Expired):
            await create_branch(storage, "late", ANN, text)
        with pytest.raises(Expired):
            await create_tag(storage, "late", ANN, text)
    # What is tagged is there, and what came after it.
    for ref, expected in (("kept", 20), ("2", 20), ("2021-01-31T00:00", 30), ("fix:2", 20)):
        found = await place_of(storage, ref)
        assert (ref, await content(found.storage, at=found.at)) == (ref, {"a": {"n": expected}})


async def test_a_tag_after_a_branch_is_a_version_of_that_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_tag(storage, "early", ANN)
    await put(storage, place("a", n=2))
    fix = await branch(storage)
    await put(fix, place("a", n=3))
    await create_tag(storage, "there", ANN, "fix")
    await put(storage, place("a", n=4))
    await create_tag(storage, "late", ANN)
    for ref, expected in (
        ("early", 1), ("fix:early", 1), ("there", 3), ("fix:there", 3), ("late", 4),
    ):  # fmt: skip
        found = await place_of(storage, ref)
        assert (ref, await content(found.storage, at=found.at)) == (ref, {"a": {"n": expected}})
    # On the branch that version is another one; main's must not pass for it.
    for ref in ("fix:late", "fix:late..HEAD"):
        with pytest.raises(InvalidArgument, match="'late' is a version of 'main'") as caught:
            await range_of(storage, ref)
        assert caught.value.field == "versionRef"
    other = await branch(storage, "other", "early")
    await put(other, place("b"))
    with pytest.raises(InvalidArgument, match="'there' is a version of 'fix'"):
        await place_of(storage, "other:there")
    # On another base than it had then the tag is still of the branch.
    await rebase(storage, "fix", ANN, policy=MergePolicy.THEIRS)
    found = await place_of(storage, "fix:there")
    assert await content(found.storage, at=found.at) == {"a": {"n": 3}}

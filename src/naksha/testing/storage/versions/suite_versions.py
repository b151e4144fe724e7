"""Conformance: a published version always reads the same; all others are reported as such."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations

import msgspec
import pytest

from naksha.model.errors import NotYetPublished, VersionNotFound
from naksha.model.limits import PAGE_MAX
from naksha.model.query import Bbox, Query, States
from naksha.model.version import HEAD, AtSeq, AtTime, AtTxn, Version, VersionSelector
from naksha.spi.storage import Storage
from naksha.testing.storage.bulk.suite_bulk import check_rows, read_all
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    content,
    feature,
    ids_of,
    in_order,
    new_collection,
    point,
    published,
    raw_of,
    seq,
)


async def snapshot(handle: Handle, at: VersionSelector) -> list[list[bytes]]:
    """Return all states that can be read at a version, as bytes."""
    return [raw_of(await handle.states(Query(states=kind), at)) for kind in States]


async def some_history(places: Handle) -> list[Version]:
    """Run a few transactions of every kind; return the version after each."""
    versions = []
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: places.create(point("a", n=1), point("b", n=1), feature("c")),
        lambda: places.update(point("a", n=2)),
        lambda: places.delete("b"),
        lambda: places.create(point("b", n=2), point("d")),
        lambda: places.delete("a", "d"),
        lambda: places.restore("a"),
        lambda: places.purge("d"),
        lambda: places.upsert(point("a", n=2), point("e")),
    ]
    for step in steps:
        await step()
        versions.append(await places.published())
    return versions


async def check_replaced(handle: Handle, versions: Sequence[Version]) -> None:
    """Check the replaced states between any two versions.

    These are the states valid at the first version and not at the second: live, deleted and both,
    paged, counted and read in bulk. Bulk reads take longer and are checked only from each version
    to the next and to the last.
    """
    both = (States.LIVE, States.DELETED)
    valid = [
        {kind: await handle.states(Query(states=kind), seq(version)) for kind in both}
        for version in versions
    ]
    for (first, before), (last, after) in combinations(zip(versions, valid, strict=True), 2):
        still = {state.uuid for kind in both for state in after[kind]}
        ats: list[VersionSelector] = [seq(last)]
        if last is versions[-1]:
            ats.append(HEAD)
        for at in ats:
            wanted = {k: [s for s in before[k] if s.uuid not in still] for k in both}
            wanted[States.ALL] = in_order([s for k in both for s in wanted[k]])
            for kind, states in wanted.items():
                query = Query(states=kind, replaced_since=first.txn)
                assert raw_of(await handle.states(query, at)) == raw_of(states)
                assert await handle.storage.count(handle.name, query, at) == len(states)
                page = await handle.storage.page(
                    handle.name, msgspec.structs.replace(query, limit=PAGE_MAX), at
                )
                assert raw_of(page.states) == raw_of(states)
                if last not in (versions[versions.index(first) + 1], versions[-1]):
                    continue
                splits = await handle.storage.plan(handle.name, query, at)
                check_rows(await read_all(handle.storage, splits), states)


class TestVersions:
    async def test_states_replaced_since_a_version(self, places: Handle) -> None:
        versions = await some_history(places)
        await check_replaced(places, versions)
        since = versions[0].txn
        assert ids_of(await places.states(Query(replaced_since=since, ids=("a", "c")))) == ["a"]
        here = Query(replaced_since=since, spatial=Bbox(-180, -90, 180, 90))
        assert ids_of(await places.states(here)) == ["a", "b"]
        rows = await read_all(places.storage, await places.storage.plan(places.name, here))
        assert [row["id"] for row in rows] == ["a", "b"]

    async def test_states_at_each_version(self, places: Handle) -> None:
        versions = await some_history(places)
        live = [ids_of(await places.live(seq(v))) for v in versions]
        dead = [ids_of(await places.deleted(seq(v))) for v in versions]
        assert live == [
            ["a", "b", "c"],
            ["a", "b", "c"],
            ["a", "c"],
            ["a", "b", "c", "d"],
            ["b", "c"],
            ["a", "b", "c"],
            ["a", "b", "c"],
            ["a", "b", "c", "e"],
        ]
        assert dead == [[], [], ["b"], [], ["a", "d"], ["d"], [], []]
        numbers = [
            [s.feature["properties"].get("n") for s in await places.live(seq(v))]
            for v in versions[:4]
        ]
        assert numbers == [[1, 1, None], [2, 1, None], [2, None], [2, 2, None, None]]

    async def test_all_states_up_to_a_version(self, places: Handle) -> None:
        versions = await some_history(places)
        everything = await places.all()
        for version in versions:
            found = await places.all(seq(version))
            wanted = [s.uuid for s in everything if s.txn <= version.txn]
            assert [s.uuid for s in found] == wanted

    async def test_a_version_reads_the_same_for_ever(self, places: Handle) -> None:
        """Every byte stays: later writes must not show, not even in `txn_next`."""
        seen: list[tuple[Version, list[list[bytes]]]] = []
        for n in range(6):
            await places.upsert(point("x", n=n), point(f"y{n}"))
            if n % 2:
                await places.delete(f"y{n}")
            version = await places.published()
            seen.append((version, await snapshot(places, seq(version))))
            for old, before in seen:
                assert await snapshot(places, seq(old)) == before
        await places.delete("x")
        await places.purge("y1")
        await places.restore("y3")
        for old, before in seen:
            assert await snapshot(places, seq(old)) == before

    async def test_content_that_looks_like_the_end_of_a_state_stays(self, places: Handle) -> None:
        """Numbers are consecutive, so a client can guess the one that will end a state."""
        await places.create(point("x"))
        first = await places.published()
        ends = [{"txn_next": str(first.txn + n)} for n in (1, 2, 3)]
        texts = [f'"txn_next": "{first.txn + 2}"', f'"txn_next":"{first.txn + 2}"']
        await places.upsert(point("x", ends=ends, texts=texts, deep={"a": ends}))
        version = await places.published()
        before = await snapshot(places, seq(version))
        plan = await places.storage.plan(places.name, Query(), seq(version))
        rows = await read_all(places.storage, plan)
        await places.delete("x")
        ended = await places.published()
        assert ended.txn == first.txn + 2
        assert await snapshot(places, seq(version)) == before
        plan = await places.storage.plan(places.name, Query(), seq(version))
        assert [row["feature"] for row in await read_all(places.storage, plan)] == [
            row["feature"] for row in rows
        ]
        [state] = await places.states(Query(), seq(version))
        assert state.feature["properties"]["deep"] == {"a": ends}
        assert state.xyz["txn_next"] == "0"

    async def test_all_selectors_mean_the_same_version(self, places: Handle) -> None:
        versions = await some_history(places)
        for version in versions:
            wanted = await snapshot(places, seq(version))
            assert await snapshot(places, AtTxn(version.txn)) == wanted
            assert await places.storage.resolve(AtTxn(version.txn)) == version
            assert await places.storage.resolve(seq(version)) == version

    async def test_head_resolves_to_the_last_published_version(self, places: Handle) -> None:
        versions = await some_history(places)
        assert await places.storage.resolve(HEAD) == versions[-1]

    async def test_zero_is_before_everything(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.published()
        for kind in States:
            assert await places.states(Query(states=kind), AtSeq(0)) == []
        assert (await places.storage.resolve(AtSeq(0))).seq_number == 0

    async def test_reading_inside_a_session_at_a_version(self, places: Handle) -> None:
        versions = await some_history(places)
        async with places.storage.write(APP) as session:
            await session.update(places.name, [point("a", n=99)])
            page = await session.page(places.name, Query(limit=9), seq(versions[2]))
            assert ids_of(page.states) == ["a", "c"]
            assert page.states[0].feature["properties"]["n"] == 2

    async def test_another_instance_reads_the_same(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        versions = await some_history(places)
        second = Handle(await make_storage(beside=places.storage), places.name)
        for version in versions:
            assert await snapshot(second, seq(version)) == await snapshot(places, seq(version))

    async def test_versions_of_other_collections_count_too(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        await one.create(point("x"))
        await two.create(point("y"))
        version = await published(storage)
        await one.delete("x")
        assert ids_of(await one.live(seq(version))) == ["x"]


class TestUnreadableVersions:
    async def test_after_the_last_is_not_yet_published(self, places: Handle) -> None:
        await places.create(point("x"))
        last = await places.published()
        selectors: list[VersionSelector] = [
            AtSeq(last.seq_number + 1),
            AtSeq(last.seq_number + 1_000_000),
            AtTxn(last.txn + 1_000_000),
            AtTime(last.published_ms + 3_600_000),
        ]
        for at in selectors:
            with pytest.raises(NotYetPublished):
                await places.storage.resolve(at)
            with pytest.raises(NotYetPublished):
                await places.live(at)
            with pytest.raises(NotYetPublished):
                await places.storage.count(places.name, Query(), at)
            with pytest.raises(NotYetPublished):
                await places.storage.plan(places.name, Query(), at)

    async def test_a_number_that_no_transaction_has_is_not_found(self, places: Handle) -> None:
        await places.create(point("x"))
        first = await places.published()
        selectors: list[VersionSelector] = [AtSeq(-1), AtTxn(first.txn - 10**13 * 12)]
        for at in selectors:
            with pytest.raises(VersionNotFound):
                await places.storage.resolve(at)
            with pytest.raises(VersionNotFound):
                await places.live(at)

    async def test_a_rolled_back_number_is_not_found(self, places: Handle) -> None:
        with pytest.raises(ZeroDivisionError):
            async with places.storage.write(APP) as session:
                await session.create(places.name, [point("x")])
                txn = session.txn
                raise ZeroDivisionError
        await places.create(point("y"))
        version = await places.published()
        assert txn is not None
        if txn != version.txn:
            with pytest.raises(VersionNotFound):
                await places.storage.resolve(AtTxn(txn))
            with pytest.raises(VersionNotFound):
                await places.storage.transaction(txn)

    async def test_an_unknown_transaction_is_not_found(self, storage: Storage) -> None:
        with pytest.raises(VersionNotFound):
            await storage.transaction(2_001_010_100_000_000_007)


class TestVersionsByTime:
    async def test_a_time_means_the_last_version_published_until_then(self, places: Handle) -> None:
        versions = []
        for n in range(4):
            await places.upsert(point("x", n=n))
            versions.append(await places.published())
            await asyncio.sleep(0.01)
        for n, version in enumerate(versions[:-1]):
            resolved = await places.storage.resolve(AtTime(version.published_ms))
            later = [v for v in versions if v.published_ms == version.published_ms]
            assert resolved == later[-1]
            assert content((await places.live(AtTime(version.published_ms)))[0])["properties"] == {
                "n": versions.index(later[-1])
            }
            before = await places.storage.resolve(AtTime(version.published_ms - 1))
            assert before.seq_number < version.seq_number
            assert n == 0 or before.seq_number >= versions[0].seq_number

    async def test_the_time_of_the_last_publication_is_readable(self, places: Handle) -> None:
        await places.create(point("x"))
        last = await places.published()
        assert await places.storage.resolve(AtTime(last.published_ms)) == last

    async def test_long_ago_is_before_everything(self, places: Handle) -> None:
        await places.create(point("x"))
        await places.published()
        assert await places.live(AtTime(1)) == []
        assert (await places.storage.resolve(AtTime(1))).seq_number == 0

    async def test_publication_times_never_decrease(self, places: Handle) -> None:
        for n in range(20):
            await places.upsert(point("x", n=n))
        await places.published()
        times = [t.published_ms for t in await places.storage.transactions()]
        assert None not in times
        assert times == sorted(times, key=lambda t: t or 0)

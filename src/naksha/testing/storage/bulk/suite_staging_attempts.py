"""Conformance: failed staging attempts, expired leases, concurrent writers, branches."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureExists,
    InvalidArgument,
    NakshaError,
    NotFound,
    NotSupported,
)
from naksha.spi.staging import WriteMode
from naksha.spi.storage import Storage
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.bulk.suite_bulk import COUNT, name
from naksha.testing.storage.bulk.suite_staging import StagingJob, counts, values, written
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import (
    SECONDS,
    SUITE_CHECKS_OFF,
    Handle,
    MovableClock,
    StorageMaker,
    fresh_name,
    ids_of,
    new_collection,
    point,
    seq,
    with_xyz,
)

LEASE_MS = limits.STAGING_LEASE_SECONDS * SECONDS
NOON_MS = 1_769_774_400_000

IDS = st.sampled_from("abcdefghij")
NUMBERS = st.sampled_from([None, 1, 2, 3])
HELD = st.dictionaries(IDS, NUMBERS, max_size=8)


class TestAnyStagedWrite:
    @given(HELD, st.dictionaries(IDS, st.tuples(NUMBERS, st.integers(0, 1)), max_size=8))
    @settings(max_examples=5, suppress_health_check=SUITE_CHECKS_OFF, deadline=None)
    @pytest.mark.parametrize("mode", WriteMode)
    async def test_the_result_equals_that_of_a_model(
        self,
        storage: Storage,
        mode: WriteMode,
        held: dict[str, int | None],
        staged: dict[str, tuple[int | None, int]],
    ) -> None:
        handle = await new_collection(storage)
        if held:
            await handle.create(*(point(i, n=n) for i, n in held.items()))
        job = StagingJob(storage, handle.name)
        for part in range(2):
            await job.stage([point(i, n=n) for i, (n, of) in staged.items() if of == part])
        key = ("properties", "n") if mode is WriteMode.REPLACE else None
        given_ = {i: n for i, (n, _) in staged.items()}
        if mode is WriteMode.CREATE and held.keys() & given_.keys():
            assert (await job.refused(FeatureExists, mode=mode)).feature_id in held
            return
        found = {
            WriteMode.MIRROR: set(held),
            WriteMode.REPLACE: {
                i for i, n in held.items() if n is not None and n in given_.values()
            },
        }
        gone = found.get(mode, set()) - set(given_)
        same = {i for i in given_ if i in held and held[i] == given_[i]}
        applied = await job.apply(mode, key=key)
        new = len(given_.keys() - held.keys())
        assert counts(applied) == (new, len(given_) - new - len(same), len(gone), len(same))
        wanted = {i: n for i, n in {**held, **given_}.items() if i not in gone}
        assert values(await handle.live()) == wanted


class TestStagingAttempts:
    async def test_bad_features_are_refused_by_name_and_row(self, storage: Storage) -> None:
        stage = await storage.stage("bad", CollectionInfo(id=fresh_name()))
        await stage.add(given_batch([point("x"), point("y")]))
        with pytest.raises(InvalidArgument) as caught:
            await stage.add(given_batch([point("good"), with_xyz(point("bad"), tags=["x" * 9999])]))
        assert (caught.value.feature_id, caught.value.position) == ("bad", 3)
        for call in (stage.close, lambda: stage.add(given_batch([point("z")]))):
            with pytest.raises(InvalidArgument, match="abort"):
                await call()
        await stage.abort()
        await stage.abort()

    async def test_batches_of_other_columns_are_refused(self, storage: Storage) -> None:
        stage = await storage.stage("bad", CollectionInfo(id=fresh_name()))
        with pytest.raises(InvalidArgument, match="columns"):
            await stage.add(pa.RecordBatch.from_pydict({"id": ["x"], "colour": ["red"]}))
        await stage.abort()

    async def test_after_the_end_it_takes_nothing_more(self, storage: Storage) -> None:
        info = CollectionInfo(id=fresh_name())
        for end in ("close", "abort"):
            stage = await storage.stage(fresh_name("job"), info)
            await getattr(stage, end)()
            for call in (stage.close, lambda stage=stage: stage.add(given_batch([point("x")]))):
                with pytest.raises(InvalidArgument, match="already closed or aborted"):
                    await call()
            await stage.abort()

    async def test_abort_does_not_touch_what_is_closed(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        stage = await storage.stage(job.id, job.info)
        await stage.add(given_batch([point("x")]))
        part = await stage.close()
        await stage.abort()
        assert counts(await job.apply(parts=[part])) == (1, 0, 0, 0)

    async def test_nothing_is_seen_before_it_is_applied(self, places: Handle) -> None:
        before = await places.published()
        job = StagingJob(places.storage, places.name)
        await job.stage([point("x")])
        new = StagingJob(places.storage, fresh_name())
        await new.stage([point("x")])
        assert await places.live() == []
        assert new.info.id not in [info.id for info in await places.storage.collections()]
        assert await places.published() == before
        await job.storage.drop_staged(job.id)
        await job.refused(NotFound)

    async def test_staged_for_other_settings_is_a_conflict(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage([point("p:x")])
        handle = await new_collection(storage, id=job.info.id, id_prefix="p:")
        await job.refused(Conflict)
        await handle.change(id_prefix=None)
        assert counts(await job.apply()) == (1, 0, 0, 0)
        assert ids_of(await handle.live()) == ["p:x"]

    async def test_a_dropped_collection_is_refused(self, places: Handle) -> None:
        job = StagingJob(places.storage, places.name)
        await job.stage([point("x")])
        await places.write(lambda s: s.drop_collection(places.name, 2**52))
        with pytest.raises(NakshaError):
            await job.apply()
        with pytest.raises(NakshaError):
            await places.storage.stage(job.id, job.info)
        await places.write(lambda s: s.restore_collection(places.name))
        assert counts(await job.apply()) == (1, 0, 0, 0)

    async def test_large_batches_and_many_small_ones(self, storage: Storage) -> None:
        features = [point(f"f{n:05}", n % 180, n % 90, n=n) for n in range(12_345)]
        job = StagingJob(storage, fresh_name())
        await job.stage(features[:11_000])
        await job.stage(*(features[n : n + 3] for n in range(11_000, 11_300, 3)), features[11_300:])
        assert [part.features for part in job.parts] == [11_000, 1_345]
        assert counts(await job.apply()) == (len(features), 0, 0, 0)
        assert values(await job.handle.live()) == {f["id"]: f["properties"]["n"] for f in features}
        changed = [f | {"properties": {"n": -1}} for f in features[::100]]
        applied = await written(storage, job.info, changed + features[1::100], WriteMode.MIRROR)
        assert counts(applied) == (0, 124, 12_345 - 248, 124)


class TestStagingLeases:
    @pytest.fixture
    def clock(self) -> MovableClock:
        return MovableClock(NOON_MS)

    @pytest.fixture
    async def timed(self, make_storage: StorageMaker, clock: MovableClock) -> Storage:
        return await make_storage(clock=clock)

    async def test_unapplied_parts_are_swept(self, timed: Storage, clock: MovableClock) -> None:
        job = StagingJob(timed, fresh_name())
        await job.stage([point("x")])
        clock.time_ms += LEASE_MS - SECONDS
        await timed.maintain()
        clock.time_ms += 2 * SECONDS
        await timed.maintain()
        await job.refused(NotFound)

    async def test_opening_an_attempt_sweeps_what_is_over(
        self, timed: Storage, clock: MovableClock
    ) -> None:
        job = StagingJob(timed, fresh_name())
        await job.stage([point("x")])
        clock.time_ms += LEASE_MS + SECONDS
        await StagingJob(timed, fresh_name()).stage([point("y")])
        await job.refused(NotFound)

    async def test_each_new_part_renews_the_lease(
        self, timed: Storage, clock: MovableClock
    ) -> None:
        job = StagingJob(timed, fresh_name())
        for n in range(4):
            await job.stage([point(f"x{n}")])
            clock.time_ms += LEASE_MS - SECONDS
            await timed.maintain()
        assert counts(await job.apply()) == (4, 0, 0, 0)

    async def test_long_attempts_renew_the_lease(self, timed: Storage, clock: MovableClock) -> None:
        job = StagingJob(timed, fresh_name())
        await job.stage([point("x")])
        stage = await timed.stage(job.id, job.info)
        for n in range(4):
            clock.time_ms += LEASE_MS - SECONDS
            await stage.add(given_batch([point(f"y{n}")]))
            await timed.maintain()
        job.parts.append(await stage.close())
        assert counts(await job.apply()) == (5, 0, 0, 0)

    async def test_a_job_is_forgotten_after_a_while(
        self, timed: Storage, clock: MovableClock
    ) -> None:
        job = StagingJob(timed, fresh_name())
        await job.stage([point("x")])
        await job.apply()
        clock.time_ms += (limits.JOB_KEPT_DAYS * 86_400 - 1) * SECONDS
        await timed.maintain()
        assert (await job.apply()).repeated
        clock.time_ms += 2 * SECONDS
        await timed.maintain()
        await job.refused(NotFound)


class TestStagingUnderWriters:
    @pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.MIRROR])
    async def test_writers_at_the_same_time(
        self, storage: Storage, make_storage: StorageMaker, mode: WriteMode
    ) -> None:
        handle = await new_collection(storage)
        second = Handle(await make_storage(beside=storage), handle.name)
        await handle.create(*(point(name(n), n=0) for n in range(COUNT)))
        over = asyncio.Event()

        async def write(who: Handle, first: int) -> None:
            n = 0
            while not over.is_set():
                n += 1
                at = (first + n) % COUNT
                await who.upsert(point(name(at), n=n), point(f"{first}-{n}", n=n))

        writers = [asyncio.create_task(write(who, n)) for n, who in enumerate([handle, second])]
        done = []
        for n in range(3):
            staged = [point(name(each), n=-n - 1) for each in range(COUNT)]
            done.append(await written(storage, handle.name, staged, mode))
        over.set()
        await asyncio.gather(*writers)
        for n, applied in enumerate(done):
            assert applied.txn is not None
            version = await storage.wait_published(applied.txn)
            assert version is not None
            live = await handle.live(seq(version))
            mine = {state.id: state for state in live if state.id.startswith("k")}
            assert values(mine.values()) == {name(each): -n - 1 for each in range(COUNT)}
            assert mode is WriteMode.UPSERT or len(mine) == len(live)

    async def test_a_collection_that_comes_up_meanwhile(
        self, storage: Storage, make_storage: StorageMaker
    ) -> None:
        second = await make_storage(beside=storage)
        jobs = [StagingJob(storage, fresh_name()) for _ in range(3)]
        for job in jobs:
            job.info = jobs[0].info
            await job.stage([point(job.id)])
        on = (storage, second, storage)
        done = await asyncio.gather(*(j.apply(on=o) for j, o in zip(jobs, on, strict=True)))
        assert [counts(applied) for applied in done] == [(1, 0, 0, 0)] * 3
        assert ids_of(await jobs[0].handle.live()) == sorted(job.id for job in jobs)


class TestStagingOnABranch:
    async def test_a_branch_is_written_to_like_main(self, places: Handle) -> None:
        await places.create(*(point(name(n), n=0) for n in range(10)))
        branch = (await branch_of(places.storage)).on(places)
        await branch.delete(name(9))
        await branch.create(point("mine", n=0))
        staged = [point(name(n), n=n % 2) for n in range(6)] + [point("new", n=1)]
        job = StagingJob(branch.storage, places.name)
        await job.stage(staged)
        applied = await job.apply(WriteMode.MIRROR, message="on a branch")
        assert counts(applied) == (1, 3, 4, 3)
        assert values(await branch.live()) == {f["id"]: f["properties"]["n"] for f in staged}
        assert len(await places.live()) == 10
        assert (await job.apply(WriteMode.MIRROR)).repeated
        (transaction,) = await branch.storage.transactions(0, 1, newest_first=True)
        assert transaction.txn == applied.txn

    async def test_replacing_on_a_branch(self, places: Handle) -> None:
        await places.create(*(point(name(n), n=n % 3) for n in range(9)))
        branch = (await branch_of(places.storage)).on(places)
        staged = [point(name(0), n=0), point("x", n=1)]
        applied = await written(
            branch.storage, places.name, staged, WriteMode.REPLACE, key=("properties", "n")
        )
        assert counts(applied) == (1, 0, 5, 1)
        assert ids_of(await branch.live()) == [name(0), name(2), name(5), name(8), "x"]

    @pytest.mark.parametrize("key", [None, ("properties", "n")])
    async def test_much_is_deleted_on_a_branch(
        self, places: Handle, key: tuple[str, ...] | None
    ) -> None:
        """Deletes more than one batch reads or deletes."""
        await places.create(*(point(name(n), n=n % 4) for n in range(1200)))
        branch = (await branch_of(places.storage)).on(places)
        await branch.delete(*(name(n) for n in range(10)))
        await branch.create(*(point(f"mine{n}", n=n % 4) for n in range(300)))
        staged = [point(name(n), n=n % 2) for n in range(0, 1200, 3)]
        mode = WriteMode.MIRROR if key is None else WriteMode.REPLACE
        before = values(await branch.live())
        applied = await written(branch.storage, places.name, staged, mode, key=key)
        left = {f["id"]: f["properties"]["n"] for f in staged}
        if key is not None:
            left |= {id_: n for id_, n in before.items() if id_ not in left and n > 1}
        assert values(await branch.live()) == left
        assert applied.deleted == len(before.keys() - left.keys())
        assert len(await places.live()) == 1200

    async def test_a_job_of_main_is_not_a_job_of_a_branch(self, places: Handle) -> None:
        job = StagingJob(places.storage, places.name)
        await job.stage([point("x")])
        await job.apply()
        first, second = await branch_of(places.storage), await branch_of(places.storage)
        with pytest.raises(Conflict) as caught:
            await job.apply(on=first.storage)
        assert caught.value.field == "job"
        other = StagingJob(first.storage, places.name)
        await other.stage([point("y")])
        await other.apply()
        assert (await other.apply()).repeated
        for storage in (second.storage, places.storage):
            with pytest.raises(Conflict):
                await other.apply(on=storage)

    async def test_a_branch_makes_no_collections(self, places: Handle) -> None:
        branch = (await branch_of(places.storage)).on(places)
        job = StagingJob(branch.storage, fresh_name())
        with pytest.raises((CollectionNotFound, NotSupported)):
            await job.stage([point("x")])
            await job.apply()

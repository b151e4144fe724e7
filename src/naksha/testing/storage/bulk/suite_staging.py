"""Conformance: one transaction writes what many processes staged, once or not at all."""

from __future__ import annotations

import asyncio
import pickle
import types
from collections.abc import Coroutine, Generator, Iterable, Sequence
from typing import Any, cast

import msgspec
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureExists,
    InvalidArgument,
    NakshaError,
    NotFound,
)
from naksha.model.features import MARK_3D
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD
from naksha.spi.staging import JOB, AppliedWrite, StagedPart, StagedWrite, WriteMode
from naksha.spi.storage import Feature, Storage
from naksha.testing.models.json_values import same
from naksha.testing.storage.bulk.suite_bulk import COUNT, comparable, name, some_feature
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    content,
    feature,
    fresh_name,
    ids_of,
    log_after,
    new_collection,
    one_transaction,
    point,
    published,
    seq,
    with_xyz,
)


class StagingJob:
    """A staging job that writes to one collection."""

    def __init__(self, storage: Storage, info: CollectionInfo | str) -> None:
        self.storage = storage
        self.info = CollectionInfo(id=info) if isinstance(info, str) else info
        self.id = fresh_name("job")
        self.parts: list[StagedPart] = []

    @property
    def handle(self) -> Handle:
        return Handle(self.storage, self.info.id)

    async def stage(self, *batches: Sequence[Feature], on: Storage | None = None) -> StagedPart:
        """Stage features in one attempt that succeeds."""
        stage = await (on or self.storage).stage(self.id, self.info)
        try:
            for batch in batches:
                await stage.add(given_batch(batch))
            part = await stage.close()
        finally:
            await stage.abort()
        self.parts.append(part)
        return part

    async def apply(
        self, mode: WriteMode = WriteMode.UPSERT, *, on: Storage | None = None, **how: Any
    ) -> AppliedWrite:
        parts = how.pop("parts", self.parts)
        write = StagedWrite(job=self.id, info=self.info, mode=mode, **{"app_id": APP, **how})
        return await (on or self.storage).apply_staged(write, parts)

    async def refused(self, kind: type[NakshaError], **how: Any) -> NakshaError:
        """Apply the job, check that nothing changed, and return the error."""
        before = await published(self.storage)
        with pytest.raises(kind) as caught:
            await self.apply(**how)
        assert await log_after(self.storage, before) == []
        return caught.value


async def written(
    storage: Storage,
    info: CollectionInfo | str,
    features: Sequence[Feature],
    mode: WriteMode = WriteMode.UPSERT,
    **how: Any,
) -> AppliedWrite:
    """Stage and apply a job with one part."""
    job = StagingJob(storage, info)
    await job.stage(features)
    return await job.apply(mode, **how)


def counts(applied: AppliedWrite) -> tuple[int, int, int, int]:
    """Return the numbers of created, updated, deleted and retained features."""
    return (applied.created, applied.updated, applied.deleted, applied.retained)


def values(states: Iterable[State], key: str = "n") -> dict[str, Any]:
    return {state.id: state.feature["properties"].get(key) for state in states}


class TestStagedWrite:
    async def test_a_new_collection_is_as_if_it_was_inserted(self, storage: Storage) -> None:
        features = [some_feature(n) for n in range(COUNT)]
        normal = await new_collection(storage)
        await normal.create(*features, app="loader", author="me")
        before = await published(storage)
        job = StagingJob(storage, CollectionInfo(id=fresh_name(), max_age=99, author="nobody"))
        for first in range(3):
            await job.stage(features[first::6], features[first + 3 :: 6])
        assert [part.features for part in job.parts] == [COUNT // 3] * 3
        applied = await job.apply(WriteMode.CREATE, app_id="loader", author="me")
        assert counts(applied) == (COUNT, 0, 0, 0)
        assert not applied.repeated
        assert applied.txn is not None
        version = await storage.wait_published(applied.txn)
        assert version is not None
        for at in (HEAD, seq(version)):
            found = [comparable(state) for state in await job.handle.live(at)]
            assert same(found, [comparable(state) for state in await normal.live()])
        live = await job.handle.live()
        assert {state.txn for state in live} == {applied.txn}
        assert len({state.uuid for state in live}) == COUNT
        assert await job.handle.live(seq(before)) == []
        assert (await storage.collection(job.info.id)).max_age == 99

    async def test_an_existing_collection_is_as_if_it_was_written_to(self, places: Handle) -> None:
        twin = await new_collection(places.storage)
        for handle in (places, twin):
            await handle.create(*(some_feature(n) for n in range(0, COUNT, 2)), author="first")
            await handle.delete(*(name(n) for n in range(0, COUNT, 6)))
        features = [some_feature(n, n % 4) for n in range(COUNT)]
        features += [feature(f"extra {n}", None, xyz={}, n=n) for n in range(3)]
        await twin.upsert(*features, app="loader", author="me")
        job = StagingJob(places.storage, places.name)
        await asyncio.gather(*(job.stage(features[first::4]) for first in range(4)))
        applied = await job.apply(app_id="loader", author="me")
        found = [comparable(state) for state in await places.all()]
        wanted = [comparable(state) for state in await twin.all()]
        assert same([_unnumbered(each) for each in found], [_unnumbered(e) for e in wanted])
        assert sum(counts(applied)) == len(features)
        assert counts(applied) == (43, 10, 0, 10)

    async def test_the_collection_is_usable_afterwards(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage([some_feature(n) for n in range(COUNT)])
        await job.apply()
        version = await published(storage)
        old = await job.handle.get(name(1))
        await job.handle.update(some_feature(1, "new"))
        new = await job.handle.get(name(1))
        assert (new.xyz["version"], new.xyz["puuid"]) == (2, old.uuid)
        await job.handle.delete(name(2))
        await job.handle.create(point("added"))
        assert len(await job.handle.live()) == COUNT
        assert len(await job.handle.live(seq(version))) == COUNT
        assert (await storage.state(old.uuid)).id == name(1)

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_the_log_has_an_entry(self, storage: Storage, is_new: bool) -> None:
        handle = Handle(storage, fresh_name())
        if not is_new:
            handle = await new_collection(storage)
            await handle.create(point(name(0), 0, 5), point("other", 0, 0))
        before = await published(storage)
        job = StagingJob(storage, handle.name)
        await job.stage([point(name(n), n, -n) for n in range(10)])
        applied = await job.apply(app_id="loader", author="me", message="a load")
        transaction = await one_transaction(storage, before)
        assert (transaction.app_id, transaction.author) == ("loader", "me")
        assert transaction.txn == applied.txn
        features = next(s for s in transaction.signals if s.action == "MODIFY_FEATURES")
        assert features.id == handle.name
        assert (features.created, features.updated) == ((10, 0) if is_new else (9, 1))
        assert features.bbox == (0.0, -9.0, 9.0, 0.0 if is_new else 5.0)
        texts = {s.id: s.text for s in transaction.signals if s.action == "MESSAGE"}
        assert texts == {"message": "a load", "job": job.id}

    async def test_geometries_and_ids_are_kept_as_they_came(self, storage: Storage) -> None:
        flat = {"type": "Point", "coordinates": [1.1, 2.2]}
        raised = {"type": "LineString", "coordinates": [[1.1, 2.2, 3.3], [4.4, 5.5, 0.0]]}
        both = [feature("flat", flat), feature("raised", raised), feature("none", None)]
        info = CollectionInfo(id=fresh_name(), id_prefix="p:")
        job = StagingJob(storage, info)
        await job.stage([{**each, "id": f"p:{each['id']}"} for each in both])
        await job.stage([{**feature(None, flat), "title": "made up"}])
        await job.apply()
        # Repeat it on the collection, which is not empty any more.
        assert counts(await written(storage, info, both)) == (0, 0, 0, 3)
        found = {state.id: state.feature for state in await job.handle.live()}
        assert len(found) == 4
        assert {each["id"]: found[each["id"]]["geometry"] for each in both} == {
            "flat": flat,
            "raised": raised,
            "none": None,
        }
        assert [each["title"] for each in found.values() if "title" in each] == ["made up"]

    async def test_computed_members_that_were_staged_are_dropped(self, storage: Storage) -> None:
        high = feature("high", {"type": "Point", "coordinates": [1.5, 2.5, 3.5]})
        job = StagingJob(storage, fresh_name())
        await job.stage([{**point("flat"), MARK_3D: True}, {MARK_3D: False, **high}])
        await job.apply()
        assert [content(state) for state in await job.handle.live()] == [point("flat"), high]

    async def test_a_collection_that_is_there_keeps_its_settings(self, storage: Storage) -> None:
        handle = await new_collection(storage, author="owner", id_prefix="p:", max_age=7)
        job = StagingJob(storage, CollectionInfo(id=handle.name, author="other", max_age=8))
        await job.stage([point("p:x"), point("y")])
        await job.apply()
        info = await storage.collection(handle.name)
        assert (info.author, info.id_prefix, info.max_age) == ("owner", "p:", 7)
        assert {s.id: s.xyz["author"] for s in await handle.live()} == {"x": "owner", "y": "owner"}

    async def test_a_collection_without_history(self, storage: Storage) -> None:
        info = CollectionInfo(id=fresh_name(), history_enabled=False)
        done = [
            await written(storage, info, [point("x", n=n), point(f"y{n}")], WriteMode.MIRROR)
            for n in range(3)
        ]
        assert [counts(each) for each in done] == [(2, 0, 0, 0), (1, 1, 1, 0), (1, 1, 1, 0)]
        handle = Handle(storage, info.id)
        assert ids_of(await handle.all()) == ["x", "y0", "y1", "y2"]
        assert (await handle.get("x")).xyz["version"] == 3

    async def test_only_points_where_only_points_are_taken(self, storage: Storage) -> None:
        line = {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}
        stage = await storage.stage("j", CollectionInfo(id=fresh_name(), points_only=True))
        with pytest.raises(InvalidArgument, match="points only") as caught:
            await stage.add(given_batch([point("x"), feature("y", line)]))
        assert caught.value.feature_id == "y"
        await stage.abort()


def _unnumbered(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without the numbers of its predecessor and successor."""
    xyz = dict(state["xyz"])
    xyz["puuid"], xyz["txn_next"] = xyz["puuid"] is None, xyz["txn_next"] == "0"
    return state | {"xyz": xyz}


class TestStagingModes:
    async def test_equal_features_are_left_alone(self, places: Handle) -> None:
        await places.create(with_xyz(point("x", n=1), tags=["t"], crid="c"), point("y", n=1))
        old = await places.get("x")
        # Omitted tags and crid stay as they are.
        applied = await written(places.storage, places.name, [point("x", n=1), point("y", n=2)])
        assert counts(applied) == (0, 1, 0, 1)
        assert (await places.get("x")).raw == old.raw
        before = await places.published()
        applied = await written(places.storage, places.name, [point("x", n=1), point("y", n=2)])
        assert applied == AppliedWrite(None, 0, 0, 0, 2)
        assert await log_after(places.storage, before) == []

    async def test_create_refuses_what_is_there(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("gone"))
        await places.delete("gone")
        job = StagingJob(places.storage, places.name)
        await job.stage([point("new"), point("gone")])
        await job.stage([point("x", n=2)])
        error = await job.refused(FeatureExists, mode=WriteMode.CREATE)
        assert (error.feature_id, error.collection_id) == ("x", places.name)
        # The staged features are still there, and can be applied in another mode.
        assert counts(await job.apply()) == (2, 1, 0, 0)
        assert (await places.get("gone")).xyz["version"] == 3

    async def test_replace_deletes_what_has_the_same_key(self, places: Handle) -> None:
        key = ("properties", "of", "source")
        made = {"a": "s1", "b": "s1", "c": "s2", "d": None, "e": 1, "f": ["s1"], "g": "s3"}
        await places.create(*(point(i, of={"source": s}) for i, s in made.items()), point("h"))
        staged = [
            point("b", of={"source": "s1"}, n=2),
            point("c", of={"source": "s1"}),
            point("new", of={"source": 1}),
            point("null", of={"source": None}),
            point("nothing"),
        ]
        applied = await written(places.storage, places.name, staged, WriteMode.REPLACE, key=key)
        # The keys of "a" and "e" are staged; "b" and "c" are staged themselves.
        assert counts(applied) == (3, 2, 2, 0)
        wanted = ["b", "c", "d", "f", "g", "h", "new", "nothing", "null"]
        assert ids_of(await places.live()) == wanted
        assert ids_of(await places.deleted()) == ["a", "e"]

    @pytest.mark.parametrize("last", ["0", "-1", "1"])
    async def test_a_key_does_not_lead_into_arrays(self, places: Handle, last: str) -> None:
        await places.create(
            point("array", src=["x", "x"]),
            point("object", src={last: "x"}),
            point("deeper", src=[{last: "x"}]),
        )
        staged = [point("new", src={last: "x"}), point("other", src=["x", "y"])]
        key = ("properties", "src", last)
        applied = await written(places.storage, places.name, staged, WriteMode.REPLACE, key=key)
        assert counts(applied) == (2, 0, 1, 0)
        assert ids_of(await places.live()) == ["array", "deeper", "new", "other"]

    @pytest.mark.parametrize(
        "key",
        [("properties",), ("properties", XYZ), ("properties", XYZ, "tags"), ("geometry", "type")],
    )
    async def test_a_key_that_no_staged_feature_has_is_refused(
        self, places: Handle, key: tuple[str, ...]
    ) -> None:
        """Such a key would never delete anything."""
        job = StagingJob(places.storage, places.name)
        await job.stage([point("x")])
        error = await job.refused(InvalidArgument, mode=WriteMode.REPLACE, key=key)
        assert error.field == "key"

    async def test_mirror_deletes_what_is_not_staged(self, places: Handle) -> None:
        await places.create(*(point(name(n), n=n) for n in range(COUNT)))
        version = await places.published()
        staged = [point(name(n), n=n % 3) for n in range(0, COUNT, 3)]
        job = StagingJob(places.storage, places.name)
        await job.stage(staged[::2])
        await job.stage([*staged[1::2], point("new")])
        assert counts(await job.apply(WriteMode.MIRROR)) == (1, COUNT // 3 - 1, COUNT // 3 * 2, 1)
        assert ids_of(await places.live()) == sorted([*(f["id"] for f in staged), "new"])
        assert len(await places.deleted()) == COUNT // 3 * 2
        assert len(await places.live(seq(version))) == COUNT

    async def test_mirror_of_nothing_deletes_all(self, places: Handle) -> None:
        await places.create(point("x"), point("y"))
        job = StagingJob(places.storage, places.name)
        assert counts(await job.apply(WriteMode.MIRROR)) == (0, 0, 2, 0)
        assert await places.live() == []
        assert counts(await job.apply(WriteMode.MIRROR)) == (0, 0, 2, 0)

    async def test_nothing_at_all_makes_the_collection(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage()
        assert counts(await job.apply(WriteMode.CREATE)) == (0, 0, 0, 0)
        assert await job.handle.live() == []
        await job.handle.create(point("x"))

    async def test_a_state_that_is_named_must_be_the_last(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("y", n=1))
        x, y = await places.get("x"), await places.get("y")
        await places.update(point("x", n=2))
        job = StagingJob(places.storage, places.name)
        await job.stage([y.feature | {"properties": y.feature["properties"] | {"n": 2}}])
        await job.stage([x.feature])
        error = await job.refused(Conflict)
        assert (error.feature_id, error.field) == ("x", "uuid")
        assert counts(await job.apply(parts=job.parts[:1])) == (0, 1, 0, 0)

    async def test_a_state_of_a_collection_that_is_gone_is_a_conflict(self, places: Handle) -> None:
        await places.create(point("x"))
        old = await places.get("x")
        await places.delete("x")
        await places.purge("x")
        job = StagingJob(places.storage, places.name)
        await job.stage([point("y"), old.feature])
        assert (await job.refused(Conflict)).feature_id == "x"
        # The uuid of another collection's state names the origin of the feature; it is not a lock.
        await written(places.storage, fresh_name(), [old.feature])


@types.coroutine
def _held(
    call: Coroutine[Any, Any, AppliedWrite], steps: int, begun: asyncio.Event, until: asyncio.Event
) -> Generator[Any, Any, AppliedWrite]:
    """Run a call, but suspend it after its n-th await until `until` is set.

    `begun` is set when the call is suspended, or when it ends before its n-th await.
    """
    failed: BaseException | None = None
    try:
        while True:
            try:
                waits_for = call.send(None) if failed is None else call.throw(failed)
            except StopIteration as end:
                return cast(AppliedWrite, end.value)
            failed = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the call's
                failed = error
            steps -= 1
            if steps == 0:
                begun.set()
                yield from until.wait().__await__()
    finally:
        begun.set()


class TestStagingOnce:
    @pytest.mark.parametrize("is_new", [True, False])
    async def test_a_repeated_call_does_nothing(
        self, storage: Storage, make_storage: StorageMaker, is_new: bool
    ) -> None:
        job = StagingJob(storage, fresh_name())
        if not is_new:
            await new_collection(storage, id=job.info.id)
            await job.handle.create(point("y"))
        await job.stage([point("x", n=1)])
        applied = await job.apply(WriteMode.MIRROR)
        await job.handle.update(point("x", n=2))
        second = await make_storage(beside=storage)
        for on in (storage, second):
            again = await job.apply(WriteMode.MIRROR, on=on)
            assert again == msgspec.structs.replace(applied, repeated=True)
        assert values(await job.handle.live()) == {"x": 2}

    async def test_a_job_of_the_same_id_for_another_collection_is_refused(
        self, storage: Storage
    ) -> None:
        job, other = StagingJob(storage, fresh_name()), StagingJob(storage, fresh_name())
        await job.stage([point("x")])
        await job.apply()
        other.id = job.id
        await other.stage([point("y")])
        error = await other.refused(Conflict)
        assert (error.field, error.collection_id) == ("job", other.info.id)
        # The job's own repetition is still recognized.
        assert (await job.apply()).repeated

    async def test_a_job_record_without_target_still_counts(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage([point("x")])
        applied = await job.apply()
        record = await storage.stored_object(JOB, job.id)
        assert record is not None
        old = {k: v for k, v in record.value.items() if k not in ("collection", "overlay")}
        await storage.run(lambda s: s.store_object(JOB, job.id, old), APP)
        assert await job.apply() == msgspec.structs.replace(applied, repeated=True)

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_two_calls_at_once_do_it_once(
        self, storage: Storage, make_storage: StorageMaker, is_new: bool
    ) -> None:
        job = StagingJob(storage, fresh_name())
        if not is_new:
            await new_collection(storage, id=job.info.id)
            await job.handle.create(point("x", n=0))
        await job.stage([point("x", n=1), point("y")])
        second = await make_storage(beside=storage)
        before = await published(storage)
        done = await asyncio.gather(*(job.apply(on=on) for on in (storage, second, storage)))
        assert sorted(applied.repeated for applied in done) == [False, True, True]
        assert len({counts(applied) for applied in done}) == 1
        assert {applied.txn for applied in done} == {(await one_transaction(storage, before)).txn}

    @pytest.mark.parametrize("steps", range(1, 9))
    async def test_a_second_call_that_is_slower_does_nothing(
        self, storage: Storage, make_storage: StorageMaker, steps: int
    ) -> None:
        """The first call ends and drops the staged features while the second is suspended."""
        job = StagingJob(storage, fresh_name())
        await job.stage([point("x")])
        second = await make_storage(beside=storage)
        begun, over = asyncio.Event(), asyncio.Event()
        slow = asyncio.create_task(_held(job.apply(on=second), steps, begun, over))
        await asyncio.wait_for(begun.wait(), 30)
        fast = asyncio.create_task(job.apply())
        # If the second call has begun to write, the first one waits and becomes the later one.
        await asyncio.wait([fast], timeout=0.3)
        over.set()
        done = await asyncio.gather(fast, slow)
        assert sorted(applied.repeated for applied in done) == [False, True]
        assert len({(applied.txn, counts(applied)) for applied in done}) == 1

    async def test_only_the_parts_that_are_named_count(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage([point("x", n="first attempt")])
        part = await job.stage([point("x", n="second attempt")])
        open_ = await storage.stage(job.id, job.info)
        await open_.add(given_batch([point("y")]))
        await job.apply(parts=[part])
        assert values(await job.handle.live()) == {"x": "second attempt"}
        # The unnamed parts of the job are dropped.
        later = StagingJob(storage, job.info)
        later.id = job.id
        with pytest.raises(NakshaError):
            await open_.add(given_batch([point("z")]))
            await open_.close()
        await open_.abort()
        for other in job.parts:
            stolen = StagedPart(fresh_name("job"), other.table, other.features)
            write = StagedWrite(job=stolen.job, info=job.info, mode=WriteMode.UPSERT, app_id=APP)
            with pytest.raises((NotFound, InvalidArgument)):
                await storage.apply_staged(write, [stolen])

    async def test_parts_travel(self, storage: Storage, make_storage: StorageMaker) -> None:
        second = await make_storage(beside=storage)
        job = StagingJob(storage, fresh_name())
        await job.stage([point("x")], on=second)
        await job.stage([point("y")])
        text = pickle.dumps(job.parts)
        assert len(text) < 1000
        third = await make_storage(beside=storage)
        assert counts(await job.apply(on=third, parts=pickle.loads(text))) == (2, 0, 0, 0)
        assert ids_of(await job.handle.live()) == ["x", "y"]

    async def test_an_id_that_is_staged_twice_is_refused(self, storage: Storage) -> None:
        for is_new in (True, False):
            job = StagingJob(storage, fresh_name())
            if not is_new:
                await new_collection(storage, id=job.info.id)
                await job.handle.create(point("old"))
            await job.stage([point(name(n)) for n in range(COUNT)])
            await job.stage([point("other"), point(name(7))])
            error = await job.refused(InvalidArgument)
            assert error.feature_id == name(7)
            assert counts(await job.apply(parts=job.parts[1:])) == (2, 0, 0, 0)

    async def test_an_id_that_is_there_twice_in_a_part_is_refused(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        with pytest.raises(InvalidArgument) as caught:
            await job.stage([point("x"), point("y")], [point("z"), point("y")])
            await job.apply()
        assert caught.value.feature_id == "y"

    async def test_parts_of_others_are_refused(self, storage: Storage) -> None:
        job, other = StagingJob(storage, fresh_name()), StagingJob(storage, fresh_name())
        part, foreign = await job.stage([point("x")]), await other.stage([point("y")])
        elsewhere = await storage.stage(job.id, other.info)
        await elsewhere.add(given_batch([point("z")]))
        wrong: list[tuple[StagedPart, type[NakshaError]]] = [
            (foreign, InvalidArgument),
            (part, InvalidArgument),
            (await elsewhere.close(), InvalidArgument),
            (StagedPart(job.id, foreign.table, 1), NotFound),
            (StagedPart(job.id, job.info.id, 1), NotFound),
            (StagedPart(job.id, 'x"; DROP TABLE naksha_kept; --', 1), NotFound),
        ]
        for second, kind in wrong:
            await job.refused(kind, parts=[part, second])
        with pytest.raises(CollectionNotFound):
            await storage.collection(job.info.id)
        assert counts(await job.apply()) == (1, 0, 0, 0)
        assert counts(await other.apply()) == (1, 0, 0, 0)

    async def test_invalid_calls_are_refused(self, storage: Storage) -> None:
        job = StagingJob(storage, fresh_name())
        await job.stage([point("x")])
        wrong: list[dict[str, Any]] = [
            {"mode": WriteMode.REPLACE},
            {"mode": WriteMode.REPLACE, "key": ()},
            {"key": ("properties", "a")},
            {"app_id": ""},
            {"author": ""},
            {"message": "x\0"},
        ]
        for how in wrong:
            await job.refused(InvalidArgument, **how)
        for id_ in ("", "x" * (limits.JOB_ID_BYTES_MAX + 1)):
            with pytest.raises(InvalidArgument):
                await storage.stage(id_, job.info)
        with pytest.raises(InvalidArgument):
            await storage.stage("j", CollectionInfo(id="Not An Id"))

"""Jobs of a hub: who may submit which, what they are told, and what becomes of them when nobody
runs them. What runs for real is in `test_real_jobs.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.catalog.entities import Edit
from naksha.hub.context import Actor
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs import changes
from naksha.hub.jobs.changes import (
    Seen,
    cancel_job,
    job_of,
    jobs_of,
    log_of,
    remove_job,
    submit_job,
)
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JOBS,
    JobLog,
    JobObject,
    JobState,
    JobTable,
    State,
    add_to_log,
)
from naksha.hub.jobs.running import Runner, Running
from naksha.hub.jobs.service import running_jobs
from naksha.hub.jobs.targets import Placed, target_of, whole_spec
from naksha.hub.leasing import Holding, take
from naksha.hub.objects import Connector, Space
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    Busy,
    CollectionNotFound,
    Conflict,
    Forbidden,
    InUse,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
    NotSupported,
    ReadOnly,
)
from naksha.spi.staging import StagedWrite, WriteMode
from naksha.testing.given import given_batch
from naksha.testing.suite_support import point
from tests.hub.realms import ADMIN, a_hub, an_actor
from tests.hub.subscriptions.support import eventually
from tests.jobs.sample import COUNT, LOAD, ONCE, WIPE
from tests.jobs.support import site

DEAD = "dead-instance"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> JobKinds:
    """The jobs that a process which knows the sample ones tells of, asked once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site(tmp_path_factory.mktemp("site")).items():
            patch.setenv(name, value)
        made = JobKinds()
        asyncio.run(made.all())
    made._line = asyncio.Lock()  # it belongs to the loop that used it first
    return made


class Realm:
    """A realm with a space, and what is asked of it."""

    def __init__(self, hub: Hub, realm: RealmHub, kinds: JobKinds, files: Path) -> None:
        self.hub = hub
        self.realm = realm
        self.kinds = kinds
        self.files = JobFiles(files)

    async def submit(self, job: str = COUNT, actor: Actor = ADMIN, **told: Any) -> Seen:
        body = {"id": "one", "job": job, **told}
        if "storageId" not in told:
            body.setdefault("spaceId", "roads")
        return await submit_job(
            self.realm, JobObject.from_json(body), actor, self.kinds, self.files
        )

    async def spec(self, job: JobObject) -> dict[str, Any]:
        """What its process would be told."""
        kind = await self.kinds.get(job.job)
        target = await target_of(await self.realm.registry.snapshot_now(), job, kind)
        placed = Placed(*self.realm.located(target.storage))
        return whole_spec(job, kind, target, placed, self.files, self.realm.realm_id)

    async def put(self, job: JobObject, **state: Any) -> None:
        """As if something had happened to a job meanwhile."""
        table = JobTable(self.realm.opened.persistence)
        changed = await table.change(
            job.own.state_id, lambda old: msgspec.structs.replace(old, **state)
        )
        assert changed is not None


@asynccontextmanager
async def a_realm(directory: Path, kinds: JobKinds, **options: Any) -> AsyncIterator[Realm]:
    async with a_hub(directory, **options) as hub:
        realm = await hub.realm("default")
        await realm.registry.create(Space(id="roads"), ADMIN)
        yield Realm(hub, realm, kinds, directory / "files")


async def has_ended(realm: Realm, id: str) -> bool:
    return (await job_of(realm.realm, id, ADMIN)).state.state.is_final


async def is_alone(realm: Realm) -> bool:
    return len(await jobs_of(realm.realm, ADMIN)) == 1


# ---- What is submitted ---------------------------------------------------------------------------


async def test_a_job_waits_is_seen_and_is_cancelled(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        assert await jobs_of(realm.realm, ADMIN) == []
        seen = await realm.submit(title="Count them")
        assert (seen.state.state, seen.job.title) == (State.SUBMITTED, "Count them")
        assert [one.job.id for one in await jobs_of(realm.realm, ADMIN)] == ["one"]
        assert await jobs_of(realm.realm, ADMIN, [State.DONE]) == []
        with pytest.raises(Conflict):
            await realm.submit()
        with pytest.raises(InUse, match="submitted"):
            await remove_job(realm.realm, "one", ADMIN)
        cancelled = await cancel_job(realm.realm, "one", ADMIN)
        assert (cancelled.state.state, cancelled.state.cancelled_by) == (State.CANCELLED, "tests")
        assert await cancel_job(realm.realm, "one", ADMIN) == cancelled
        log = await log_of(realm.realm, seen.job)
        assert [line.text for line in log.lines] == ["submitted by tests", "cancelled by tests"]
        await remove_job(realm.realm, "one", ADMIN)
        with pytest.raises(NotFound):
            await job_of(realm.realm, "one", ADMIN)
        table = JobTable(realm.realm.opened.persistence)
        assert await table.get(seen.job.own.state_id) is None
        assert await log_of(realm.realm, seen.job) == JobLog()


async def test_what_is_written_under_a_job_is_called_like_no_other(
    tmp_path: Path, kinds: JobKinds
) -> None:
    """A job that has the id of a former one must not count as done already."""
    async with a_realm(tmp_path, kinds) as realm:
        found = []
        for _ in range(2):
            seen = await realm.submit(LOAD, spec={"source": "a.json"})
            found.append((await realm.spec(seen.job))["job_id"])
            await cancel_job(realm.realm, "one", ADMIN)
            await remove_job(realm.realm, "one", ADMIN)
        assert found[0] != found[1]
        assert all(len(one) == 32 for one in found)


async def test_the_process_is_told_where_and_who_by_the_hub(
    tmp_path: Path, kinds: JobKinds
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        actor = msgspec.structs.replace(ADMIN, app_id="loader", author="ann")
        seen = await realm.submit(LOAD, actor, spec={"source": "in/a.json", "mode": "upsert"})
        spec = await realm.spec(seen.job)
        assert spec == {
            "job": LOAD,
            "place": {"location": f"file:{tmp_path}/default.naksha"},
            "collection": "roads",
            "info": msgspec.to_builtins(CollectionInfo(id="roads")),
            "app_id": "loader",
            "author": "ann",
            "job_id": seen.job.own.run_id,
            "source": str(tmp_path / "files" / "default" / "in" / "a.json"),
            "mode": "upsert",
        }
        assert "own" not in seen.job.to_json()


@pytest.mark.parametrize("spec", [{"files": ["a"]}, {"files": ["a"], "history": True}])
async def test_a_load_makes_the_collection_that_the_space_wants(
    spec: dict[str, Any], tmp_path: Path, kinds: JobKinds
) -> None:
    """Dated or not; and none where the connector does not want that."""
    async with a_realm(tmp_path, kinds) as realm:
        registry = realm.realm.registry
        wanted = {"id": "lanes", "maxAge": 7, "historyEnabled": False, "idPrefix": "l-"}
        stored = {"storageId": "default", "collection": wanted}
        for id, properties in (
            ("makes", stored),
            ("finds", {**stored, "autoCreateCollection": False}),
        ):
            thing = Connector(id=id, class_name="storage", properties=properties)
            await registry.create(thing, ADMIN)
            await registry.create(Space(id=id, event_handler_ids=(id,)), ADMIN)
        for id in ("makes", "finds"):
            await realm.submit("load", id=id, spaceId=id, spec=spec)
        makes, finds = [(await job_of(realm.realm, id, ADMIN)).job for id in ("makes", "finds")]
        how = Running(kinds=kinds, files=realm.files)
        runner = Runner(realm.realm, makes, await held(realm, makes), how)
        told = msgspec.convert((await runner._spec())["info"], CollectionInfo)
        info = CollectionInfo(id="lanes", max_age=7, history_enabled=False, id_prefix="l-")
        assert told == info
        runner = Runner(realm.realm, finds, await held(realm, finds), how)
        with pytest.raises(CollectionNotFound, match="autoCreateCollection"):
            await runner._spec()
        async with (await realm.realm.storage("default")).write("test") as session:
            await session.create_collection(info)
        assert (await runner._spec())["collection"] == "lanes"


@pytest.mark.parametrize(
    ("told", "error", "field"),
    [
        ({"job": "nothing"}, InvalidArgument, "job"),
        ({"spaceId": "nowhere"}, NotFound, "spaceId"),
        ({"storageId": "nowhere", "collection": "a"}, NotFound, "storageId"),
        ({"storageId": "default"}, InvalidArgument, "collection"),
        ({"spaceId": "roads", "storageId": "default"}, InvalidArgument, "spaceId"),
        ({"collection": "roads"}, InvalidArgument, "collection"),
        ({"spec": {"colour": "red"}}, InvalidArgument, "spec.colour"),
        ({"spec": {"steps": "many"}}, InvalidArgument, "spec.steps"),
        ({"spec": {"job_id": "mine"}}, InvalidArgument, "spec.job_id"),
        ({"job": "load", "spec": {"info": {"id": "a"}}}, InvalidArgument, "spec.info"),
        ({"spec": {"place": {"location": "file:other"}}}, InvalidArgument, "spec.place"),
        ({"spec": {"app_id": "root"}}, InvalidArgument, "spec.app_id"),
        ({"job": LOAD}, InvalidArgument, "spec.source"),
        ({"job": LOAD, "spec": {"source": "a", "mode": "sometimes"}}, InvalidArgument, "spec.mode"),
        ({"spec": {"fails": "x" * limits.JOB_SPEC_BYTES_MAX}}, LimitExceeded, "spec"),
    ],
)
async def test_what_is_wrong_is_named(
    told: dict[str, Any],
    error: type[NakshaError],
    field: str,
    tmp_path: Path,
    kinds: JobKinds,
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        with pytest.raises(error) as caught:
            await realm.submit(**told)
        assert caught.value.field == field
        assert await jobs_of(realm.realm, ADMIN) == []


async def test_a_job_does_not_go_past_the_handlers_of_a_space(
    tmp_path: Path, kinds: JobKinds
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        registry = realm.realm.registry
        stored = {"storageId": "default"}
        for id, class_name, properties in (
            ("tagged", "tag-filter", {"add": ["a"]}),
            ("store", "storage", stored),
        ):
            thing = Connector(id=id, class_name=class_name, properties=properties)
            await registry.create(thing, ADMIN)
        for id, handlers in (("filtered", ("tagged", "store")), ("plain", ("store",))):
            await registry.create(Space(id=id, event_handler_ids=handlers), ADMIN)
        await registry.create(Space(id="fixed", read_only=True), ADMIN)
        with pytest.raises(NotSupported, match="go past"):
            await realm.submit(spaceId="filtered")
        await realm.submit(id="a", spaceId="plain")
        await realm.submit(id="b", spaceId="fixed")
        for job, spec in ((LOAD, {"source": "a.json"}), (WIPE, {})):
            with pytest.raises(ReadOnly):
                await realm.submit(job, spaceId="fixed", spec=spec)


async def test_a_realm_has_so_many_jobs_and_no_more(
    tmp_path: Path, kinds: JobKinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOBS_WAITING_MAX", 2)
    monkeypatch.setattr(limits, "JOBS_MAX", 3)
    async with a_realm(tmp_path, kinds) as realm:
        await realm.submit(id="a")
        await realm.submit(id="b")
        with pytest.raises(Busy):
            await realm.submit(id="c")
        await cancel_job(realm.realm, "a", ADMIN)
        await realm.submit(id="c")
        await cancel_job(realm.realm, "b", ADMIN)
        with pytest.raises(LimitExceeded):
            await realm.submit(id="d")
        await remove_job(realm.realm, "a", ADMIN)
        await realm.submit(id="d")


# ---- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../other/a.json",
        "a/../../other/a.json",
        "a/../b.json",
        "/etc/passwd",
        "link/a.json",
        "file:///etc/passwd",
        "{x/y/z/w,../../other}",
        "[.][.]/other",
        "a\\..\\b",
        "",
        "a\nb",
    ],
)
async def test_files_of_others_are_out_of_reach(name: str, tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        mine = tmp_path / "files" / "default"
        mine.mkdir(parents=True)
        (tmp_path / "files" / "other").mkdir()
        (mine / "link").symlink_to(tmp_path / "files" / "other")
        for spec in ({"output": name}, {"sources": ["a.json", name]}):
            if name != "file:///etc/passwd":
                with pytest.raises((Forbidden, InvalidArgument)) as caught:
                    await realm.submit(spec=spec)
                assert isinstance(caught.value, NakshaError)
                field = "spec.output" if "output" in spec else "spec.sources[1]"
                assert caught.value.field == field
                continue
            # A name that only looks like more: it is below the directory.
            told = await realm.spec((await realm.submit(spec=spec)).job)
            (path,) = [told["output"]] if "output" in spec else told["sources"][1:]
            assert Path(path).is_relative_to(mine)
            await cancel_job(realm.realm, "one", ADMIN)
            await remove_job(realm.realm, "one", ADMIN)


async def test_every_realm_has_its_own_directory(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        other = await realm.hub.set_up_realm("other")
        await other.registry.create(Space(id="roads"), ADMIN)
        found = []
        for one in (realm.realm, other):
            it = Realm(realm.hub, one, kinds, tmp_path / "files")
            seen = await it.submit(spec={"output": "n.txt"})
            found.append((await it.spec(seen.job))["output"])
        assert found == [str(tmp_path / "files" / id / "n.txt") for id in ("default", "other")]
        assert [one.job.id for one in await jobs_of(other, ADMIN)] == ["one"]


async def test_without_a_directory_there_are_no_files(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        realm.files = JobFiles(None)
        await realm.submit(id="none")
        with pytest.raises(Forbidden, match="--job-files"):
            await realm.submit(spec={"output": "n.txt"})


# ---- Rights --------------------------------------------------------------------------------------

ROADS = {"spaceId": "roads"}
SEES: dict[str, Any] = {"manageJobs": [{}], "useSpaces": [{}], "useStorages": [{}]}
READS = {**SEES, "readFeatures": [ROADS]}
WRITES = {**SEES, "createFeatures": [ROADS], "updateFeatures": [ROADS]}
EDITS = {**WRITES, "deleteFeatures": [ROADS]}
INTO = {"source": "a.json"}


@pytest.mark.parametrize(
    ("job", "told", "urm", "missing"),
    [
        (COUNT, {}, {}, "manageJobs"),
        (COUNT, {}, {"manageJobs": [{}]}, "useSpaces"),
        (COUNT, {}, SEES, "readFeatures"),
        (COUNT, {}, {**SEES, "readFeatures": [{"spaceId": "other"}]}, "readFeatures"),
        (COUNT, {}, {**SEES, "readFeatures": [{**ROADS, "tags": "open"}]}, "readFeatures"),
        (COUNT, {}, {**READS, "manageJobs": [{"job": "export"}]}, "manageJobs"),
        (COUNT, {}, READS, None),
        (LOAD, {"spec": INTO}, READS, "createFeatures"),
        (LOAD, {"spec": INTO}, {**SEES, "createFeatures": [{}]}, "updateFeatures"),
        (LOAD, {"spec": INTO}, WRITES, None),
        (LOAD, {"spec": {**INTO, "mode": "mirror"}}, WRITES, "deleteFeatures"),
        (LOAD, {"spec": {**INTO, "mode": "mirror"}}, {**WRITES, "deleteFeatures": [{}]}, None),
        (LOAD, {"spec": {**INTO, "history": True}}, WRITES, "deleteFeatures"),
        (LOAD, {"spec": {**INTO, "history": True}}, EDITS, "manageStorages"),
        (LOAD, {"spec": {**INTO, "history": True}}, {**EDITS, "manageStorages": [{}]}, None),
        (WIPE, {}, READS, "manageSpaces"),
        (WIPE, {}, {**READS, "manageSpaces": [{"id": "roads"}]}, None),
        (COUNT, {"storageId": "default", "collection": "roads"}, READS, "readFeatures"),
        (
            COUNT,
            {"storageId": "default", "collection": "roads"},
            {**SEES, "readFeatures": [{"storageId": "default", "collectionId": "roads"}]},
            None,
        ),
        (
            COUNT,
            {"storageId": "default", "collection": "roads"},
            {"manageJobs": [{}], "readFeatures": [{}]},
            "useStorages",
        ),
        (
            LOAD,
            {"storageId": "default", "collection": "new", "spec": INTO},
            {**SEES, "createFeatures": [{}], "updateFeatures": [{}]},
            "createCollections",
        ),
        (
            WIPE,
            {"storageId": "default", "collection": "roads"},
            {**SEES, "readFeatures": [{}]},
            "manageStorages",
        ),
    ],
)
async def test_who_submits_a_job_needs_the_rights_to_what_it_does(
    job: str,
    told: dict[str, Any],
    urm: dict[str, Any],
    missing: str | None,
    tmp_path: Path,
    kinds: JobKinds,
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        actor = an_actor(**urm)
        if missing is None:
            await realm.submit(job, actor, **told)
            return
        with pytest.raises(Forbidden) as caught:
            await realm.submit(job, actor, **told)
        assert caught.value.right == missing


async def test_jobs_are_seen_and_ended_by_who_may(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        await realm.submit()
        nobody = an_actor()
        user = an_actor(useJobs=[{"spaceId": "roads"}])
        other = an_actor(manageJobs=[{"spaceId": "rivers"}])
        assert await jobs_of(realm.realm, nobody) == []
        assert [one.job.id for one in await jobs_of(realm.realm, user)] == ["one"]
        assert await jobs_of(realm.realm, other) == []
        for actor in (nobody, other):
            with pytest.raises(Forbidden):
                await job_of(realm.realm, "one", actor)
        for actor in (nobody, user, other):
            with pytest.raises(Forbidden):
                await cancel_job(realm.realm, "one", actor)
            with pytest.raises(Forbidden):
                await remove_job(realm.realm, "one", actor)
        assert (await job_of(realm.realm, "one", ADMIN)).state.state is State.SUBMITTED


# ---- When nobody runs it any more ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "state", "becomes", "words"),
    [
        (COUNT, {"attempt": limits.JOB_ATTEMPTS_MAX}, State.LOST, "begun 3 times already"),
        (ONCE, {"attempt": 1}, State.LOST, "must not begin again"),
        (COUNT, {"attempt": 1, "cancelled_by": "ann"}, State.CANCELLED, "cancelled"),
    ],
)
async def test_a_job_whose_instance_has_died_is_not_forgotten(
    job: str,
    state: dict[str, Any],
    becomes: State,
    words: str,
    tmp_path: Path,
    kinds: JobKinds,
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        seen = await realm.submit(job)
        held: dict[str, Any] = {"state": State.RUNNING, "holder": DEAD, "lease_ms": 10}
        await realm.put(seen.job, **held, **state)
        await ended(realm)
        now = await job_of(realm.realm, "one", ADMIN)
        assert now.state.state is becomes
        assert now.state.ended_ms
        if becomes is State.LOST:
            assert now.state.error is not None
            assert now.state.error.code == "lost"
            assert DEAD in now.state.error.message
        assert words in (await log_of(realm.realm, seen.job)).lines[-1].text


@pytest.mark.parametrize(
    "state",
    [
        {"attempt": limits.JOB_ATTEMPTS_MAX},
        {"attempt": 1, "cancelled_by": "ann"},
        {"attempt": 1},
    ],
)
async def test_a_job_that_was_written_is_done_although_its_instance_has_died(
    state: dict[str, Any], tmp_path: Path, kinds: JobKinds
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        job = await written(realm, **state)
        await ended(realm)
        now = (await job_of(realm.realm, "one", ADMIN)).state
        assert (now.state, now.error, now.attempt) == (State.DONE, None, state["attempt"])
        assert now.report is not None
        assert (now.report["created"], now.report["repeated"]) == (1, True)
        assert "done: it was written" in (await log_of(realm.realm, job)).lines[-1].text


async def test_a_job_is_not_called_cancelled_when_nobody_knows_whether_it_was_written(
    tmp_path: Path, kinds: JobKinds
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        await written(realm, attempt=1, cancelled_by="ann")
        await realm.realm.registry.remove(Space, "roads", ADMIN)
        await ended(realm)
        now = (await job_of(realm.realm, "one", ADMIN)).state
        assert now.state is State.FAILED
        assert now.error is not None
        assert now.error.code == "outcome_unknown"


async def written(realm: Realm, **state: Any) -> JobObject:
    """A job that has written, by an instance that died before it could say so."""
    job = (await realm.submit(LOAD, spec={"source": "a.json"})).job
    storage = await realm.realm.storage("default")
    info = CollectionInfo(id="roads")
    stage = await storage.stage(job.own.run_id, info)
    await stage.add(given_batch([point("x")]))
    write = StagedWrite(job=job.own.run_id, info=info, mode=WriteMode.CREATE, app_id="test")
    await storage.apply_staged(write, [await stage.close()])
    held: dict[str, Any] = {"state": State.RUNNING, "holder": DEAD, "lease_ms": 10, "started_ms": 1}
    await realm.put(job, **held, **state)
    return job


async def ended(realm: Realm) -> None:
    """An instance finds a job that nobody runs, until it has ended."""
    how = Running(kinds=realm.kinds, files=realm.files)
    async with running_jobs(realm.hub, how), asyncio.timeout(30):
        await eventually(lambda: has_ended(realm, "one"))


async def test_what_ended_long_ago_is_cleared_away(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        old, new = await realm.submit(id="old"), await realm.submit(id="new")
        day_ms = 24 * 3_600 * 1_000
        long_ago = old.job.created_at - (limits.JOB_KEEP_DAYS + 1) * day_ms
        for seen, at in ((old, long_ago), (new, old.job.created_at)):
            await realm.put(seen.job, state=State.DONE, ended_ms=at)
        aged = msgspec.structs.replace(old.job, created_at=long_ago)

        async def change(edit: Edit) -> None:
            edit.put(aged.key, aged)

        await realm.realm.opened.entities(JOBS).commit(change)
        how = Running(kinds=kinds, files=realm.files)
        async with running_jobs(realm.hub, how), asyncio.timeout(30):
            await eventually(lambda: is_alone(realm))
        (kept,) = await jobs_of(realm.realm, ADMIN)
        assert kept.job.id == "new"


async def test_a_realm_of_a_former_release_gets_its_pointer(
    tmp_path: Path, kinds: JobKinds
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        assert await changes.snapshot_of(realm.realm) is None
        await realm.submit()
        assert await changes.snapshot_of(realm.realm) is not None


async def held(realm: Realm, job: JobObject) -> Holding[JobState]:
    """A job as an instance has it that runs it."""
    table = JobTable(realm.realm.opened.persistence)
    kept = await table.get(job.own.state_id)
    assert kept is not None
    holding = await take(table, kept, "here", state=State.RUNNING, attempt=1)
    assert holding is not None
    return holding


async def test_an_instance_that_is_stopped_keeps_the_end_of_a_job_once(
    tmp_path: Path, kinds: JobKinds
) -> None:
    """It is stopped while the end is being kept. The job ends before it has a process: the
    space is gone."""
    async with a_realm(tmp_path, kinds) as realm:
        job = (await realm.submit()).job
        holding = await held(realm, job)
        gone = msgspec.structs.replace(job, space_id="nowhere")
        runner = Runner(realm.realm, gone, holding, Running(kinds=kinds, files=realm.files))
        async with holding._line, asyncio.timeout(30):
            running = asyncio.create_task(runner.run())
            await eventually(lambda: says(realm, job, "failed: "))
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running])
        assert not running.cancelled()
        now = await job_of(realm.realm, "one", ADMIN)
        assert (now.state.state, now.state.attempt) == (State.FAILED, 1)
        assert now.state.error is not None
        assert "nowhere" in now.state.error.message
        log = await log_of(realm.realm, job)
        assert sum(line.text.startswith("failed: ") for line in log.lines) == 1


async def says(realm: Realm, job: JobObject, words: str) -> bool:
    log = await log_of(realm.realm, job)
    return any(line.text.startswith(words) for line in log.lines)


# ---- The log -------------------------------------------------------------------------------------


async def test_what_was_said_is_kept_although_a_save_is_interrupted(
    tmp_path: Path, kinds: JobKinds
) -> None:
    """Before it was written, or when that is not known."""
    async with a_realm(tmp_path, kinds) as realm:
        job = (await realm.submit()).job
        how = Running(kinds=kinds, files=realm.files)
        runner = Runner(realm.realm, job, await held(realm, job), how)
        runner._say("first")
        saving = asyncio.create_task(runner._save_log())
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.wait([saving])
        assert saving.cancelled()
        runner._say("second")
        said = list(runner._said)
        await runner._save_log()
        await add_to_log(realm.realm.opened.persistence, job.own.log_id, said)
        log = await log_of(realm.realm, job)
        assert [line.text for line in log.lines[1:]] == ["first", "second"]

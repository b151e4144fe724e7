"""Jobs of a hub: rights to submit, their parameters, and jobs that no process runs.

Jobs in real processes are in `test_real_jobs.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.hub.config.objects import Connector, Space
from naksha.hub.jobs.changes import (
    cancel_job,
    job_of,
    jobs_of,
    log_of,
    remove_job,
)
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JobLog,
    JobStatus,
    JobTable,
    add_to_log,
)
from naksha.hub.jobs.runner import JobRunner, JobRunnerSettings
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
from tests.hub.jobs.realms import Realm, a_realm, held
from tests.hub.jobs.sample import COUNT, LOAD, WIPE
from tests.hub.realms import ADMIN, an_actor

# ---- What is submitted ---------------------------------------------------------------------------


async def test_a_job_waits_is_seen_and_is_cancelled(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        assert await jobs_of(realm.realm, ADMIN) == []
        seen = await realm.submit(title="Count them")
        assert (seen.state.state, seen.job.title) == (JobStatus.SUBMITTED, "Count them")
        assert [one.job.id for one in await jobs_of(realm.realm, ADMIN)] == ["one"]
        assert await jobs_of(realm.realm, ADMIN, [JobStatus.DONE]) == []
        with pytest.raises(Conflict):
            await realm.submit()
        with pytest.raises(InUse, match="submitted"):
            await remove_job(realm.realm, "one", ADMIN)
        cancelled = await cancel_job(realm.realm, "one", ADMIN)
        assert (cancelled.state.state, cancelled.state.cancelled_by) == (
            JobStatus.CANCELLED,
            "tests",
        )
        assert await cancel_job(realm.realm, "one", ADMIN) == cancelled
        log = await log_of(realm.realm, seen.job)
        assert [line.text for line in log.lines] == ["submitted by tests", "cancelled by tests"]
        await remove_job(realm.realm, "one", ADMIN)
        with pytest.raises(NotFound):
            await job_of(realm.realm, "one", ADMIN)
        table = JobTable(realm.realm.opened.persistence)
        assert await table.get(seen.job.own.state_id) is None
        assert await log_of(realm.realm, seen.job) == JobLog()


async def test_run_ids_are_unique(tmp_path: Path, kinds: JobKinds) -> None:
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


async def test_the_hub_sets_storage_and_actor_of_the_process(
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
async def test_a_load_creates_the_collection_as_the_space_configures_it(
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
        how = JobRunnerSettings(kinds=kinds, files=realm.files)
        runner = JobRunner(realm.realm, makes, await held(realm, makes), how)
        told = msgspec.convert((await runner._spec())["info"], CollectionInfo)
        info = CollectionInfo(id="lanes", max_age=7, history_enabled=False, id_prefix="l-")
        assert told == info
        runner = JobRunner(realm.realm, finds, await held(realm, finds), how)
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
async def test_errors_name_the_invalid_field(
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
        with pytest.raises(NotSupported, match="bypass"):
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
async def test_files_of_other_realms_are_not_accessible(
    name: str, tmp_path: Path, kinds: JobKinds
) -> None:
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


async def test_files_need_a_configured_directory(tmp_path: Path, kinds: JobKinds) -> None:
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
async def test_submitting_a_job_requires_its_rights(
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


async def test_reading_and_cancelling_jobs_requires_rights(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        await realm.submit()
        nobody = an_actor()
        user = an_actor(useJobs=[{"spaceId": "roads"}])
        other = an_actor(manageJobs=[{"spaceId": "rivers"}])
        with pytest.raises(Forbidden):
            await jobs_of(realm.realm, nobody)
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
        assert (await job_of(realm.realm, "one", ADMIN)).state.state is JobStatus.SUBMITTED


# ---- The log -------------------------------------------------------------------------------------


async def test_log_lines_survive_an_interrupted_save(tmp_path: Path, kinds: JobKinds) -> None:
    """Before it was written, or when that is not known."""
    async with a_realm(tmp_path, kinds) as realm:
        job = (await realm.submit()).job
        how = JobRunnerSettings(kinds=kinds, files=realm.files)
        runner = JobRunner(realm.realm, job, await held(realm, job), how)
        runner._add_line("first")
        saving = asyncio.create_task(runner._save_log())
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.wait([saving])
        assert saving.cancelled()
        runner._add_line("second")
        said = list(runner._unsaved_lines)
        await runner._save_log()
        await add_to_log(realm.realm.opened.persistence, job.own.log_id, said)
        log = await log_of(realm.realm, job)
        assert [line.text for line in log.lines[1:]] == ["first", "second"]

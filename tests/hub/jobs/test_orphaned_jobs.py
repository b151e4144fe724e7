"""Orphaned jobs: their final state, and that it is correct."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.catalog.entities import EntityEdit
from naksha.hub.config.objects import Space
from naksha.hub.jobs import changes
from naksha.hub.jobs.changes import (
    cancel_job,
    job_of,
    jobs_of,
    log_of,
)
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JOBS,
    JobObject,
    JobStatus,
)
from naksha.hub.jobs.runner import JobRunner, JobRunnerSettings
from naksha.hub.jobs.service import running_jobs
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.spi.staging import StagedWrite, WriteMode
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import point
from tests.hub.jobs.realms import Realm, a_realm, has_ended, held, is_alone
from tests.hub.jobs.sample import COUNT, LOAD, ONCE
from tests.hub.realms import ADMIN
from tests.hub.subscriptions.support import eventually

DEAD = "dead-instance"


@pytest.mark.parametrize(
    ("job", "state", "becomes", "words"),
    [
        (COUNT, {"attempt": limits.JOB_ATTEMPTS_MAX}, JobStatus.LOST, "already started 3 times"),
        (ONCE, {"attempt": 1}, JobStatus.LOST, "must not be started a second time"),
        (COUNT, {"attempt": 1, "cancelled_by": "ann"}, JobStatus.CANCELLED, "cancelled"),
    ],
)
async def test_a_job_whose_instance_has_died_is_not_forgotten(
    job: str,
    state: dict[str, Any],
    becomes: JobStatus,
    words: str,
    tmp_path: Path,
    kinds: JobKinds,
) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        seen = await realm.submit(job)
        held: dict[str, Any] = {"state": JobStatus.RUNNING, "holder": DEAD, "lease_ms": 10}
        await realm.put(seen.job, **held, **state)
        await ended(realm)
        now = await job_of(realm.realm, "one", ADMIN)
        assert now.state.state is becomes
        assert now.state.ended_ms
        if becomes is JobStatus.LOST:
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
        assert (now.state, now.error, now.attempt) == (JobStatus.DONE, None, state["attempt"])
        assert now.report is not None
        assert (now.report["created"], now.report["repeated"]) == (1, True)
        assert "done: the job had written" in (await log_of(realm.realm, job)).lines[-1].text


async def test_a_job_that_was_given_back_after_it_had_written_is_not_cancelled(
    tmp_path: Path, kinds: JobKinds
) -> None:
    """Its instance was stopped, and did not learn that it had written."""
    async with a_realm(tmp_path, kinds) as realm:
        job = await written(realm, attempt=0)
        await realm.put(job, state=JobStatus.SUBMITTED, holder="", lease_ms=0)
        wished = (await cancel_job(realm.realm, "one", ADMIN)).state
        assert (wished.state, wished.cancelled_by) == (JobStatus.SUBMITTED, "tests")
        await ended(realm)
        now = (await job_of(realm.realm, "one", ADMIN)).state
        assert (now.state, now.error) == (JobStatus.DONE, None)


async def test_a_job_with_unknown_outcome_is_not_cancelled(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        await written(realm, attempt=1, cancelled_by="ann")
        await realm.realm.registry.remove(Space, "roads", ADMIN)
        await ended(realm)
        now = (await job_of(realm.realm, "one", ADMIN)).state
        assert now.state is JobStatus.FAILED
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
    held: dict[str, Any] = {
        "state": JobStatus.RUNNING,
        "holder": DEAD,
        "lease_ms": 10,
        "started_ms": 1,
    }
    await realm.put(job, **held, **state)
    return job


async def ended(realm: Realm) -> None:
    """Let an instance settle an orphaned job, and wait for its end in the log."""
    how = JobRunnerSettings(kinds=realm.kinds, files=realm.files)
    async with running_jobs(realm.hub, how), asyncio.timeout(30):
        await eventually(lambda: has_ended(realm, "one"))
        seen = await job_of(realm.realm, "one", ADMIN)
        await eventually(lambda: says(realm, seen.job, f"{seen.state.state}: "))


async def test_old_ended_jobs_are_removed(tmp_path: Path, kinds: JobKinds) -> None:
    async with a_realm(tmp_path, kinds) as realm:
        old, new = await realm.submit(id="old"), await realm.submit(id="new")
        day_ms = 24 * 3_600 * 1_000
        long_ago = old.job.created_at - (limits.JOB_KEEP_DAYS + 1) * day_ms
        for seen, at in ((old, long_ago), (new, old.job.created_at)):
            await realm.put(seen.job, state=JobStatus.DONE, ended_ms=at)
        aged = msgspec.structs.replace(old.job, created_at=long_ago)

        async def change(edit: EntityEdit) -> None:
            edit.put(aged.key, aged)

        await realm.realm.opened.entities(JOBS).commit(change)
        how = JobRunnerSettings(kinds=kinds, files=realm.files)
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


async def test_an_instance_that_is_stopped_keeps_the_end_of_a_job_once(
    tmp_path: Path, kinds: JobKinds
) -> None:
    """It is stopped while the end is being kept. The job ends before it has a process: the
    space is gone."""
    async with a_realm(tmp_path, kinds) as realm:
        job = (await realm.submit()).job
        holding = await held(realm, job)
        gone = msgspec.structs.replace(job, space_id="nowhere")
        runner = JobRunner(
            realm.realm, gone, holding, JobRunnerSettings(kinds=kinds, files=realm.files)
        )
        async with holding._line, asyncio.timeout(30):
            running = asyncio.create_task(runner.run())
            await eventually(lambda: says(realm, job, "failed: "))
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running])
        assert not running.cancelled()
        now = await job_of(realm.realm, "one", ADMIN)
        assert (now.state.state, now.state.attempt) == (JobStatus.FAILED, 1)
        assert now.state.error is not None
        assert "nowhere" in now.state.error.message
        log = await log_of(realm.realm, job)
        assert sum(line.text.startswith("failed: ") for line in log.lines) == 1


async def says(realm: Realm, job: JobObject, words: str) -> bool:
    log = await log_of(realm.realm, job)
    return any(line.text.startswith(words) for line in log.lines)

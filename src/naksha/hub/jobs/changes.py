"""Submission, listing, cancellation and removal of jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence

import msgspec

from naksha.catalog.entities import Entities, EntityEdit, EntitySnapshot
from naksha.hub.config.change_rights import check_listing, check_removed, check_visible, is_visible
from naksha.hub.config.objects import key_of
from naksha.hub.hub import RealmHub
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.job_targets import (
    JobStorage,
    check_allowed,
    check_may_be_seen,
    process_spec,
    target_of,
)
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JOBS,
    JobLog,
    JobObject,
    JobState,
    JobStatus,
    JobTable,
    LogLine,
    OwnIds,
    add_to_log,
    read_log,
)
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.model.errors import (
    Busy,
    Conflict,
    InUse,
    LimitExceeded,
    NotFound,
    PointerNotFound,
    PreconditionFailed,
)

_PREFIX = f"{JobObject.kind}/"


class JobWithState(msgspec.Struct, frozen=True):
    """A job with its state."""

    job: JobObject
    state: JobState


async def snapshot_of(realm: RealmHub) -> EntitySnapshot | None:
    """Return a recent snapshot of a realm's jobs, or None if it never had one."""
    try:
        return await _entities(realm).recent()
    except PointerNotFound:
        return None


async def submit_job(
    realm: RealmHub, job: JobObject, actor: Actor, kinds: JobKinds, files: JobFiles
) -> JobWithState:
    """Submit a job to be run by any instance with free capacity."""
    # Check rights first, so that unauthorized actors learn nothing about existing objects.
    actor.rights.check(job.manage_right, job.resource())
    await check_may_be_seen(realm.registry, job, actor.rights)
    kind = await kinds.get(job.job)
    target = await target_of(await realm.registry.snapshot_now(), job, kind)
    check_allowed(target, job, kind, actor)
    table = JobTable(realm.opened.persistence)
    made = _made(job, actor, table)
    job_storage = JobStorage(*realm.located(target.storage))
    # In a thread, because it accesses files.
    await asyncio.to_thread(process_spec, made, kind, target, job_storage, files, realm.realm_id)
    await _check_room(realm, table)
    state = JobState(submitted_ms=table.now_ms)
    await table.create(made.own.state_id, state)
    line = LogLine(table.now_ms, f"submitted by {actor.owner}")
    await realm.opened.persistence.insert(made.own.log_id, JobLog((line,)))
    try:
        await _keep(realm, made, actor)
    except BaseException:
        await _forget(realm, made)
        raise
    return JobWithState(made, state)


async def jobs_of(
    realm: RealmHub, actor: Actor, states: Collection[JobStatus] = ()
) -> Sequence[JobWithState]:
    """Return the jobs that an actor may see, by id; with `states`, only jobs in one of them."""
    check_listing(JobObject, actor)
    snapshot = await _snapshot_now(realm)
    if snapshot is None:
        return []
    listed = snapshot.list(_PREFIX, JobObject)
    jobs = [found.value async for _, found in listed if is_visible(found.value, actor)]
    known = await JobTable(realm.opened.persistence).read([job.own.state_id for job in jobs])
    visible = [
        JobWithState(job, kept.value)
        for job in jobs
        if (kept := known.get(job.own.state_id)) is not None
    ]
    return [one for one in visible if not states or one.state.state in states]


async def job_of(realm: RealmHub, id: str, actor: Actor) -> JobWithState:
    """Return a job.

    Raises:
        NotFound: The job does not exist.
    """
    snapshot = await _snapshot_now(realm)
    found = None if snapshot is None else await snapshot.get(key_of(JobObject, id), JobObject)
    if found is None:
        raise _not_found(id)
    check_visible(found.value, actor)
    kept = await JobTable(realm.opened.persistence).get(found.value.own.state_id)
    if kept is None:
        raise _not_found(id)  # it is just being removed
    return JobWithState(found.value, kept.value)


async def log_of(realm: RealmHub, job: JobObject) -> JobLog:
    """Return the log of a job."""
    kept = await read_log(realm.opened.persistence, job.own.log_id)
    return JobLog() if kept is None else kept.value


async def cancel_job(realm: RealmHub, id: str, actor: Actor) -> JobWithState:
    """Request the cancellation of a job; a job that has ended is unchanged."""
    job = (await job_of(realm, id, actor)).job
    check_removed(job, actor)
    persistence = realm.opened.persistence
    table = JobTable(persistence)
    now = table.now_ms
    is_new = False

    def changed(old: JobState) -> JobState:
        nonlocal is_new
        is_new = not old.state.is_final and not old.cancelled_by
        if not is_new:
            return old
        wished = msgspec.structs.replace(old, cancelled_by=actor.owner)
        # A started job may have written: an instance checks the storage before it ends the job.
        if old.state is JobStatus.SUBMITTED and not old.started_ms:
            return msgspec.structs.replace(wished, state=JobStatus.CANCELLED, ended_ms=now)
        return wished

    kept = await table.change(job.own.state_id, changed)
    if kept is None:
        raise _not_found(id)
    if is_new:
        await add_to_log(persistence, job.own.log_id, [LogLine(now, f"cancelled by {actor.owner}")])
    return JobWithState(job, kept.value)


async def remove_job(
    realm: RealmHub, id: str, actor: Actor, *, if_match: Collection[str] | None = None
) -> JobObject:
    """Remove a job that has ended.

    Raises:
        InUse: The job has not ended.
    """
    visible = await job_of(realm, id, actor)
    check_removed(visible.job, actor)
    if if_match is not None and not {"*", visible.job.etag()} & set(if_match):
        raise PreconditionFailed(
            f"The job {id!r} does not match If-Match: it is another job with the same id",
            field="If-Match",
        )
    if not visible.state.state.is_final:
        raise InUse(
            f"The job {id!r} is {visible.state.state} and can be removed only after it has ended; "
            "cancel it first",
            field="id",
        )
    await drop_job(realm, visible.job, actor.app_id, actor.author)
    return visible.job


async def drop_job(realm: RealmHub, job: JobObject, app_id: str, author: str | None) -> None:
    """Remove a job with its state and its log."""

    async def change(edit: EntityEdit) -> None:
        found = await edit.get(job.key, JobObject)
        if found is not None and found.value.own == job.own:
            edit.remove(job.key)

    message = f"remove job {job.id}"
    await _entities(realm).commit(change, message=message, author=author or "", app_id=app_id)
    await _forget(realm, job)


# ---- Persistence ---------------------------------------------------------------------------------


def _entities(realm: RealmHub) -> Entities:
    return realm.opened.entities(JOBS)


async def _snapshot_now(realm: RealmHub) -> EntitySnapshot | None:
    try:
        return await _entities(realm).now()
    except PointerNotFound:
        return None


def _made(job: JobObject, actor: Actor, table: JobTable) -> JobObject:
    return msgspec.structs.replace(
        job,
        owner=actor.owner,
        app_id=actor.app_id,
        author=actor.author,
        created_at=table.now_ms,
        updated_at=table.now_ms,
        # Never reuse ids: writes under the id of an earlier job would count as done.
        own=OwnIds(table.new_id(), table.new_id(), secrets.token_hex(16)),
    )


async def _keep(realm: RealmHub, job: JobObject, actor: Actor) -> None:
    async def change(edit: EntityEdit) -> None:
        if await edit.ref(job.key) is not None:
            raise Conflict(f"The job {job.id!r} already exists; choose another id", field="id")
        edit.put(job.key, job)

    await realm.opened.persistence.ensure_pointers([JOBS])  # realms of former releases have none
    await _entities(realm).commit(
        change, message=f"submit job {job.id}", author=actor.author or "", app_id=actor.app_id
    )


async def _check_room(realm: RealmHub, table: JobTable) -> None:
    """Raise Busy or LimitExceeded if a realm has too many jobs."""
    snapshot = await _snapshot_now(realm)
    if snapshot is None:
        return
    jobs = [found.value async for _, found in snapshot.list(_PREFIX, JobObject)]
    if len(jobs) >= limits.JOBS_MAX:
        raise LimitExceeded(
            f"The realm has {limits.JOBS_MAX} jobs, the maximum; remove jobs that have ended",
            field="job",
        )
    known = await table.read([job.own.state_id for job in jobs])
    waiting = [one for one in known.values() if one.value.state is JobStatus.SUBMITTED]
    if len(waiting) >= limits.JOBS_WAITING_MAX:
        raise Busy(f"The queue is full: {len(waiting)} jobs are waiting; retry later", field="job")


async def _forget(realm: RealmHub, job: JobObject) -> None:
    persistence = realm.opened.persistence
    await JobTable(persistence).forget(job.own.state_id)
    while (log := await read_log(persistence, job.own.log_id)) is not None:
        if await persistence.delete_if(log):
            return


def _not_found(id: str) -> NotFound:
    return NotFound(f"The job {id!r} does not exist", field="job")

"""Submitting, looking at, cancelling and removing jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence

import msgspec

from naksha.catalog.entities import Edit, Entities, Snapshot
from naksha.hub.config.change_rights import check_lists, check_removed, check_seen, is_seen
from naksha.hub.config.objects import key_of
from naksha.hub.hub import RealmHub
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JOBS,
    JobLog,
    JobObject,
    JobState,
    JobTable,
    LogLine,
    OwnIds,
    State,
    add_to_log,
    read_log,
)
from naksha.hub.jobs.targets import (
    Placed,
    check_allowed,
    check_may_be_seen,
    target_of,
    whole_spec,
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


class Seen(msgspec.Struct, frozen=True):
    """A job, and how it goes with it."""

    job: JobObject
    state: JobState


async def snapshot_of(realm: RealmHub) -> Snapshot | None:
    """All jobs of a realm as they were not long ago; None when it never had one."""
    try:
        return await _entities(realm).recent()
    except PointerNotFound:
        return None


async def submit_job(
    realm: RealmHub, job: JobObject, actor: Actor, kinds: JobKinds, files: JobFiles
) -> Seen:
    """Let a job be run, by whichever instance has time."""
    # First: who may not is not told what there is.
    actor.rights.check(job.manage_right, job.resource())
    await check_may_be_seen(realm.registry, job, actor.rights)
    kind = await kinds.get(job.job)
    target = await target_of(await realm.registry.snapshot_now(), job, kind)
    check_allowed(target, job, kind, actor)
    table = JobTable(realm.opened.persistence)
    made = _made(job, actor, table)
    placed = Placed(*realm.located(target.storage))
    # In a thread: it looks at files.
    await asyncio.to_thread(whole_spec, made, kind, target, placed, files, realm.realm_id)
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
    return Seen(made, state)


async def jobs_of(realm: RealmHub, actor: Actor, states: Collection[State] = ()) -> Sequence[Seen]:
    """The jobs that an actor may see, ordered by id; with states, only those in one of them."""
    check_lists(JobObject, actor)
    snapshot = await _snapshot_now(realm)
    if snapshot is None:
        return []
    listed = snapshot.list(_PREFIX, JobObject)
    jobs = [found.value async for _, found in listed if is_seen(found.value, actor)]
    known = await JobTable(realm.opened.persistence).read([job.own.state_id for job in jobs])
    seen = [
        Seen(job, kept.value) for job in jobs if (kept := known.get(job.own.state_id)) is not None
    ]
    return [one for one in seen if not states or one.state.state in states]


async def job_of(realm: RealmHub, id: str, actor: Actor) -> Seen:
    """One of them, else NotFound."""
    snapshot = await _snapshot_now(realm)
    found = None if snapshot is None else await snapshot.get(key_of(JobObject, id), JobObject)
    if found is None:
        raise _not_found(id)
    check_seen(found.value, actor)
    kept = await JobTable(realm.opened.persistence).get(found.value.own.state_id)
    if kept is None:
        raise _not_found(id)  # it is just being removed
    return Seen(found.value, kept.value)


async def log_of(realm: RealmHub, job: JobObject) -> JobLog:
    """What a job has said."""
    kept = await read_log(realm.opened.persistence, job.own.log_id)
    return JobLog() if kept is None else kept.value


async def cancel_job(realm: RealmHub, id: str, actor: Actor) -> Seen:
    """Wish that a job ends; one that has ended stays as it is."""
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
        # What was begun once may have written: an instance asks the storage before it ends that.
        if old.state is State.SUBMITTED and not old.started_ms:
            return msgspec.structs.replace(wished, state=State.CANCELLED, ended_ms=now)
        return wished

    kept = await table.change(job.own.state_id, changed)
    if kept is None:
        raise _not_found(id)
    if is_new:
        await add_to_log(persistence, job.own.log_id, [LogLine(now, f"cancelled by {actor.owner}")])
    return Seen(job, kept.value)


async def remove_job(
    realm: RealmHub, id: str, actor: Actor, *, if_match: Collection[str] | None = None
) -> JobObject:
    """Forget a job that has ended, else InUse."""
    seen = await job_of(realm, id, actor)
    check_removed(seen.job, actor)
    if if_match is not None and not {"*", seen.job.etag()} & set(if_match):
        raise PreconditionFailed(f"It is another job that is called {id!r}", field="If-Match")
    if not seen.state.state.is_final:
        raise InUse(f"The job {id!r} is {seen.state.state}; cancel it first", field="id")
    await drop_job(realm, seen.job, actor.app_id, actor.author)
    return seen.job


async def drop_job(realm: RealmHub, job: JobObject, app_id: str, author: str | None) -> None:
    """Forget a job, and all that is known of it."""

    async def change(edit: Edit) -> None:
        found = await edit.get(job.key, JobObject)
        if found is not None and found.value.own == job.own:
            edit.remove(job.key)

    message = f"remove job {job.id}"
    await _entities(realm).commit(change, message=message, author=author or "", app_id=app_id)
    await _forget(realm, job)


# ---- How they are kept ---------------------------------------------------------------------------


def _entities(realm: RealmHub) -> Entities:
    return realm.opened.entities(JOBS)


async def _snapshot_now(realm: RealmHub) -> Snapshot | None:
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
        # Never one that another job had: what was written under it counts as written.
        own=OwnIds(table.new_id(), table.new_id(), secrets.token_hex(16)),
    )


async def _keep(realm: RealmHub, job: JobObject, actor: Actor) -> None:
    async def change(edit: Edit) -> None:
        if await edit.ref(job.key) is not None:
            raise Conflict(f"There is a job {job.id!r} already", field="id")
        edit.put(job.key, job)

    await realm.opened.persistence.ensure_pointers([JOBS])  # realms of former releases have none
    await _entities(realm).commit(
        change, message=f"submit job {job.id}", author=actor.author or "", app_id=actor.app_id
    )


async def _check_room(realm: RealmHub, table: JobTable) -> None:
    """Busy, or LimitExceeded, when a realm has too many jobs."""
    snapshot = await _snapshot_now(realm)
    if snapshot is None:
        return
    jobs = [found.value async for _, found in snapshot.list(_PREFIX, JobObject)]
    if len(jobs) >= limits.JOBS_MAX:
        raise LimitExceeded(
            f"A realm has at most {limits.JOBS_MAX} jobs; remove some that have ended", field="job"
        )
    known = await table.read([job.own.state_id for job in jobs])
    waiting = [one for one in known.values() if one.value.state is State.SUBMITTED]
    if len(waiting) >= limits.JOBS_WAITING_MAX:
        raise Busy(f"{len(waiting)} jobs are waiting already; submit it later", field="job")


async def _forget(realm: RealmHub, job: JobObject) -> None:
    persistence = realm.opened.persistence
    await JobTable(persistence).forget(job.own.state_id)
    while (log := await read_log(persistence, job.own.log_id)) is not None:
        if await persistence.delete_if(log):
            return


def _not_found(id: str) -> NotFound:
    return NotFound(f"There is no job {id!r}", field="job")

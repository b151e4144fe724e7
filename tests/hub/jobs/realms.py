"""A realm whose jobs are submitted and inspected without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from naksha.hub.config.objects import Space
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs.changes import (
    JobWithState,
    job_of,
    jobs_of,
    submit_job,
)
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.job_targets import JobStorage, process_spec, target_of
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import (
    JobObject,
    JobState,
    JobStatus,
    JobTable,
)
from naksha.hub.leases import HeldLease, take
from naksha.hub.pipeline.request_context import Actor
from tests.hub.jobs.sample import COUNT
from tests.hub.realms import ADMIN, a_hub


class Realm:
    """A realm with a space, and requests to it."""

    def __init__(self, hub: Hub, realm: RealmHub, kinds: JobKinds, files: Path) -> None:
        self.hub = hub
        self.realm = realm
        self.kinds = kinds
        self.files = JobFiles(files)

    async def submit(self, job: str = COUNT, actor: Actor = ADMIN, **told: Any) -> JobWithState:
        body = {"id": "one", "job": job, **told}
        if "storageId" not in told:
            body.setdefault("spaceId", "roads")
        return await submit_job(
            self.realm, JobObject.from_json(body), actor, self.kinds, self.files
        )

    async def spec(self, job: JobObject) -> dict[str, Any]:
        """The specification that its process would receive."""
        kind = await self.kinds.get(job.job)
        target = await target_of(await self.realm.registry.snapshot_now(), job, kind)
        placed = JobStorage(*self.realm.located(target.storage))
        return process_spec(job, kind, target, placed, self.files, self.realm.realm_id)

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


async def held(realm: Realm, job: JobObject) -> HeldLease[JobState]:
    """A job as an instance has it that runs it."""
    table = JobTable(realm.realm.opened.persistence)
    kept = await table.get(job.own.state_id)
    assert kept is not None
    holding = await take(table, kept, "here", state=JobStatus.RUNNING, attempt=1)
    assert holding is not None
    return holding

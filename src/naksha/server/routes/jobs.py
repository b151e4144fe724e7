"""Jobs of the data pipeline: submit, monitor, cancel and remove them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.auth.rights import Right
from naksha.hub.config.registry import new_space_id
from naksha.hub.jobs.changes import (
    JobWithState,
    cancel_job,
    job_of,
    jobs_of,
    log_of,
    remove_job,
    submit_job,
)
from naksha.hub.jobs.kinds import FILLED, fields_of, required_of
from naksha.hub.jobs.objects import JobObject, JobStatus
from naksha.server.openapi.config_schemas import ID_PATTERN, changes, returns
from naksha.server.openapi.job_schemas import JobDocument, JobKindDocument, JobLogDocument
from naksha.server.requests.state import server_of
from naksha.server.responses.encoding import JSON, etag_of, is_current, json_response
from naksha.server.routes.config._crud import ConfigRequestDep, ConfigRoutes, Tags, removed
from naksha.server.routing.declarations import PathParam, QueryParam, Router
from naksha.spi.jobs.messages import JobKind

router = Router(tags=["jobs"])
JOBS: Final = "/hub/jobs"
JOB: Final = "/hub/jobs/{job_id}"
_jobs: Final = ConfigRoutes(JobObject, JobDocument)
_MAKES: Final = _jobs.makes("The job; the id is optional.", 201)
_LOG: Final = returns(JobLogDocument, "The retained lines of the job's log.")
_KINDS: Final = returns(list[JobKindDocument], "The installed kinds of jobs, ordered by name.")
Id = Annotated[str, PathParam(pattern=ID_PATTERN)]
States = Annotated[list[JobStatus], QueryParam(description="Only jobs in these states.")]
After = Annotated[int, QueryParam(ge=0, description="Only lines from this number on.")]


def _job_json(job: JobWithState) -> dict[str, Any]:
    return {**job.job.to_json(), "status": job.state.to_json()}


def _shown(request: Request, job: JobWithState, status: int = 200) -> Response:
    """Respond with a job and its status; the first part of the tag is the job's own."""
    body = _job_json(job)
    suffix = etag_of(msgspec.json.encode(body["status"])).strip('"')
    headers = {"ETag": f'"{job.job.etag()}.{suffix}"'}
    if request.method == "GET" and is_current(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(msgspec.json.encode(body), status, headers, media_type=JSON)


def _kind_json(kind: JobKind) -> dict[str, Any]:
    fields = {name: one for name, one in fields_of(kind).items() if name not in FILLED}
    return {
        "name": kind.name,
        "about": kind.about,
        "access": kind.access,
        "isRepeatable": kind.is_repeatable,
        "files": kind.files,
        "fields": fields,
        "required": [name for name in required_of(kind) if name not in FILLED],
        "definitions": {
            name: one
            for name, one in kind.schema["$defs"].items()
            if any(f"#/$defs/{name}" in str(field) for field in fields.values())
        },
    }


@router.get("/hub/job-kinds", responses=_KINDS)
async def list_job_kinds(request: ConfigRequestDep) -> Response:
    """List the kinds of jobs with their parameters; empty without the right to use jobs."""
    if not request.actor.rights.grants.get(Right.USE_JOBS):
        return json_response(request.http, [])
    kinds = await server_of(request.http).jobs.kinds.all()
    return json_response(request.http, [_kind_json(kind) for _, kind in sorted(kinds.items())])


@router.get(JOBS, **_jobs.lists)
async def list_jobs(
    request: ConfigRequestDep,
    state: States = [],  # noqa: B006 - it is read
) -> Response:
    """List the jobs of the realm."""
    jobs = await jobs_of(request.realm, request.actor, state)
    return json_response(request.http, [_job_json(job) for job in jobs])


@router.post(JOBS, **_MAKES)
async def post_job(request: ConfigRequestDep) -> Response:
    """Submit a job. It runs in its own process as soon as an instance has a free slot."""
    job = JobObject.from_json({"id": new_space_id(), **await request.body()})
    jobs = server_of(request.http).jobs
    submitted = await submit_job(request.realm, job, request.actor, jobs.kinds, jobs.files)
    jobs.wake()
    return _shown(request.http, submitted, 201)


@router.get(JOB, **_jobs.shows)
async def get_job(job_id: Id, request: ConfigRequestDep) -> Response:
    """Return a job with its status and result."""
    return _shown(request.http, await job_of(request.realm, job_id, request.actor))


@router.get(f"{JOB}/log", responses=_LOG)
async def get_job_log(job_id: Id, request: ConfigRequestDep, after: After = 0) -> Response:
    """Return the log of a job. To follow it, pass `next` as `after` of the next request."""
    job = await job_of(request.realm, job_id, request.actor)
    log = await log_of(request.realm, job.job)
    first = max(after, log.dropped)
    lines = log.lines[first - log.dropped :]
    body = {
        "lines": [{"at": line.at, "text": line.text} for line in lines],
        "first": first,
        "next": log.dropped + len(log.lines),
    }
    return json_response(request.http, body)


@router.post(
    f"{JOB}/cancel",
    responses=changes(JobDocument, "The job after the request; it ends soon."),
)
async def post_cancel(job_id: Id, request: ConfigRequestDep) -> Response:
    """Request the cancellation of a job. A queued job never starts; an ended one is unchanged."""
    return _shown(request.http, await cancel_job(request.realm, job_id, request.actor))


@router.delete(JOB, **_jobs.removes)
async def delete_job(job_id: Id, request: ConfigRequestDep, tags: Tags) -> Response:
    """Remove a job that has ended, with its log."""
    job = await remove_job(request.realm, job_id, request.actor, if_match=tags)
    return removed(request.http, job)

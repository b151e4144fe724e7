"""Registry of jobs: entry points of the group `naksha.jobs`, each the `JOB` of a module.

    [project.entry-points."naksha.jobs"]
    "acme-clean" = "acme.jobs.clean:JOB"

Any distribution may add jobs. Only registered jobs can be submitted.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import invalid_struct
from naksha.spark.jobs.frame import FILE, AnyJob, JobSpec
from naksha.spi.jobs.messages import JobKind

_log: Final = logging.getLogger(__name__)
GROUP: Final = "naksha.jobs"


class JobRequest(NamedTuple):
    """Job with its specification."""

    job: AnyJob
    spec: JobSpec


class _Named(msgspec.Struct):
    job: str


@cache
def _known() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def job_names() -> list[str]:
    """Return the names of all jobs."""
    return sorted(_known())


@cache
def find_job(name: str) -> AnyJob:
    """Import a job by its name.

    Raises:
        InvalidArgument: The job does not exist (lists all names), or could not be imported.
    """
    entry = _known().get(name)
    if entry is None:
        raise InvalidArgument(
            f"Unknown job {name!r:.80}; known jobs: {', '.join(job_names())}", field="job"
        )
    try:
        job = entry.load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"The job {name!r} could not be imported: {error}", field="job"
        ) from error
    assert job.name == name, f"the specification of {name} is tagged {job.name}"
    return job  # type: ignore[no-any-return] # entry points are untyped


def read_spec(text: bytes | str) -> JobRequest:
    """Parse a specification in JSON: `{"job": "export", "place": {"location": "…"}, …}`.

    Raises:
        InvalidArgument: It is invalid; names the field.
    """
    try:
        job = find_job(msgspec.json.decode(text, type=_Named).job)
        return JobRequest(job, msgspec.json.decode(text, type=job.spec))
    except msgspec.ValidationError as error:
        raise invalid_struct("specification", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"The specification is not valid JSON: {error}", field="job"
        ) from None


def describe_jobs() -> list[JobKind]:
    """Describe all jobs for callers that run them in another process.

    A job that cannot be imported is logged and omitted; `find_job` raises its error.
    """
    found = []
    for name in job_names():
        try:
            found.append(_kind_of(find_job(name)))
        except InvalidArgument as error:
            _log.warning("%s", error)
    return found


def _kind_of(job: AnyJob) -> JobKind:
    schema = msgspec.json.schema(job.spec)
    return JobKind(
        name=job.name,
        about=job.about,
        access=job.access.value,
        is_repeatable=job.is_repeatable,
        files=_files(schema["$defs"][job.spec.__name__]["properties"]),
        schema=schema,
    )


def _files(properties: dict[str, Any]) -> dict[str, str]:
    """Return the fields that may name files, directly or in a list."""
    found = {}
    for name, schema in properties.items():
        for one in (schema, *schema.get("anyOf", ())):
            for part in (one, one.get("items") or {}):
                if FILE in part:
                    found[name] = str(part[FILE])
    return found

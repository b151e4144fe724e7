"""Jobs by name: entry points of the group `naksha.jobs`, each the `JOB` of a module.

    [project.entry-points."naksha.jobs"]
    "acme-clean" = "acme.jobs.clean:JOB"

Any distribution may add some; whoever may submit a job can name one of these, and nothing else.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import invalid_struct
from naksha.spark.jobs.frame import FILE, AnyJob, Spec
from naksha.spi.jobs.messages import JobKind

_log: Final = logging.getLogger(__name__)
GROUP: Final = "naksha.jobs"


class Asked(NamedTuple):
    """A job, and what it is to do."""

    job: AnyJob
    spec: Spec


class _Named(msgspec.Struct):
    job: str


@cache
def _known() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def job_names() -> list[str]:
    """All that there are."""
    return sorted(_known())


@cache
def find_job(name: str) -> AnyJob:
    """The job of a name.

    Raises:
        InvalidArgument: There is none; names those that there are.
    """
    entry = _known().get(name)
    if entry is None:
        raise InvalidArgument(
            f"No job is called {name!r:.80}; known are: {', '.join(job_names())}", field="job"
        )
    try:
        job = entry.load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"The job {name!r} is not installed whole: {error}", field="job"
        ) from error
    assert job.name == name, f"the specification of {name} is tagged {job.name}"
    return job  # type: ignore[no-any-return] # whatever a distribution calls a job


def read_spec(text: bytes | str) -> Asked:
    """A specification in JSON: `{"job": "export", "place": {"location": "…"}, …}`.

    Raises:
        InvalidArgument: Names the field that is wrong.
    """
    try:
        job = find_job(msgspec.json.decode(text, type=_Named).job)
        return Asked(job, msgspec.json.decode(text, type=job.spec))
    except msgspec.ValidationError as error:
        raise invalid_struct("specification", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"The specification is no JSON: {error}", field="job") from None


def described() -> list[JobKind]:
    """All that can be run, as whoever runs them out of process needs to know them. One that is not
    installed whole is left out: it is told to whoever asks for it."""
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
    """Fields that name files, alone or in a list, or may."""
    found = {}
    for name, schema in properties.items():
        for one in (schema, *schema.get("anyOf", ())):
            for part in (one, one.get("items") or {}):
                if FILE in part:
                    found[name] = str(part[FILE])
    return found

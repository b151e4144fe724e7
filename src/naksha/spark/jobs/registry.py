"""Jobs by name: entry points of the group `naksha.jobs`, each the `JOB` of a module.

    [project.entry-points."naksha.jobs"]
    "acme-clean" = "acme.jobs.clean:JOB"

Any distribution may add some; whoever may submit a job can name one of these, and nothing else.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.problems import invalid_struct
from naksha.spark.jobs.frame import AnyJob, Spec

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

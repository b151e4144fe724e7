"""Kinds of jobs that this instance can run, determined once by a process with Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from naksha.hub.handlers.json_schema import FeatureSchema
from naksha.model.errors import InvalidArgument, NotSupported
from naksha.spi.jobs.messages import JobKind
from naksha.spi.jobs.process import described_jobs

FILLED: Final = ("job", "place", "collection", "info", "app_id", "author", "job_id")
"""Fields of `spec` that the hub sets, not the client."""
_RETRY_SECONDS: Final = 60.0
"""Time for which a failure to determine the kinds is cached."""


class JobKinds:
    """Output of `python -m naksha.spark describe`, loaded on first use."""

    def __init__(self) -> None:
        self._known: dict[str, JobKind] | None = None
        self._failed: tuple[float, NotSupported] | None = None
        self._line = asyncio.Lock()

    async def all(self) -> Mapping[str, JobKind]:
        """Return the kinds by name.

        Raises:
            NotSupported: No job can be run here.
        """
        async with self._line:
            if self._known is None:
                self._known = await self._described()
            return self._known

    async def get(self, name: str) -> JobKind:
        """Return one kind.

        Raises:
            InvalidArgument: The name is unknown.
        """
        known = await self.all()
        if name not in known:
            raise InvalidArgument(
                f"{name!r:.80} is not a known job; use one of {', '.join(sorted(known))}",
                field="job",
            )
        return known[name]

    async def _described(self) -> dict[str, JobKind]:
        if self._failed is not None and time.monotonic() - self._failed[0] < _RETRY_SECONDS:
            raise self._failed[1]
        try:
            return {kind.name: kind for kind in await described_jobs()}
        except NotSupported as error:
            self._failed = time.monotonic(), error
            raise


def _schema_of(kind: JobKind) -> Mapping[str, Any]:
    name = str(kind.schema["$ref"]).rpartition("/")[2]
    schema: Mapping[str, Any] = kind.schema["$defs"][name]
    return schema


def required_of(kind: JobKind) -> Sequence[str]:
    """Return the required fields of a specification."""
    required: Sequence[str] = _schema_of(kind).get("required", ())
    return required


def fields_of(kind: JobKind) -> Mapping[str, Any]:
    """Return the fields of a specification, each with its schema."""
    fields: Mapping[str, Any] = _schema_of(kind)["properties"]
    return fields


def check_spec(kind: JobKind, spec: Mapping[str, Any]) -> None:
    """Raise InvalidArgument, with the field, for an invalid complete specification."""
    known = fields_of(kind)
    for name in spec:
        if name not in known:
            others = ", ".join(one for one in known if one not in FILLED)
            raise InvalidArgument(
                f"The job {kind.name} has no field {name!r:.80}; its fields are: "
                f"{others or 'none'}",
                field=f"spec.{name}",
            )
    for name in required_of(kind):
        if name not in spec:
            field = name if name == "collection" else f"spec.{name}"
            raise InvalidArgument(f"The job {kind.name} needs the field {name}", field=field)
    for place, message in FeatureSchema(kind.schema, "job").problems(spec):
        field = ".".join(["spec", *filter(None, place.split("/"))])
        raise InvalidArgument(
            f"The job specification is invalid at {field}: {message:.300}", field=field
        )

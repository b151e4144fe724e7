"""What the OpenAPI document says of jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from naksha.model import limits
from naksha.server.openapi.config_schemas import ConfiguredDocument


class JobErrorDocument(BaseModel):
    """Why a job did not end well."""

    code: str = Field(description="The code of the error, or `lost`.")
    message: str
    field: str | None = None
    featureId: str | None = None  # noqa: N815
    collectionId: str | None = None  # noqa: N815


class JobStatusDocument(BaseModel):
    """How it goes with a job; times are epoch milliseconds."""

    state: Literal["submitted", "running", "done", "failed", "cancelled", "lost"]
    submittedAt: int  # noqa: N815
    startedAt: int | None = None  # noqa: N815
    endedAt: int | None = None  # noqa: N815
    attempt: int = Field(
        0, description="How often it was begun: again, when its instance has died."
    )
    instance: str | None = Field(None, description="Who runs it, or ran it last.")
    phase: str | None = Field(None, description="What it does now, or did last.")
    done: int | None = Field(None, description="So many things of the phase are done.")
    total: int | None = Field(None, description="Of so many, if that is known.")
    cancelledBy: str | None = Field(  # noqa: N815
        None, description="Who wishes it to end, or did."
    )
    report: dict[str, Any] | None = Field(None, description="What came of it.")
    error: JobErrorDocument | None = Field(None, description="Why nothing did.")


class JobDocument(ConfiguredDocument):
    """A job of the data pipeline."""

    type: str = "Job"
    job: str = Field("", description="Which one; `/hub/job-kinds` names them.")
    spaceId: str | None = Field(  # noqa: N815
        None, description="The space that it is about, which must be nothing but a collection."
    )
    storageId: str | None = Field(  # noqa: N815
        None, description="Or the storage."
    )
    collection: str | None = Field(None, description="The collection of the storage.")
    spec: dict[str, Any] = Field(
        {},
        description="What else it is told, see `/hub/job-kinds`. Files are named from the "
        "directory of the realm.",
    )
    status: JobStatusDocument | None = Field(None, description="Read only.")


class JobKindDocument(BaseModel):
    """A job that can be run."""

    model_config = ConfigDict(populate_by_name=True)

    name: str
    about: str = Field(description="What it is for.")
    access: Literal["read", "write", "manage"] = Field(
        description="What it does with the features that it is about, hence the rights that it "
        "takes."
    )
    isRepeatable: bool = Field(  # noqa: N815
        description="Whether it begins again after its instance has died."
    )
    files: dict[str, str] = Field(
        description="Fields that name files, and whether these are read or written."
    )
    fields: dict[str, Any] = Field(description="The JSON Schema of each field of `spec`.")
    required: list[str] = Field(description="Fields that must be given.")
    definitions: dict[str, Any] = Field(
        description="What the schemas refer to, by the name behind `#/$defs/`."
    )


class LogLineDocument(BaseModel):
    """A line of a log."""

    at: int = Field(description="Epoch milliseconds.")
    text: str = Field(max_length=limits.JOB_SAID_LENGTH_MAX)


class JobLogDocument(BaseModel):
    """What a job has said."""

    lines: list[LogLineDocument]
    first: int = Field(description="The number of the first line; older ones are not kept.")
    next: int = Field(description="The number of the line that comes next: ask `after` it.")

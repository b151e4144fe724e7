"""OpenAPI schemas for jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from naksha.model import limits
from naksha.server.openapi.config_schemas import ConfiguredDocument


class JobErrorDocument(BaseModel):
    """The reason why a job failed."""

    code: str = Field(description="The code of the error, or `lost`.")
    message: str
    field: str | None = None
    featureId: str | None = None  # noqa: N815
    collectionId: str | None = None  # noqa: N815


class JobStatusDocument(BaseModel):
    """Status of a job; times are epoch milliseconds."""

    state: Literal["submitted", "running", "done", "failed", "cancelled", "lost"]
    submittedAt: int  # noqa: N815
    startedAt: int | None = None  # noqa: N815
    endedAt: int | None = None  # noqa: N815
    attempt: int = Field(
        0, description="Number of starts; a job is restarted if its instance dies."
    )
    instance: str | None = Field(None, description="The instance that runs it, or ran it last.")
    phase: str | None = Field(None, description="The current or last phase.")
    done: int | None = Field(None, description="Completed items of the phase.")
    total: int | None = Field(None, description="Total items of the phase, if known.")
    cancelledBy: str | None = Field(  # noqa: N815
        None, description="The actor who requested the cancellation."
    )
    report: dict[str, Any] | None = Field(None, description="The result.")
    error: JobErrorDocument | None = Field(None, description="The error of a failed job.")


class JobDocument(ConfiguredDocument):
    """A job of the data pipeline."""

    type: str = "Job"
    job: str = Field("", description="Kind of the job; see `/hub/job-kinds`.")
    spaceId: str | None = Field(  # noqa: N815
        None, description="The space to process; its pipeline must have no other handlers."
    )
    storageId: str | None = Field(  # noqa: N815
        None, description="The storage to process, instead of a space."
    )
    collection: str | None = Field(None, description="The collection of the storage.")
    spec: dict[str, Any] = Field(
        {},
        description="Further parameters; see `/hub/job-kinds`. File names are relative to the "
        "directory of the realm.",
    )
    status: JobStatusDocument | None = Field(None, description="Read only.")


class JobKindDocument(BaseModel):
    """A kind of job."""

    model_config = ConfigDict(populate_by_name=True)

    name: str
    about: str = Field(description="Purpose of the job.")
    access: Literal["read", "write", "manage"] = Field(
        description="Access to the features that the job processes, which determines the required "
        "rights."
    )
    isRepeatable: bool = Field(  # noqa: N815
        description="Whether the job is restarted after its instance has died."
    )
    files: dict[str, str] = Field(
        description="Fields that name files, and whether the job reads or writes them."
    )
    fields: dict[str, Any] = Field(description="The JSON Schema of each field of `spec`.")
    required: list[str] = Field(description="Required fields.")
    definitions: dict[str, Any] = Field(
        description="Definitions that the schemas refer to, by their name after `#/$defs/`."
    )


class LogLineDocument(BaseModel):
    """A line of a log."""

    at: int = Field(description="Epoch milliseconds.")
    text: str = Field(max_length=limits.JOB_SAID_LENGTH_MAX)


class JobLogDocument(BaseModel):
    """Log of a job."""

    lines: list[LogLineDocument]
    first: int = Field(description="Number of the first line; older lines are not retained.")
    next: int = Field(description="Number of the next line, for `after`.")

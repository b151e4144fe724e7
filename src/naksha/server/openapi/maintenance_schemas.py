"""OpenAPI schemas for maintenance."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class StepDocument(BaseModel):
    """A step that was put off or failed."""

    step: str
    reason: str


class RoundDocument(BaseModel):
    """A round that ended; times are epoch milliseconds. Lists are shortened, counts are not."""

    startedAt: int  # noqa: N815
    endedAt: int  # noqa: N815
    seconds: float
    instance: str = Field(description="The process that ran it.")
    dryRun: bool = Field(  # noqa: N815
        description="Whether it changed nothing; `done` is then what it would have done."
    )
    outcome: Literal["done", "incomplete", "failed"] = Field(
        description="`incomplete`: steps failed; `failed`: the round ended early."
    )
    done: list[str]
    doneCount: int  # noqa: N815
    putOff: list[StepDocument] = Field(description="Left to a later round.")  # noqa: N815
    putOffCount: int  # noqa: N815
    failed: list[StepDocument] = Field(description="Retried after increasing pauses.")
    failedCount: int  # noqa: N815
    error: str | None = Field(None, description="Why the round ended early.")


class CatalogMaintenanceDocument(BaseModel):
    """State of the maintenance of the catalog."""

    running: bool
    instance: str | None = Field(None, description="The process that runs the current round.")
    runningSince: int | None = None  # noqa: N815
    requestedAt: int | None = Field(  # noqa: N815
        None, description="When a client requested a round that has not ended."
    )
    nextAt: int = Field(description="When the next round is due.")  # noqa: N815
    lastRound: RoundDocument | None = None  # noqa: N815
    lastDryRun: RoundDocument | None = None  # noqa: N815


class StorageMaintenanceDocument(CatalogMaintenanceDocument):
    """State of the maintenance of a storage."""

    storageId: str  # noqa: N815


class MaintenanceDocument(BaseModel):
    """State of all maintenance that the actor may see."""

    enabled: bool = Field(description="Whether this hub starts rounds by itself.")
    catalog: CatalogMaintenanceDocument | None = Field(
        None, description="Only for operators: actors who manage the storage of the default realm."
    )
    storages: list[StorageMaintenanceDocument]

"""What the OpenAPI document says of subscriptions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from naksha.hub.subscriptions.objects import BEGINNING, NOW
from naksha.model import limits
from naksha.server.openapi.config_schemas import ConfiguredDocument


class SubscriptionDocument(ConfiguredDocument):
    """Changes of a source that are delivered to connectors."""

    type: str = "Subscription"
    source: dict[str, Any] | str = Field(
        {},
        description="`spaceId`; or `storageId`, and `collections` of it. A text is a space. It "
        "cannot be changed.",
    )
    filter: dict[str, Any] = Field(
        {},
        description="`actions` (CREATE, UPDATE, DELETE, TxComment, TxModifyFeatures, "
        "TxModifyCollection), `spatialFilter` (`geometry`, `radius`, `clip`), `tags` and "
        "`properties` as in a query, `authors`, `jsonPath`.",
    )
    granularity: Literal["PER_TRANSACTION", "PER_FEATURE", "CONTENT_CHANGE"] = "PER_TRANSACTION"
    eventHandlerIds: list[str] = Field(  # noqa: N815
        [],
        max_length=limits.PIPELINE_HANDLERS_MAX,
        description="The connectors that it is delivered to, as a pipeline.",
    )
    start: str | int = Field(
        NOW,
        description=f"`{NOW}`, `{BEGINNING}`, or a version that it begins after; for one that "
        "exists there is a reset.",
    )
    active: bool = Field(True, description="Otherwise it is paused.")
    keepDays: int = Field(  # noqa: N815
        limits.SUBSCRIPTION_KEEP_DAYS,
        ge=0,
        le=limits.SUBSCRIPTION_KEEP_DAYS_MAX,
        description="For so long history is kept for it when it is behind; then it may expire.",
    )
    startedAfter: int = Field(  # noqa: N815
        0, description="The version that `start` meant; read only."
    )
    destination: str = Field("", description="XYZ's name for the first connector.")
    config: dict[str, Any] = Field({}, description="XYZ's place for the granularity: `type`.")
    status: dict[str, Any] = Field(
        {},
        description="How it goes; read only. `state` (`active`, `paused`, `failing`, `expired`), "
        "`stateReason`, `since` when (epoch milliseconds), `version` (everything up to it was "
        "delivered), `instance` and `term` (who delivers it, and the how manieth that is), "
        "`delivered` (how often) and `deliveredAt`.",
    )

"""OpenAPI schemas for subscriptions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from naksha.hub.subscriptions.objects import BEGINNING, NOW
from naksha.model import limits
from naksha.server.openapi.config_schemas import ConfiguredDocument


class SubscriptionDocument(ConfiguredDocument):
    """A subscription: delivery of the changes of a source to connectors."""

    type: str = "Subscription"
    source: dict[str, Any] | str = Field(
        {},
        description="`spaceId`; or `storageId` with `collections`. A string is a space id. Cannot "
        "be changed.",
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
        description="The ids of the connectors that receive the changes, as a pipeline.",
    )
    start: str | int = Field(
        NOW,
        description=f"Initial position: `{NOW}`, `{BEGINNING}`, or the version to start after. "
        "Reset an existing subscription to move it.",
    )
    active: bool = Field(True, description="False pauses the subscription.")
    keepDays: int = Field(  # noqa: N815
        limits.SUBSCRIPTION_KEEP_DAYS,
        ge=0,
        le=limits.SUBSCRIPTION_KEEP_DAYS_MAX,
        description="Days for which history is kept for a subscription that lags; after that the "
        "subscription may expire.",
    )
    startedAfter: int = Field(  # noqa: N815
        0, description="The version to which `start` was resolved; read only."
    )
    destination: str = Field("", description="XYZ name of the first connector.")
    config: dict[str, Any] = Field({}, description="XYZ place of the granularity: `type`.")
    status: dict[str, Any] = Field(
        {},
        description="Status; read only. `state` (`active`, `paused`, `failing`, `expired`), "
        "`stateReason`, `since` (epoch milliseconds), `version` (all changes up to it are "
        "delivered), `instance` and `term` (the current lease holder and the number of its "
        "lease), `delivered` (number of deliveries) and `deliveredAt`.",
    )

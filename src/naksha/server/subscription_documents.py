"""What the OpenAPI document says of subscriptions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from naksha.hub.subscription_objects import BEGINNING, NOW, Granularity
from naksha.model import limits
from naksha.server.config_documents import ConfiguredDocument


class SubscriptionStatus(BaseModel):
    """How it goes with a subscription; read only."""

    state: str = Field(description="`active`, `paused`, `failing` or `expired`.")
    stateReason: str | None = None  # noqa: N815
    since: int | None = Field(None, description="When it got so (epoch milliseconds).")
    version: int | None = Field(None, description="Everything up to it was delivered.")
    instance: str | None = Field(None, description="Who delivers it now.")
    term: int | None = Field(None, description="One more with each instance that delivers it.")
    delivered: int | None = Field(None, description="Deliveries so far.")
    deliveredAt: int | None = None  # noqa: N815


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
        description="`actions` (CREATE, UPDATE, DELETE), `spatialFilter` (`geometry`, `radius`, "
        "`clip`), `tags` and `properties` as in a query, `authors`, `jsonPath`.",
    )
    granularity: str = Field(
        Granularity.PER_TRANSACTION.value,
        description=f"{', '.join(Granularity)}.",
    )
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
    status: SubscriptionStatus | None = None

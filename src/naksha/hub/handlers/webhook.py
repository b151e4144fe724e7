"""Webhook: changes are posted to a web server.

    {"url": "https://search.example.com/changes",   the server must allow it (--remote-handlers)
     "secret": "…",                                 signs the posts; it is never shown
     "timeout": 30, "connectTimeout": 5}            seconds

The status 200 acknowledges a delivery. `naksha.hub.remote.signatures` specifies
`Naksha-Signature`; `Naksha-Delivery` is `<subscription> <life> <term> <version> <part>`. A
receiver that refuses a term lower than the last one, and skips versions and parts up to the last
one, gets every change exactly once.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.remote.call_options import RemoteCaller
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model.errors import RemoteFailed

HEADER: Final = "Naksha-Delivery"


class WebhookHandler:
    """Handler that posts each delivery to a URL."""

    metric_name: ClassVar[str] = "WebhookHandler"

    def __init__(self, setup: Setup) -> None:
        self._name = setup.connector.id
        self._caller = RemoteCaller(setup)

    async def process(self, event: Event) -> Any:
        request = event.request
        if not isinstance(request, DeliverChanges):
            return await event.send_upstream()
        try:
            await self._caller.post(
                bytes(request.body),
                {HEADER: _delivery_of(request.fence)},
                event.context,
                is_delivery=True,
            )
        except RemoteFailed as error:
            error.message = f"The webhook {self._name!r} failed: {error.message}"
            raise
        await event.pass_on()
        return None


def _delivery_of(fence: DeliveryFence) -> str:
    """Return the value of the Naksha-Delivery header."""
    return f"{fence.name} {fence.life} {fence.term} {fence.seq_number} {fence.part}"

"""Call options of a connector: URL, timeouts, and the secret that signs requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naksha.hub.config.objects import SECRET
from naksha.hub.pipeline.pipeline import Setup
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.remote.client import CallTimeouts
from naksha.hub.remote.signatures import HEADER, check_secret, signature
from naksha.model import limits
from naksha.model.errors import InvalidArgument


class RemoteCaller:
    """Sends requests to the server of one connector."""

    def __init__(self, setup: Setup) -> None:
        """Raise InvalidArgument or Forbidden if the connector's properties are not usable."""
        properties = setup.connector.properties
        self._remotes = setup.hub.remotes
        self._target = self._remotes.targets.check(setup.connector.url)
        secret = properties.get(SECRET)
        self._secret = (
            None if secret is None else check_secret(secret, field=f"properties.{SECRET}")
        )
        self._timeouts = CallTimeouts(
            _seconds(properties, "connectTimeout", limits.REMOTE_CONNECT_SECONDS),
            _seconds(properties, "timeout", limits.REMOTE_SECONDS),
        )

    @property
    def url(self) -> str:
        """The URL, for log messages only; it is not shown to clients."""
        return self._target.url

    @property
    def seconds_max(self) -> float:
        """The total timeout of a call."""
        return self._timeouts.total_seconds

    async def post(
        self,
        body: bytes,
        headers: Mapping[str, str],
        context: RequestContext,
        *,
        is_delivery: bool = False,
    ) -> bytes:
        """Send a body and return the response within the deadline, as `RemoteClient.post`."""
        sent = {"Stream-Id": context.stream_id, **headers}
        if self._secret is not None:
            sent[HEADER] = signature(self._secret, body)
        timeouts, left = self._timeouts, context.seconds_left
        if left is not None:
            timeouts = CallTimeouts(
                min(timeouts.connect_seconds, left), min(timeouts.total_seconds, left)
            )
        return await self._remotes.post(
            self._target,
            body,
            sent,
            timeouts,
            is_delivery=is_delivery,
            before_sending=context.check_lease,
        )


def _seconds(properties: dict[str, Any], name: str, default: float) -> float:
    value = properties.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(
            f"properties.{name} must be a number of seconds, not {value!r:.40}",
            field=f"properties.{name}",
        )
    if not 0 < value <= limits.REMOTE_SECONDS_MAX:
        raise InvalidArgument(
            f"properties.{name} is {value}; it must be above 0 and at most "
            f"{limits.REMOTE_SECONDS_MAX:.0f} seconds",
            field=f"properties.{name}",
        )
    return float(value)

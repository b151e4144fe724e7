"""What a connector says of a server that is called: where it is, how long it may take, and the
secret that calls are signed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naksha.hub.config.objects import SECRET
from naksha.hub.pipeline.pipeline import Setup
from naksha.hub.pipeline.request_context import Context
from naksha.hub.remote.client import Patience
from naksha.hub.remote.signatures import HEADER, check_secret, signature
from naksha.model import limits
from naksha.model.errors import InvalidArgument


class Caller:
    """Calls the server of one connector."""

    def __init__(self, setup: Setup) -> None:
        """Raises InvalidArgument or Forbidden for properties that cannot be used."""
        properties = setup.connector.properties
        self._remotes = setup.hub.remotes
        self._target = self._remotes.targets.check(setup.connector.url)
        secret = properties.get(SECRET)
        self._secret = (
            None if secret is None else check_secret(secret, field=f"properties.{SECRET}")
        )
        self._patience = Patience(
            _seconds(properties, "connectTimeout", limits.REMOTE_CONNECT_SECONDS),
            _seconds(properties, "timeout", limits.REMOTE_SECONDS),
        )

    @property
    def url(self) -> str:
        """For the log; nobody else is told."""
        return self._target.url

    @property
    def seconds_max(self) -> float:
        """How long a call takes at the most."""
        return self._patience.total_seconds

    async def post(
        self,
        body: bytes,
        headers: Mapping[str, str],
        context: Context,
        *,
        is_delivery: bool = False,
    ) -> bytes:
        """What is answered to a body, as `Remotes.post`; no later than whoever asks waits."""
        sent = {"Stream-Id": context.stream_id, **headers}
        if self._secret is not None:
            sent[HEADER] = signature(self._secret, body)
        patience, left = self._patience, context.seconds_left
        if left is not None:
            patience = Patience(
                min(patience.connect_seconds, left), min(patience.total_seconds, left)
            )
        return await self._remotes.post(
            self._target,
            body,
            sent,
            patience,
            is_delivery=is_delivery,
            before_sending=context.check_turn,
        )


def _seconds(properties: dict[str, Any], name: str, default: float) -> float:
    value = properties.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument("It is a number of seconds", field=f"properties.{name}")
    if not 0 < value <= limits.REMOTE_SECONDS_MAX:
        raise InvalidArgument(
            f"It is more than 0 and at most {limits.REMOTE_SECONDS_MAX:.0f} seconds",
            field=f"properties.{name}",
        )
    return float(value)

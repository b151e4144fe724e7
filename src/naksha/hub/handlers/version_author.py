"""Signatures of changes to versions: app id, author and message."""

from __future__ import annotations

from naksha.hub.pipeline.pipeline import Event
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.versioning import (
    Attribution,
)


def signed_by(event: Event, message: str | None = None) -> Attribution:
    actor = event.context.actor
    if message is not None and len(message) > limits.DESCRIPTION_LENGTH_MAX:
        raise InvalidArgument(
            f"The description of the version has more than {limits.DESCRIPTION_LENGTH_MAX} "
            "characters; shorten it",
            field="description",
        )
    return Attribution(actor.app_id, actor.author, message)

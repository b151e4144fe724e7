"""Copies of requests with another query or features, and of responses with other states.

Used by handlers that change features or queries as they pass through.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from naksha.hub.handlers.writes.write_parts import check_objects
from naksha.hub.pipeline.requests import (
    FindStorages,
    GetVersion,
    Modification,
    Request,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Features
from naksha.model.errors import NotImplementedHere
from naksha.model.query import Query
from naksha.model.state import State

Feature = dict[str, Any]
_HARMLESS: Final = (FindStorages, GetVersion, WriteFeatures)
"""Requests whose responses disclose no features. Handlers that hide features filter the response
of a write themselves."""


def with_query(request: Request[Any], change: Callable[[Query], Query]) -> Request[Any]:
    """Return the request with a changed query.

    Raises:
        NotImplementedHere: It has no query, so its response could disclose hidden data.
    """
    if isinstance(request, _HARMLESS):
        return request
    query = getattr(request, "query", None)
    if not isinstance(query, Query):
        raise NotImplementedHere(
            "This space shows a filtered or transformed part of its data, so it does not support "
            f"the request {type(request).__name__}; use the space that it is derived from"
        )
    return msgspec.structs.replace(request, query=change(query))


def with_features(
    request: WriteFeatures, change: Callable[[Feature, Modification], Feature]
) -> WriteFeatures:
    """Return the write with changed features."""
    check_objects(request)
    modifications = tuple(
        msgspec.structs.replace(
            one, features=tuple(change(feature, one) for feature in one.features)
        )
        for one in request.modifications
    )
    return msgspec.structs.replace(request, modifications=modifications)


async def with_states(found: Features, change: Callable[[State], State]) -> Features:
    """Return the response with changed states."""

    async def read(answer: Features) -> AsyncIterator[Sequence[State]]:
        async with aclosing(found):
            async for states in found:
                yield [change(state) for state in states]
        answer.cursor = found.cursor

    return await Features.with_first_read(read)

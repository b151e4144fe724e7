"""What handlers need that change features or queries on their way through: requests with another
query or other features, and answers with other states."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from naksha.hub.handlers.write_parts import check_objects
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
"""Requests whose answers tell nothing of features; of writes, whoever hides some sees to that."""


def with_query(request: Request[Any], change: Callable[[Query], Query]) -> Request[Any]:
    """The same request about what is left of its query.

    Raises:
        NotImplementedHere: It has no query, and its answer would tell what must not be told.
    """
    if isinstance(request, _HARMLESS):
        return request
    query = getattr(request, "query", None)
    if not isinstance(query, Query):
        raise NotImplementedHere(
            f"This space shows only a part of what it has, or shows it otherwise, so it does not"
            f" answer {type(request).__name__}; ask the space that it is made from"
        )
    return msgspec.structs.replace(request, query=change(query))


def with_features(
    request: WriteFeatures, change: Callable[[Feature, Modification], Feature]
) -> WriteFeatures:
    """The same write with other features."""
    check_objects(request)
    modifications = tuple(
        msgspec.structs.replace(
            one, features=tuple(change(feature, one) for feature in one.features)
        )
        for one in request.modifications
    )
    return msgspec.structs.replace(request, modifications=modifications)


async def with_states(found: Features, change: Callable[[State], State]) -> Features:
    """The same answer with other states."""

    async def read(answer: Features) -> AsyncIterator[Sequence[State]]:
        async with aclosing(found):
            async for states in found:
                yield [change(state) for state in states]
        answer.cursor = found.cursor

    return await Features.begun(read)

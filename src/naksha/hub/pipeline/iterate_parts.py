"""Partitioned iteration: several clients each read one part of a space concurrently.

The storage selects the features of a part (`Query.part`), so that it reads nothing else. A handler
that generates features may not support parts; features of other parts are filtered out here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import QueryPart
from naksha.model.state import State

Send = Callable[[ReadFeatures], Awaitable[Features]]
_TEXT: Final = re.compile(r"([0-9]{1,6}),([0-9]{1,6})")


def parse_part(text: str) -> QueryPart:
    """Parse the value of `part=n,total`."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f'Parameter "part" must be n,total with 1 ≤ n ≤ total ≤ {limits.PARTS_MAX}, not '
            f"{text!r:.40}",
            field="part",
        )
    return QueryPart(*map(int, found.groups()))


def restrict_to_part(part: QueryPart, send: Send) -> Send:
    """Wrap a send function to filter out features of other parts."""

    async def send_part(read: ReadFeatures) -> Features:
        whole = await send(read)
        return await Features.with_first_read(lambda answer: _pages(answer, whole, part))

    return send_part


async def _pages(
    answer: Features, whole: Features, part: QueryPart
) -> AsyncIterator[Sequence[State]]:
    async with aclosing(whole):
        async for states in whole:
            if mine := [state for state in states if part.has(state.id)]:
                yield mine
    answer.cursor = whole.cursor

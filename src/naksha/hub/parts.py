"""An iteration cut into parts that several clients read at the same time, each one its own.

Which part a feature is in follows from its id alone, so the parts of all pages and of all versions
fit together. A part is read from pages of the whole; where the last one was left is kept as that
page's cursor and the number of features of it that are done.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from naksha.hub.requests import ReadFeatures
from naksha.hub.responses import Features
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.state import State

Send = Callable[[ReadFeatures], Awaitable[Features]]
_TEXT: Final = re.compile(r"([0-9]{1,6}),([0-9]{1,6})")


class Part(NamedTuple):
    """The part of a number, counted from 1."""

    number: int
    total: int

    def has(self, id: str) -> bool:
        """Whether a feature is in it."""
        return zlib.crc32(id.encode()) % self.total == self.number - 1


class Left(msgspec.Struct, frozen=True, array_like=True):
    """Where a part was left: in the page that begins at a cursor, after so many features."""

    cursor: str
    done: int


def parse_part(text: str) -> Part:
    """What `part=n,total` means."""
    found = _TEXT.fullmatch(text)
    part = Part(*map(int, found.groups())) if found is not None else Part(0, 0)
    if not 1 <= part.number <= part.total <= limits.PARTS_MAX:
        raise InvalidArgument(
            f"It is n,total with 1 ≤ n ≤ total ≤ {limits.PARTS_MAX}", field="part"
        )
    return part


async def read_part(send: Send, read: ReadFeatures, part: Part, after: str | None) -> Features:
    """A page of a part. The cursor of the answer is what `after` takes for the next one."""
    left = None if after is None else _decoded(after)
    return await Features.begun(lambda answer: _pages(answer, send, read, part, left))


def _decoded(after: str) -> Left:
    try:
        return msgspec.json.decode(after, type=Left)
    except msgspec.DecodeError:
        raise InvalidArgument("It is no handle of a part", field="handle") from None


async def _pages(
    answer: Features, send: Send, read: ReadFeatures, part: Part, left: Left | None
) -> AsyncIterator[Sequence[State]]:
    wanted = read.query.limit or limits.PAGE_DEFAULT
    cursor, done = (None, 0) if left is None else (left.cursor, left.done)
    size = limits.READ_CHUNK_FEATURES
    if left is None:
        # The first page has no cursor yet, so it must not hold more than is wanted.
        size = min(wanted, size)
    while True:
        query = msgspec.structs.replace(read.query, cursor=cursor, limit=size)
        page = await send(msgspec.structs.replace(read, query=query, paged=True))
        states = await page.all()
        mine = [place for place, state in enumerate(states) if place >= done and part.has(state.id)]
        if mine[:wanted]:
            yield [states[place] for place in mine[:wanted]]
        if len(mine) > wanted:
            assert cursor is not None
            answer.cursor = msgspec.json.encode(Left(cursor, mine[wanted])).decode()
            return
        wanted -= len(mine)
        if page.cursor is None:
            return
        cursor, done, size = page.cursor, 0, limits.READ_CHUNK_FEATURES

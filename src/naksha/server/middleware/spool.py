"""Answers for who reads slowly: what is left of them goes to a temporary file, so that the database
is not kept waiting.

Whoever streams from a storage has one of its connections until the last feature is read, and there
are few. So the time that an answer waits for its reader is counted. When it was too long, the rest
is read at the pace of the database, and given out from the file at that of the reader. The common
answer, whose reader keeps up, does not notice.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final, TypeVar

from naksha.hub.pipeline.responses import closing
from naksha.model import limits
from naksha.model.errors import LimitExceeded

T = TypeVar("T")
_disk: Final = ThreadPoolExecutor(1, "naksha-spool")
"""One thread, so that a file is closed after what was begun before with it."""


class SpoolRoom:
    """How much the answers of one process may have in files, each and together."""

    def __init__(self, answer_bytes_max: int, bytes_max: int) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._bytes_max = bytes_max
        self.bytes_used = 0

    def take(self, size: int, has: int) -> None:
        """Room for a further part of an answer, else LimitExceeded."""
        if has + size > self._answer_bytes_max or self.bytes_used + size > self._bytes_max:
            raise LimitExceeded(
                f"The client reads so slowly that more than {has} bytes wait for it, and there is "
                "no room for more; it should ask for less at once, or by pages"
            )
        self.bytes_used += size


ROOM: Final = SpoolRoom(limits.SPOOL_BYTES_MAX, limits.SPOOLS_BYTES_MAX)


async def unhurried(
    body: AsyncIterator[bytes],
    patience_seconds: float = limits.READER_SECONDS_MAX,
    room: SpoolRoom = ROOM,
) -> AsyncGenerator[bytes, None]:
    """The same bytes, for a reader who may take his time."""
    loop = asyncio.get_running_loop()
    rest: list[_Spool] = []
    waited = 0.0
    try:
        # Only one of the two reads on at a time: the spool does while this one waits at `yield`.
        async for part in body:
            began = loop.time()
            timer = loop.call_later(
                max(0.0, patience_seconds - waited), lambda: rest.append(_Spool(body, room))
            )
            try:
                yield part
            finally:
                timer.cancel()
            waited += loop.time() - began
            if rest:
                break
        for spool in rest:
            async for part in spool.parts():
                yield part
    finally:
        for spool in rest:
            await spool.close()
        async with closing(body):
            pass


class _Spool:
    """What is left of an answer, in a file without a name."""

    def __init__(self, body: AsyncIterator[bytes], room: SpoolRoom) -> None:
        self._body = body
        self._room = room
        self._taken = 0
        self._written = 0
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._news = asyncio.Event()
        self._filling = asyncio.create_task(self._fill())
        self._filling.add_done_callback(lambda _: self._news.set())

    async def parts(self) -> AsyncIterator[bytes]:
        """All of it; waits for what is still to come, and ends with its error."""
        given = 0
        while True:
            is_over = self._filling.done()
            while given < self._written:
                size = min(limits.ANSWER_CHUNK_BYTES, self._written - given)
                part = await _on_disk(os.pread, self._file.fileno(), size, given)
                given += len(part)
                yield part
            if is_over:
                self._filling.result()
                return
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        """Nobody reads on."""
        self._filling.cancel()
        await asyncio.wait([self._filling])
        if not self._filling.cancelled():
            self._filling.exception()  # whoever read until there was told
        self._room.bytes_used -= self._taken
        _disk.submit(self._file.close)

    async def _fill(self) -> None:
        async with closing(self._body):
            async for part in self._body:
                self._room.take(len(part), self._taken)
                self._taken += len(part)
                await _on_disk(_append, self._file, part)
                self._written += len(part)
                self._news.set()


def _append(file: IO[bytes], part: bytes) -> None:
    file.write(part)
    file.flush()


async def _on_disk(work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work, *arguments)

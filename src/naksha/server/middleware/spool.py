"""Spool responses to disk for slow clients, so that they do not hold a database connection.

A response that is streamed from a storage holds a database connection until its last feature is
read, and there are few connections. So the time that a response waits for its client is added up.
Once it exceeds a limit, the rest of the response is read from the database at full speed into a
temporary file, and sent from there at the client's pace. A client that keeps up causes no file.
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
"""One thread, so that a file is closed only after the operations submitted before."""


class SpoolBudget:
    """Disk budget for the spooled responses of one process, per response and in total."""

    def __init__(self, answer_bytes_max: int, bytes_max: int) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._bytes_max = bytes_max
        self.bytes_used = 0

    def take(self, size: int, has: int) -> None:
        """Reserve space for another chunk of a response, or raise LimitExceeded."""
        if has + size > self._answer_bytes_max or self.bytes_used + size > self._bytes_max:
            raise LimitExceeded(
                f"The client reads too slowly: more than {has} bytes are waiting for it and the "
                "spool is full; request less data at once, or use pages"
            )
        self.bytes_used += size


ROOM: Final = SpoolBudget(limits.SPOOL_BYTES_MAX, limits.SPOOLS_BYTES_MAX)


async def unhurried(
    body: AsyncIterator[bytes],
    patience_seconds: float = limits.READER_SECONDS_MAX,
    budget: SpoolBudget = ROOM,
) -> AsyncGenerator[bytes, None]:
    """Yield the same bytes; the rest of the body is spooled once the client proves slow."""
    loop = asyncio.get_running_loop()
    rest: list[_Spool] = []
    waited = 0.0
    try:
        # Only one of the two reads `body` at a time: the spool reads while this generator is
        # suspended at `yield`.
        async for part in body:
            began = loop.time()
            timer = loop.call_later(
                max(0.0, patience_seconds - waited), lambda: rest.append(_Spool(body, budget))
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
    """The remaining body of a response, in an anonymous temporary file."""

    def __init__(self, body: AsyncIterator[bytes], budget: SpoolBudget) -> None:
        self._body = body
        self._budget = budget
        self._taken = 0
        self._written = 0
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._changed = asyncio.Event()
        self._filling = asyncio.create_task(self._fill())
        self._filling.add_done_callback(lambda _: self._changed.set())

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield all chunks, waiting for those still to be written; raises the error of the body."""
        sent = 0
        while True:
            is_over = self._filling.done()
            while sent < self._written:
                size = min(limits.ANSWER_CHUNK_BYTES, self._written - sent)
                part = await _on_disk(os.pread, self._file.fileno(), size, sent)
                sent += len(part)
                yield part
            if is_over:
                self._filling.result()
                return
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Stop reading the body and close the file."""
        self._filling.cancel()
        await asyncio.wait([self._filling])
        if not self._filling.cancelled():
            self._filling.exception()  # mark as retrieved; `parts` has raised it to its reader
        self._budget.bytes_used -= self._taken
        _disk.submit(self._file.close)

    async def _fill(self) -> None:
        async with closing(self._body):
            async for part in self._body:
                self._budget.take(len(part), self._taken)
                self._taken += len(part)
                await _on_disk(_append, self._file, part)
                self._written += len(part)
                self._changed.set()


def _append(file: IO[bytes], part: bytes) -> None:
    file.write(part)
    file.flush()


async def _on_disk(work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work, *arguments)

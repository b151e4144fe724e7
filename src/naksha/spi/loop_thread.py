"""Event loop in a background thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

from naksha.model.errors import Cancelled, Unavailable

T = TypeVar("T")
_ENDED: Final = "The transaction has ended and accepts no more calls; start a new one"
CHUNK: Final = 500
"""Items fetched at once from an asynchronous iteration."""


class LoopThread:
    """Run coroutines for callers in other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # An executor of our own: shutting down the loop's default executor starts a thread, which
        # is not possible at interpreter exit.
        self._threads = ThreadPoolExecutor(thread_name_prefix="naksha-background")
        self._loop.set_default_executor(self._threads)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="naksha-background", daemon=True
        )
        self._thread.start()
        self._sources: list[AsyncIterator[Any]] = []
        self._endings: set[Future[None]] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_ended = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine; Ctrl-C cancels it.

        Raises:
            Cancelled: All calls were cancelled by `end_calls`.
        """
        if self._loop.is_closed():
            work.close()
            raise Unavailable("The storage is closed; open it again")
        future = asyncio.run_coroutine_threadsafe(self._called(work), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Cancelled(
                "The call to the storage was interrupted, because the job was cancelled; check "
                "whether a write took effect before you repeat it"
            ) from None
        except BaseException:
            future.cancel()
            raise

    async def _called(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_ended:
            work.close()
            raise Cancelled("The call to the storage was cancelled, because the job is ending")
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    def end_calls(self, *, for_good: bool = False) -> None:
        """Cancel all current calls and, with `for_good`, all later ones.

        Each call ends after it has undone its work, unless that was complete already.
        """

        def end() -> None:
            self._is_ended = self._is_ended or for_good
            for task in self._calls:
                task.cancel()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(end)

    def iterate(self, source: AsyncIterator[T], chunk_max: int = CHUNK) -> Iterator[T]:
        """Iterate over an asynchronous iterator, fetching in chunks."""
        self._sources.append(source)
        try:
            while chunk := self.call(_take(source, chunk_max)):
                yield from chunk
        finally:
            if not self._loop.is_closed():
                # Do not wait: the garbage collector may run this in the thread of the loop itself.
                ending = asyncio.run_coroutine_threadsafe(self._end(source), self._loop)
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)

    async def _end(self, source: AsyncIterator[Any]) -> None:
        if source in self._sources:
            self._sources.remove(source)
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    def end_iterations(self) -> None:
        """Close all unfinished iterations."""
        for source in list(self._sources):
            self.call(self._end(source))
        wait(list(self._endings))

    def hold(self, context: AbstractAsyncContextManager[T]) -> HeldContext[T]:
        """Enter a context, to be left by a later call."""
        return HeldContext(self, context)

    def close(self) -> None:
        """Stop the loop; no call may be running."""
        # In the loop's thread: the caller's thread may have a running loop, as in a notebook.
        ended = asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._threads.shutdown()
        self._loop.close()


class HeldContext(Generic[T]):
    """Asynchronous context that is entered, used and left by one task, as some contexts require."""

    def __init__(self, background: LoopThread, context: AbstractAsyncContextManager[T]) -> None:
        self._background = background
        self._queue: asyncio.Queue[_ContextCall | BaseException | None] = asyncio.Queue()
        self._ended = False
        self.inside: T = background.call(self._enter(context))

    def call(self, work: Callable[[T], Awaitable[Any]]) -> Any:
        """Run a coroutine function inside the context."""
        return self._background.call(self._submit(work))

    def leave(self, error: BaseException | None = None) -> None:
        """Leave the context, with the error that ended it."""

        async def leave() -> None:
            self._queue.put_nowait(error)
            await self._task

        self._background.call(leave())

    async def _enter(self, context: AbstractAsyncContextManager[T]) -> T:
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(context, entered))
        self._task.add_done_callback(lambda _: entered.cancel())
        try:
            return await entered
        except asyncio.CancelledError:
            await self._task  # raises the reason if entering failed
            raise

    async def _run(
        self, context: AbstractAsyncContextManager[T], entered: asyncio.Future[T]
    ) -> None:
        try:
            async with context as inside:
                entered.set_result(inside)
                while isinstance(job := await self._queue.get(), _ContextCall):
                    await job.do(inside)
                if job is not None:
                    raise job
        except _Rollback:
            pass
        finally:
            self._ended = True
            while not self._queue.empty():
                left = self._queue.get_nowait()
                if isinstance(left, _ContextCall):
                    left.outcome.set_exception(Unavailable(_ENDED))

    async def _submit(self, work: Callable[[T], Awaitable[Any]]) -> Any:
        if self._ended:
            raise Unavailable(_ENDED)
        job = _ContextCall(work)
        self._queue.put_nowait(job)
        return await job.outcome


class _Rollback(Exception):
    """Internal: leaves a context without committing."""


class _ContextCall:
    def __init__(self, work: Callable[[Any], Awaitable[Any]]) -> None:
        self._work = work
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def do(self, inside: object) -> None:
        try:
            result = await self._work(inside)
        except Exception as error:  # noqa: BLE001 - passed to the caller
            if not self.outcome.done():
                self.outcome.set_exception(error)
        else:
            if not self.outcome.done():
                self.outcome.set_result(result)


def rollback_error() -> BaseException:
    """Return the exception that leaves a context without committing."""
    return _Rollback()


async def _take(source: AsyncIterator[T], count_max: int) -> list[T]:
    found: list[T] = []
    async for each in source:
        found.append(each)
        if len(found) == count_max:
            break
    return found

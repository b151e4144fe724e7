"""The version signal: no waiter misses a version, and few pollers serve all."""

from __future__ import annotations

import asyncio

import pytest

from naksha.spi.support.version_signal import VersionSignal

FOREVER_S = 3600.0


class Log:
    """The last version that a storage would read, with the number of reads."""

    def __init__(self) -> None:
        self.last = 0
        self.looks = 0

    async def look(self) -> int:
        self.looks += 1
        await asyncio.sleep(0)
        return self.last


async def test_a_known_version_is_returned_without_waiting() -> None:
    log = Log()
    log.last = 7
    assert await VersionSignal(FOREVER_S).wait_beyond(6, FOREVER_S, log.look) == 7


async def test_a_timeout_returns_the_last_version() -> None:
    log = Log()
    log.last = 7
    news = VersionSignal(FOREVER_S)
    assert await news.wait_beyond(7, 0, log.look) == 7
    assert await news.wait_beyond(7, 0.001, log.look) == 7


async def test_a_notification_wakes_all_waiters() -> None:
    news, log = VersionSignal(FOREVER_S), Log()
    waiting = [asyncio.create_task(news.wait_beyond(0, FOREVER_S, log.look)) for _ in range(50)]
    await asyncio.sleep(0.01)
    news.notify(1)
    assert await asyncio.gather(*waiting) == [1] * 50


async def test_a_version_during_a_poll_is_not_missed() -> None:
    """The look has seen the past already when the news come; nothing comes afterwards."""
    news = VersionSignal(FOREVER_S)

    async def look() -> int:
        news.notify(3)
        await asyncio.sleep(0)
        return 2

    assert await news.wait_beyond(2, FOREVER_S, look) == 3


async def test_a_version_polled_by_one_waiter_reaches_the_next() -> None:
    """An event that the first clears would never wake the second."""
    news, log = VersionSignal(FOREVER_S), Log()
    first = asyncio.create_task(news.wait_beyond(0, FOREVER_S, log.look))
    second = asyncio.create_task(news.wait_beyond(1, FOREVER_S, log.look))
    await asyncio.sleep(0.01)
    news.notify(1)
    assert await first == 1
    again = asyncio.create_task(news.wait_beyond(1, FOREVER_S, log.look))
    news.notify(2)
    assert await second == 2
    assert await again == 2


async def test_an_event_taken_before_a_poll_reports_later_versions() -> None:
    news = VersionSignal(FOREVER_S)
    coming = news.next_version
    news.notify(1)
    assert await news.wait(coming, FOREVER_S)
    assert not await news.wait(news.next_version, 0)


async def test_an_unnotified_version_is_found_by_one_poll_for_all() -> None:
    news, log = VersionSignal(0.02), Log()
    waiting = [asyncio.create_task(news.wait_beyond(0, FOREVER_S, log.look)) for _ in range(50)]
    await asyncio.sleep(0.01)
    begun = log.looks
    log.last = 1
    assert await asyncio.gather(*waiting) == [1] * 50
    assert log.looks - begun < 10


async def test_after_a_look_that_fails_others_look() -> None:
    news, log = VersionSignal(0.02), Log()

    async def fail() -> int:
        if not log.looks:
            return await log.look()
        raise OSError("gone")

    failing = asyncio.create_task(news.wait_beyond(0, FOREVER_S, fail))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(news.wait_beyond(0, FOREVER_S, log.look))
    with pytest.raises(OSError, match="gone"):
        await failing
    log.last = 1
    assert await waiting == 1


async def test_a_version_that_a_new_server_does_not_know_is_not_the_last_one() -> None:
    news, log = VersionSignal(FOREVER_S), Log()
    news.notify(9)
    news.reset(5)
    assert await news.wait_beyond(5, 0, log.look) == 5
    news.notify(4)
    assert news.last == 5

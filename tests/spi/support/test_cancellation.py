"""Cancellation of a task that retries after any error."""

from __future__ import annotations

import asyncio

from naksha.spi.support.cancellation import check_cancelled, is_cancelled


async def test_an_error_on_the_way_out_does_not_hide_a_cancellation() -> None:
    tries = 0

    async def clean_up_badly() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise OSError

    async def for_ever() -> None:
        nonlocal tries
        while True:
            tries += 1
            try:
                await clean_up_badly()
            except OSError:
                check_cancelled()

    task = asyncio.create_task(for_ever())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert tries == 1


async def test_a_timeout_inside_of_a_task_is_not_a_cancellation() -> None:
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)
    except TimeoutError:
        check_cancelled()
    assert not is_cancelled()

"""The driver of state machines."""

from __future__ import annotations

import pytest

from naksha.testing.models.stateful_support import CoroutineRunner


async def fail(error: BaseException) -> None:
    raise error


async def answer() -> int:
    return 42


@pytest.mark.timeout(10)
@pytest.mark.parametrize("error", [ValueError("wrong"), pytest.fail.Exception("too late")])
def test_the_end_of_a_call_reaches_the_caller(error: BaseException) -> None:
    driver = CoroutineRunner()
    try:
        with pytest.raises(type(error), match=str(error)):
            driver(fail(error))
        assert driver(answer()) == 42
    finally:
        driver.close()

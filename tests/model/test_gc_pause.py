"""The pause of the garbage collector while batches are processed, and only then."""

from __future__ import annotations

import gc
import threading

import pytest

from naksha.model.gc_pause import uncollected


@uncollected
def enabled_inside() -> bool:
    return gc.isenabled()


def test_it_is_paused_and_goes_on_again() -> None:
    assert gc.isenabled()
    assert not enabled_inside()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    @uncollected
    def fails() -> None:
        raise ValueError("as expected")

    with pytest.raises(ValueError, match="as expected"):
        fails()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        assert not enabled_inside()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_goes_on_when_the_last_of_several_has_ended() -> None:
    entered, leave = threading.Event(), threading.Event()

    @uncollected
    def waits() -> None:
        entered.set()
        assert leave.wait(60)

    thread = threading.Thread(target=waits)
    thread.start()
    assert entered.wait(60)
    assert not enabled_inside()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()

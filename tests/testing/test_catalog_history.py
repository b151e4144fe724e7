"""The linearizability check of a pointer's history: all impossible histories, and no others."""

import pytest

from naksha.testing.catalog.history import PointerHistory, ReadCall, SwapCall


def history(*events: SwapCall | ReadCall) -> PointerHistory:
    made = PointerHistory(b"0")
    made.swaps = [event for event in events if isinstance(event, SwapCall)]
    made.reads = [event for event in events if isinstance(event, ReadCall)]
    return made


FIRST = SwapCall(1, 3, b"0", b"a", won=True)
SECOND = SwapCall(4, 6, b"a", b"b", won=True)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [FIRST, SECOND],
        [FIRST, SECOND, ReadCall(0, 2, b"0"), ReadCall(2, 5, b"a"), ReadCall(5, 7, b"b")],
        [FIRST, SECOND, ReadCall(2, 5, b"0")],  # the swap may have come late
        [FIRST, SECOND, ReadCall(0, 1, b"a")],  # or early
        [FIRST, SECOND, ReadCall(0, 9, b"b"), ReadCall(0, 9, b"0")],
        [FIRST, SwapCall(2, 9, b"a", b"b", won=True)],  # both at the same moment
        [FIRST, SwapCall(2, 5, b"0", b"x", won=False)],
        [FIRST, SwapCall(0, 2, b"a", b"x", won=False)],
        [FIRST, SwapCall(0, 1, b"never", b"x", won=False)],
    ],
)
def test_possible_histories_are_accepted(events: list[SwapCall | ReadCall]) -> None:
    swaps = [event for event in events if isinstance(event, SwapCall) and event.won]
    assert history(*events).check() == (swaps[-1].target if swaps else b"0")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([FIRST, SwapCall(1, 3, b"0", b"x", won=True)], "two won"),
        ([SECOND], "nothing led there"),
        ([FIRST, SwapCall(-5, 0, b"a", b"x", won=True)], "before its predecessor"),
        ([FIRST, ReadCall(5, 6, b"x")], "never written"),
        ([FIRST, ReadCall(-1, 0, b"a")], "before it was written"),
        ([FIRST, ReadCall(4, 5, b"0")], "after it was gone"),
        ([FIRST, SECOND, ReadCall(7, 8, b"0")], "after it was gone"),
        ([FIRST, ReadCall(1, 2, b"a"), ReadCall(2.1, 2.2, b"0")], "went back"),
        ([FIRST, SwapCall(-1, 0, b"0", b"x", won=False)], "lost against nobody"),
        ([FIRST, SwapCall(4, 5, b"a", b"x", won=False)], "lost against nobody"),
        ([FIRST, SECOND, SwapCall(3.5, 3.6, b"a", b"x", won=False)], "lost against nobody"),
    ],
)
def test_impossible_histories_are_refused(events: list[SwapCall | ReadCall], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        history(*events).check()

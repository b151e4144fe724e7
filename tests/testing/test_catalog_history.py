"""The linearizability check of a pointer's history: all impossible histories, and no others."""

import pytest

from naksha.testing.catalog.history import History, Read, Swap


def history(*events: Swap | Read) -> History:
    made = History(b"0")
    made.swaps = [event for event in events if isinstance(event, Swap)]
    made.reads = [event for event in events if isinstance(event, Read)]
    return made


FIRST = Swap(1, 3, b"0", b"a", won=True)
SECOND = Swap(4, 6, b"a", b"b", won=True)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [FIRST, SECOND],
        [FIRST, SECOND, Read(0, 2, b"0"), Read(2, 5, b"a"), Read(5, 7, b"b")],
        [FIRST, SECOND, Read(2, 5, b"0")],  # the swap may have come late
        [FIRST, SECOND, Read(0, 1, b"a")],  # or early
        [FIRST, SECOND, Read(0, 9, b"b"), Read(0, 9, b"0")],
        [FIRST, Swap(2, 9, b"a", b"b", won=True)],  # both at the same moment
        [FIRST, Swap(2, 5, b"0", b"x", won=False)],
        [FIRST, Swap(0, 2, b"a", b"x", won=False)],
        [FIRST, Swap(0, 1, b"never", b"x", won=False)],
    ],
)
def test_what_can_have_happened(events: list[Swap | Read]) -> None:
    swaps = [event for event in events if isinstance(event, Swap) and event.won]
    assert history(*events).check() == (swaps[-1].target if swaps else b"0")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([FIRST, Swap(1, 3, b"0", b"x", won=True)], "two won"),
        ([SECOND], "nothing led there"),
        ([FIRST, Swap(-5, 0, b"a", b"x", won=True)], "before its predecessor"),
        ([FIRST, Read(5, 6, b"x")], "never written"),
        ([FIRST, Read(-1, 0, b"a")], "before it was written"),
        ([FIRST, Read(4, 5, b"0")], "after it was gone"),
        ([FIRST, SECOND, Read(7, 8, b"0")], "after it was gone"),
        ([FIRST, Read(1, 2, b"a"), Read(2.1, 2.2, b"0")], "went back"),
        ([FIRST, Swap(-1, 0, b"0", b"x", won=False)], "lost against nobody"),
        ([FIRST, Swap(4, 5, b"a", b"x", won=False)], "lost against nobody"),
        ([FIRST, SECOND, Swap(3.5, 3.6, b"a", b"x", won=False)], "lost against nobody"),
    ],
)
def test_what_cannot_have_happened(events: list[Swap | Read], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        history(*events).check()

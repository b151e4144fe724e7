"""How many states are read at once, when they are passed on as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naksha.model import limits
from naksha.model.state import State

FIRST: Final = 256
"""States that are read first, when it is not known how large they are."""


def size_after(states: Sequence[State]) -> int:
    """How many to read next, if they are as large as those were."""
    average = sum([len(state.raw) for state in states]) // len(states) + 1
    return max(1, min(limits.ANSWER_CHUNK_BYTES // average, limits.READ_CHUNK_FEATURES))

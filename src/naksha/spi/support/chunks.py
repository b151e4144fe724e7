"""Chunk sizes for streamed reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naksha.model import limits
from naksha.model.state import State

FIRST: Final = 256
"""States of the first chunk, when their size is still unknown."""


def size_after(states: Sequence[State]) -> int:
    """Return the size of the next chunk, assuming states as large as the given ones."""
    average = sum([len(state.raw) for state in states]) // len(states) + 1
    return max(1, min(limits.ANSWER_CHUNK_BYTES // average, limits.READ_CHUNK_FEATURES))

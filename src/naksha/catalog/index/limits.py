"""The sizes at which an index is spilled, split and merged."""

from __future__ import annotations

import math

import msgspec

from naksha.model import limits


class IndexLimits(msgspec.Struct, frozen=True):
    """The limits of an index. What was written with other ones stays readable."""

    embedded_bytes: int = limits.INDEX_EMBEDDED_BYTES_MAX
    stripe_bytes: int = limits.INDEX_STRIPE_BYTES_MAX
    stripes_inline: int = limits.INDEX_STRIPES_INLINE_MAX
    segment_stripes: int = limits.INDEX_SEGMENT_STRIPES_MAX
    block_entries: int = limits.INDEX_BLOCK_ENTRIES
    block_bytes: int = limits.INDEX_BLOCK_BYTES

    def embedded_of(self, striped_bytes: int) -> int:
        """How much is embedded before it is spilled. Every commit writes what is embedded, on
        average half of it, and every spill the stripes again: their sum is least where the limit
        grows with the square root of the stripes."""
        best = math.isqrt(2 * limits.INDEX_ENTRY_BYTES * striped_bytes)
        return min(self.embedded_bytes, max(limits.INDEX_EMBEDDED_BYTES_MIN, best))

    @property
    def entry_bytes(self) -> int:
        """A larger entry is never embedded."""
        return self.embedded_bytes // 4

"""Sizes at which an index is spilled, split and merged."""

from __future__ import annotations

import math

import msgspec

from naksha.model import limits


class IndexLimits(msgspec.Struct, frozen=True):
    """The limits of an index. Data written with other limits remains readable."""

    embedded_bytes: int = limits.INDEX_EMBEDDED_BYTES_MAX
    stripe_bytes: int = limits.INDEX_STRIPE_BYTES_MAX
    stripes_inline: int = limits.INDEX_STRIPES_INLINE_MAX
    segment_stripes: int = limits.INDEX_SEGMENT_STRIPES_MAX
    block_entries: int = limits.INDEX_BLOCK_ENTRIES
    block_bytes: int = limits.INDEX_BLOCK_BYTES

    def embedded_of(self, striped_bytes: int) -> int:
        """Return the number of bytes that may be embedded before a spill.

        Every commit writes the embedded page, on average half of this limit, and every spill
        rewrites the stripes. The sum of both costs is minimal if the limit grows with the square
        root of the stripes.
        """
        best = math.isqrt(2 * limits.INDEX_ENTRY_BYTES * striped_bytes)
        return min(self.embedded_bytes, max(limits.INDEX_EMBEDDED_BYTES_MIN, best))

    @property
    def entry_bytes(self) -> int:
        """Largest size of an embedded entry."""
        return self.embedded_bytes // 4

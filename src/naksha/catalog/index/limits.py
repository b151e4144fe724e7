"""The sizes at which an index is spilled, split and merged."""

from __future__ import annotations

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

    @property
    def entry_bytes(self) -> int:
        """A larger entry is never embedded."""
        return self.embedded_bytes // 4

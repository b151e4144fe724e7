"""Replacement of tombstones that hide lower features by tombstones that do not."""

from __future__ import annotations

from collections.abc import Sequence

from naksha.model.state import WriteOutcome
from naksha.spi.storage import WriteSession


async def unmask(
    session: WriteSession, collection: str, ids: Sequence[str], returning: bool = False
) -> list[WriteOutcome]:
    """Replace the tombstones of features; only the new tombstones are ever visible."""
    await session.restore(collection, ids)
    return await session.delete(collection, ids, masks=False, returning=returning)

"""Tombstones that hide what lies below, replaced by tombstones that do not."""

from __future__ import annotations

from collections.abc import Sequence

from naksha.model.state import Outcome
from naksha.spi.storage import WriteSession


async def unmask(
    session: WriteSession, collection: str, ids: Sequence[str], returning: bool = False
) -> list[Outcome]:
    """Replace the tombstones of features. Nothing but the new tombstones is visible of it."""
    await session.restore(collection, ids)
    return await session.delete(collection, ids, masks=False, returning=returning)

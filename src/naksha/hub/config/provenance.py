"""Provenance of a space's data: one entry per load.

    {"source": "https://example.org/roads.gpkg", "at": 1794787200000, "tool": "naksha load 1.0",
     "by": "importer", "counts": {"inserted": 120, "updated": 3, "deleted": 0, "failed": 1}}

`source` is required; `at` (epoch milliseconds) defaults to now, `by` is always set by the hub, and
other members are stored unchanged. The newest entry is last; beyond the limit, the oldest are
dropped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from naksha.hub.config.objects import Space, check_provenance
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.spi.clock import SystemClock


async def add_provenance(
    realm: ConfiguredRealm, space_id: str, entry: dict[str, Any], actor: Actor
) -> dict[str, Any]:
    """Append an entry and return it as stored. Concurrent loads each keep their entry."""
    stored = {"at": SystemClock().now_ms(), **entry, "by": actor.owner}
    check_provenance(stored, "provenance")

    def appended(space: Space) -> Space:
        kept = (*space.provenance, stored)[-limits.PROVENANCE_MAX :]
        return msgspec.structs.replace(space, provenance=kept, updated_at=space.updated_at + 1)

    await realm.registry.note(space_id, appended, actor)
    return stored

"""Scheduled deletion of collections (`deleteAt`), executed by maintenance when due."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from naksha.model.errors import CollectionNotFound, InUse, Retryable
from naksha.spi.storage import Storage, WriteSession

APP_ID: Final = "naksha"
"""App id of the transactions of maintenance."""
_log = logging.getLogger(__name__)


async def drop_due(storage: Storage, now_ms: int) -> None:
    """Drop live collections whose deletion is due; a collection guarded by a pin stays."""
    for info in await storage.collections():
        if not 0 < info.delete_at <= now_ms:
            continue
        try:
            await storage.run(partial(_drop, collection=info.id, now_ms=now_ms), APP_ID)
        except CollectionNotFound:
            continue
        except (InUse, Retryable) as error:
            _log.warning(
                "Collection %s is due for deletion but could not be dropped; will retry: %s",
                info.id,
                error.message,
            )


async def _drop(session: WriteSession, *, collection: str, now_ms: int) -> None:
    await session.close_gates([collection])
    info = await session.collection(collection)
    if 0 < info.delete_at <= now_ms:
        await session.drop_collection(collection, info.delete_at)

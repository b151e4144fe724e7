"""Collections whose deletion was scheduled (`deleteAt`), dropped by maintenance when it is due."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from naksha.model.errors import CollectionNotFound, InUse, Retryable
from naksha.spi.storage import Storage, WriteSession

APP_ID: Final = "naksha"
"""Signs the transactions of maintenance."""
_log = logging.getLogger(__name__)


async def drop_due(storage: Storage, now_ms: int) -> None:
    """Drop live collections whose time has come; one that a pin guards stays."""
    for info in await storage.collections():
        if not 0 < info.delete_at <= now_ms:
            continue
        try:
            await storage.run(partial(_drop, collection=info.id, now_ms=now_ms), APP_ID)
        except CollectionNotFound:
            continue
        except (InUse, Retryable) as error:
            _log.warning("The deletion of collection %s is due: %s", info.id, error.message)


async def _drop(session: WriteSession, *, collection: str, now_ms: int) -> None:
    await session.close_gates([collection])
    info = await session.collection(collection)
    if 0 < info.delete_at <= now_ms:
        await session.drop_collection(collection, info.delete_at)

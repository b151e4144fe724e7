"""One maintenance round of a storage with its tags."""

from __future__ import annotations

from functools import partial
from typing import Final

from naksha.spi.maintenance import StorageRound
from naksha.spi.storage import Storage
from naksha.versioning.records import Attribution
from naksha.versioning.tags import drop_expired_tags, expired_tags

_SIGNED: Final = Attribution(app_id="naksha")


async def maintain_storage(storage: Storage, record: StorageRound) -> None:
    """Run a round of a storage, and remove tags whose version has expired; see `record`."""
    await storage.maintain(record=record)
    await record.attempt("expired tags", partial(_drop_tags, storage, record))


async def _drop_tags(storage: Storage, record: StorageRound) -> None:
    if record.is_dry:
        count = len(await expired_tags(storage, in_all_spaces=True))
    else:
        count = await drop_expired_tags(storage, _SIGNED, in_all_spaces=True)
    if count:
        record.did("removal of %d tags whose version has expired", count)

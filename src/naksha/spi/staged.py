"""What storages have in common that apply staged writes: what is refused, and what is kept of a
write that was done, so that it is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.features import NAMESPACE
from naksha.model.names import check_app_id, check_author, check_collection_id, check_text
from naksha.spi.staging import Applied, StagedPart, StagedWrite, WriteMode

KIND: Final = "staged-write"
"""The kind of kept objects, whose ids are those of the jobs that were applied."""
MESSAGE: Final = "message"
"""The id of the message in the log; see `naksha.versioning.changesets`."""


def check_job(job: str) -> str:
    """An id that a job may have."""
    return check_text(job, limits.KEPT_ID_BYTES_MAX, field="job")


def check_staged_write(write: StagedWrite, parts: Sequence[StagedPart]) -> None:
    """Refuse what no storage could do."""
    check_job(write.job)
    check_collection_id(write.info.id, field="id")
    check_app_id(write.app_id)
    check_author(write.author)
    if write.message is not None:
        check_text(write.message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
    if (write.mode is WriteMode.REPLACE) != (write.key is not None):
        problem = "is needed to replace" if write.key is None else "is for mode 'replace' only"
        raise InvalidArgument(f"A key {problem}", field="key")
    if write.key is not None and (not all(write.key) or not write.key or NAMESPACE in write.key):
        raise InvalidArgument("The key is a path to a property of the feature", field="key")
    for part in parts:
        if part.job != write.job:
            raise InvalidArgument(f"A part is of job {part.job!r:.100}", field="parts")


def kept_of(applied: Applied, at_ms: int) -> dict[str, Any]:
    """What is kept of a write, and when it was done: it is forgotten some day."""
    return {
        "txn": None if applied.txn is None else str(applied.txn),
        "created": applied.created,
        "updated": applied.updated,
        "deleted": applied.deleted,
        "retained": applied.retained,
        "at": at_ms,
    }


def applied_of(kept: dict[str, Any]) -> Applied:
    """The write that it is kept of."""
    return Applied(
        None if kept["txn"] is None else int(kept["txn"]),
        created=kept["created"],
        updated=kept["updated"],
        deleted=kept["deleted"],
        retained=kept["retained"],
        repeated=True,
    )

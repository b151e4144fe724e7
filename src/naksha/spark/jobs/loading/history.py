"""Import of dated edit histories: every step becomes a transaction at its own time.

A file has one step per line, oldest first: `{"at": "2024-01-31", "put": [features],
"deleted": [ids], "message": "…"}`. `at` is a date, a time or epoch milliseconds. A step with
`features` instead of `put` is a complete snapshot, which deletes absent features. Files may be
compressed as `.gz` or `.bz2`.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Cancelled, InvalidArgument
from naksha.model.transaction import MAIN
from naksha.spark.jobs.frame import JobProgress
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.runtime.storage_cache import SharedStorage
from naksha.spi.staging import JOB, applied_there
from naksha.spi.storage import Storage
from naksha.versioning import Attribution, EditStep, ImportedStep, SnapshotStep, import_history
from naksha.versioning.history_import import TRANSACTIONS


class _HistoryLine(msgspec.Struct, forbid_unknown_fields=True):
    at: str | int
    put: list[dict[str, Any]] = []
    deleted: list[str] = []
    features: list[dict[str, Any]] | None = None
    message: str | None = None


def load_history(
    storage: SharedStorage, spec: Load, files: Sequence[str], progress: JobProgress
) -> Loaded:
    """Load dated steps.

    Files are read in this process: all steps are needed at once, and Spark would interpret some
    file names as lists or patterns.
    """
    steps: list[SnapshotStep | EditStep] = []
    progress.phase("read steps", len(files))
    for path in files:
        steps += _steps_of(Path(path))
        progress.advance()
    steps.sort(key=lambda step: step.at_ms)
    progress.phase("write versions", len(steps))
    done = storage.call(lambda s: _import(s, spec, steps, progress))
    changed = [each for each in done if each.txn is not None]
    return Loaded(
        collection=spec.collection,
        records=sum(_count(step) for step in steps),
        txn=changed[-1].txn if changed else None,
        created=sum(each.created for each in done),
        updated=sum(each.updated for each in done),
        deleted=sum(each.deleted for each in done),
        transactions=len(changed),
        repeated=len(done) < len(steps),
    )


def loaded_before(storage: SharedStorage, spec: Load) -> Loaded | None:
    """Return the recorded report of a load that was done before, if any."""
    kept = storage.call(lambda s: s.stored_object(JOB, spec.job_id))
    if kept is None:
        return None
    applied = applied_there(kept.value, spec.job_id, spec.collection, MAIN)
    return Loaded(
        collection=spec.collection,
        records=applied.created + applied.updated + applied.deleted,
        txn=applied.txn,
        created=applied.created,
        updated=applied.updated,
        deleted=applied.deleted,
        transactions=kept.value.get(TRANSACTIONS, 1),
        repeated=True,
    )


async def _import(
    storage: Storage, spec: Load, steps: Sequence[SnapshotStep | EditStep], progress: JobProgress
) -> list[ImportedStep]:
    left = len(steps)

    def report_step() -> None:
        nonlocal left
        left -= 1
        # After the last step all is written, so a cancellation is ignored.
        with nullcontext() if left else suppress(Cancelled):
            progress.advance()

    info = spec.info or CollectionInfo(id=spec.collection)
    signed = Attribution(spec.app_id, spec.author, spec.message)
    job = spec.job_id or None
    return await import_history(storage, info, steps, signed, job=job, after_each=report_step)


def _count(step: SnapshotStep | EditStep) -> int:
    return (
        len(step.features) if isinstance(step, SnapshotStep) else len(step.put) + len(step.deleted)
    )


def _steps_of(path: Path) -> list[SnapshotStep | EditStep]:
    try:
        with _unpacked(path) as file:
            lines = enumerate(file, 1)
            return [_step_of(f"{path.name}: line {n}", text) for n, text in lines if text.strip()]
    except (OSError, EOFError) as error:
        raise InvalidArgument(
            f"The file {path.name} cannot be read: {error}", field="files"
        ) from error


def _unpacked(path: Path) -> BufferedIOBase:
    if path.suffix == ".gz":
        return gzip.open(path)
    return bz2.open(path) if path.suffix == ".bz2" else path.open("rb")


def _step_of(where: str, text: bytes) -> SnapshotStep | EditStep:
    try:
        line = msgspec.json.decode(text, type=_HistoryLine)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"{where} is not a valid step of a history: {error}", field="files"
        ) from None
    at_ms = line.at if isinstance(line.at, int) else _epoch_ms(where, line.at)
    if line.features is not None:
        return SnapshotStep(at_ms, list(line.features), line.message)
    return EditStep(at_ms, list(line.put), line.deleted, line.message)


def _epoch_ms(where: str, text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{where}: {text!r:.64} is not a valid date or time", field="at"
        ) from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)

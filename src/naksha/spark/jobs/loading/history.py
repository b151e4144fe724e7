"""Dated edit histories: every step becomes a transaction of its own time.

A file has one step in each line, oldest first: `{"at": "2024-01-31", "put": [features],
"deleted": [ids], "message": "…"}`. `at` is a date, a time or epoch milliseconds; a step with
`features` in place of `put` is a whole snapshot, and what is absent there is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.frame import Progress
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import Opened
from naksha.spi.storage import Storage
from naksha.versioning import Edits, Imported, Signed, Snapshot, import_history


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    at: str | int
    put: list[dict[str, Any]] = []
    deleted: list[str] = []
    features: list[dict[str, Any]] | None = None
    message: str | None = None


def load_history(
    spark: SparkSession, storage: Opened, spec: Load, files: Sequence[str], progress: Progress
) -> Loaded:
    """Load dated steps, which Spark reads from whatever it can read text from."""
    table = spark.read.text(list(files))
    lines = watched(spark, progress, "read steps", lambda: [row.value for row in table.collect()])
    steps = sorted(
        (_step_of(n, line) for n, line in enumerate(lines, 1) if line.strip()),
        key=lambda step: step.at_ms,
    )
    progress.phase("write versions", len(steps))
    signed = Signed(spec.app_id, spec.author, spec.message)
    done: list[Imported] = []
    for step in steps:
        done += storage.call(partial(_import, spec.collection, step, signed))
        progress.advance()
    changed = [each for each in done if each.txn is not None]
    return Loaded(
        collection=spec.collection,
        records=sum(_count(step) for step in steps),
        txn=changed[-1].txn if changed else None,
        created=sum(each.created for each in done),
        updated=sum(each.updated for each in done),
        deleted=sum(each.deleted for each in done),
        transactions=len(changed),
    )


async def _import(
    collection: str, step: Snapshot | Edits, signed: Signed, storage: Storage
) -> list[Imported]:
    return await import_history(storage, CollectionInfo(id=collection), [step], signed)


def _count(step: Snapshot | Edits) -> int:
    return len(step.features) if isinstance(step, Snapshot) else len(step.put) + len(step.deleted)


def _step_of(number: int, text: str) -> Snapshot | Edits:
    try:
        line = msgspec.json.decode(text, type=_Line)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"Line {number} is no step of a history: {error}", field="files"
        ) from None
    at_ms = line.at if isinstance(line.at, int) else _epoch_ms(number, line.at)
    if line.features is not None:
        return Snapshot(at_ms, list(line.features), line.message)
    return Edits(at_ms, list(line.put), line.deleted, line.message)


def _epoch_ms(number: int, text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"Line {number}: {text!r:.64} is no time", field="at") from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)

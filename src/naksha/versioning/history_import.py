"""Import of an existing edit history with its true dates.

Every step becomes a transaction dated to its own time. The storage must not contain later ones, so
an import comes first, and a second import continues after the first.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument, Unavailable
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.spi.staging import JOB, AppliedWrite, record_of
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.changesets import MESSAGE
from naksha.versioning.records import Attribution
from naksha.versioning.state_writer import id_to_write, in_batches

Feature: TypeAlias = Mapping[str, Any]
TRANSACTIONS: Final = "transactions"
"""Key of a finished import's record: the number of transactions that it made."""
_PUBLICATION_SECONDS: Final = 1.0
"""Longest single wait for the publication of earlier transactions."""


class SnapshotStep(msgspec.Struct, frozen=True):
    """All features of a collection at a time; features that are absent are deleted then."""

    at_ms: int
    features: list[Feature]
    message: str | None = None


class EditStep(msgspec.Struct, frozen=True):
    """The changes at a time."""

    at_ms: int
    put: list[Feature] = []
    deleted: list[str] = []
    message: str | None = None


ImportStep: TypeAlias = SnapshotStep | EditStep


class ImportedStep(msgspec.Struct, frozen=True):
    """The result of a step: its transaction (None if it changed nothing) and its counts."""

    at_ms: int
    txn: int | None
    created: int
    updated: int
    deleted: int


async def import_history(
    storage: Storage,
    info: CollectionInfo,
    steps: Iterable[ImportStep] | AsyncIterable[ImportStep],
    signed: Attribution,
    *,
    job: str | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> list[ImportedStep]:
    """Load dated snapshots or edits into a collection, which the first step creates.

    A `job` that was interrupted continues after the last step that it completed. With the last step
    the storage records that the job is done, as for staged writes: from then on other clients may
    write, and repeating the job does nothing. `after_each` is called for every completed step,
    whether it was made now or before.

    Raises:
        InvalidArgument: A step is not later than the one before it, or not later than the last
            transaction of the storage.
        Unavailable: Earlier transactions were not published in time.
    """
    if job is not None and await storage.stored_object(JOB, job) is not None:
        return []
    # This must come first: it waits for earlier transactions, which are visible only afterwards.
    before = None if job is None else await _imported_until_ms(storage, job)
    ids, known = await _ids(storage, info.id)
    target = ImportTarget(info.id, None if known else info, (known or info).id_prefix or "")
    last: int | None = None
    number = 0
    done: list[ImportedStep] = []
    async for step, is_last in _with_end(_each(steps)):
        number += 1
        if last is not None and step.at_ms <= last:
            raise InvalidArgument(
                f"Step {number} of the import is dated {step.at_ms} ms, but the step before it"
                f" {last} ms; sort the steps by time",
                field="at_ms",
            )
        last = step.at_ms
        if before is None or step.at_ms > before:
            end = done if is_last else None
            done.append(await _import(storage, target, step, signed, ids, job, end))
            target = replace(target, new=None)
        after_each()
    return done


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The collection to load: the definition to create it from, if it is new, and its id prefix."""

    name: str
    new: CollectionInfo | None
    id_prefix: str

    def plain(self, id_: object) -> str:
        """Return an id as it is stored."""
        return str(id_).removeprefix(self.id_prefix)


async def _import(
    storage: Storage,
    target: ImportTarget,
    step: ImportStep,
    signed: Attribution,
    ids: set[str],
    job: str | None,
    before: Sequence[ImportedStep] | None,
) -> ImportedStep:
    """Execute one step and update `ids`, the ids of the collection, to the state after it.

    The last step receives the steps `before` it, to record the job as done.
    """
    put = step.features if isinstance(step, SnapshotStep) else step.put
    if any(feature.get("id") is None for feature in put):
        raise InvalidArgument(
            f"A feature of the step dated {step.at_ms} has no id; give every feature an id",
            field="id",
        )
    coming = {target.plain(feature["id"]) for feature in put}
    named = set() if isinstance(step, SnapshotStep) else {target.plain(id_) for id_ in step.deleted}
    gone = ids - coming if isinstance(step, SnapshotStep) else ids & named
    counts: dict[str, int] = {}

    def made(txn: int | None) -> ImportedStep:
        created, updated = counts.get("CREATED", 0), counts.get("UPDATED", 0)
        return ImportedStep(step.at_ms, txn, created, updated, len(gone))

    async def work(session: WriteSession) -> int | None:
        counts.clear()
        if target.new is not None:
            await session.create_collection(target.new)
        for part in in_batches(sorted(gone), lambda id_: id_):
            ids_ = [id_to_write(id_, target.id_prefix) for id_ in part]
            await session.delete(target.name, ids_)
        for features in in_batches(put, lambda feature: feature):
            for outcome in await session.upsert(target.name, features):
                counts[outcome.action] = counts.get(outcome.action, 0) + 1
        if session.txn is not None:
            await _add_attachments(session, {MESSAGE: step.message or signed.message, JOB: job})
        if job is not None and before is not None:
            await session.store_object(
                JOB, job, _record_of(target.name, [*before, made(session.txn)])
            )
        return session.txn

    txn = await storage.run(work, signed.app_id, signed.author, at_ms=step.at_ms)
    ids -= gone
    ids |= coming
    return made(txn)


async def _add_attachments(session: WriteSession, texts: Mapping[str, str | None]) -> None:
    """Add the messages that are not None to the transaction."""
    for kind, text in texts.items():
        if text is not None:
            await session.message(kind, text)


def _record_of(collection: str, steps: Sequence[ImportedStep]) -> dict[str, object]:
    """Return the record of a finished job.

    It is that of a staged write plus the number of transactions made.
    """
    made = [step.txn for step in steps if step.txn is not None]
    applied = AppliedWrite(
        txn=made[-1] if made else None,
        created=sum(step.created for step in steps),
        updated=sum(step.updated for step in steps),
        deleted=sum(step.deleted for step in steps),
        retained=0,
    )
    now_ms = time.time_ns() // 1_000_000
    return {**record_of(collection, MAIN, applied, now_ms), TRANSACTIONS: len(made)}


async def _imported_until_ms(storage: Storage, job: str) -> int | None:
    """Return the time of the last step of a job, if that is the storage's last transaction.

    Steps are dated in the past, so no other client can have written since such a step.
    """
    deadline = time.monotonic() + limits.IMPORT_PUBLICATION_SECONDS_MAX
    status = await storage.publication()
    while status.unpublished:
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"The import cannot continue: {status.unpublished} transactions wait for"
                f" publication, held back by {status.held_back_by or 'other writers'}; retry later"
            )
        await storage.wait_beyond(status.last_seq_number, _PUBLICATION_SECONDS)
        status = await storage.publication()
    if not status.last_txn:
        return None
    newest = await storage.transaction(status.last_txn)
    is_ours = any(signal.id == JOB and signal.text == job for signal in newest.signals)
    return newest.published_ms if is_ours else None


async def _ids(storage: Storage, collection: str) -> tuple[set[str], CollectionInfo | None]:
    """Return the ids that exist, and the collection, or None if it is yet to be created."""
    try:
        info = await storage.collection(collection)
        return {state.id async for state in storage.states(collection, Query())}, info
    except CollectionNotFound:
        return set(), None


async def _with_end(steps: AsyncIterable[ImportStep]) -> AsyncIterator[tuple[ImportStep, bool]]:
    """Iterate over the steps, each with whether it is the last one."""
    waiting: ImportStep | None = None
    async for step in steps:
        if waiting is not None:
            yield waiting, False
        waiting = step
    if waiting is not None:
        yield waiting, True


async def _each(
    steps: Iterable[ImportStep] | AsyncIterable[ImportStep],
) -> AsyncIterable[ImportStep]:
    if isinstance(steps, AsyncIterable):
        async for step in steps:
            yield step
        return
    for step in steps:
        yield step

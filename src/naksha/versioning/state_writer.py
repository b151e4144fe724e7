"""Writing features of the past (or of another branch) as new states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from naksha.model import limits
from naksha.model.errors import FeatureNotFound, Retryable
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.spi.storage import WriteSession
from naksha.spi.support.write_merge import content_of
from naksha.versioning.changesets import MESSAGE
from naksha.versioning.records import Undecided

WAIT_S: Final = 5.0
"""For a transaction that is committed but not published."""
PART_MAX: Final = 20_000
"""Features written at once."""
BYTES_PER_JSON_BYTE: Final = 8
"""A geometry is stored in binary form, where a short number is longer than in JSON: `[0,0],` is a
point of 29 bytes."""
Feature = dict[str, Any]
T = TypeVar("T")


class Write(msgspec.Struct, frozen=True):
    """A feature to write (None: to delete) over the state that is there now, if any.

    `origin` is the state that it came from, when that is to be remembered as `muuid`."""

    id: str
    head: State | None
    feature: Feature | None
    origin: str | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback, revert, merge or rebase wrote, or would write: ids by collection. `txn` is
    None for a dry run and when there was nothing to do."""

    txn: int | None
    created: dict[str, list[str]]
    updated: dict[str, list[str]]
    deleted: dict[str, list[str]]
    conflicts: tuple[Undecided, ...] = ()

    @property
    def count(self) -> int:
        """How many features."""
        parts = (self.created, self.updated, self.deleted)
        return sum(len(ids) for part in parts for ids in part.values())


Plan = dict[str, list[Write]]
"""What is to be written, by collection."""


async def write_all(session: WriteSession, collection: str, writes: Sequence[Write]) -> None:
    """Write; each over exactly the state that is given, else Conflict, or Retryable for a feature
    that somebody else created. What was deleted comes back from its tombstone."""
    if not writes:
        return
    prefix = (await session.collection(collection)).id_prefix
    for part in in_parts(writes, lambda write: write.feature):
        await _write(session, collection, part, prefix)


def as_written(id_: str, prefix: str | None) -> str:
    """The id to write a stored feature under: the prefix of the collection is cut off, also from an
    id that begins like it by itself."""
    return prefix + id_ if prefix and id_.startswith(prefix) else id_


async def _write(
    session: WriteSession, collection: str, writes: Sequence[Write], prefix: str | None
) -> None:
    gone = [write for write in writes if write.feature is None and write.head is not None]
    if gone:
        uuids = [None if write.head is None else write.head.uuid for write in gone]
        ids = [as_written(write.id, prefix) for write in gone]
        await session.delete(collection, ids, uuids=uuids)
    put = [write for write in writes if write.feature is not None]
    if not put:
        return
    restored = await _restore(session, collection, [w.id for w in put if w.head is None], prefix)
    features = [_locked(write, prefix) for write in put]
    outcomes = await session.upsert(collection, features, muuids=[w.origin for w in put])
    for write, outcome in zip(put, outcomes, strict=True):
        if write.head is None and write.id not in restored and outcome.action != "CREATED":
            raise Retryable(
                "The feature was created meanwhile", feature_id=write.id, collection_id=collection
            )


async def _restore(
    session: WriteSession, collection: str, ids: Sequence[str], prefix: str | None
) -> set[str]:
    """Bring back those that have a tombstone."""
    if not ids:
        return set()
    query = Query(ids=tuple(ids), states=States.DELETED)
    dead = [state.id async for state in session.states(collection, query)]
    if dead:
        try:
            await session.restore(collection, [as_written(id_, prefix) for id_ in dead])
        except FeatureNotFound as error:
            raise Retryable(
                "The feature came back meanwhile", feature_id=error.feature_id
            ) from error
    return set(dead)


def _locked(write: Write, prefix: str | None) -> Feature:
    assert write.feature is not None
    feature = {**write.feature, "id": as_written(write.id, prefix)}
    if write.head is None:
        return feature
    properties = dict(write.feature["properties"])
    properties[XYZ] = {**properties[XYZ], "uuid": write.head.uuid}
    return {**feature, "properties": properties}


def feature_of(content: Feature) -> Feature:
    """A feature to write from content as `content_of` gives it; tags and `crid` are said in any
    case, so that they become what they were."""
    properties = {**content["properties"], XYZ: content[XYZ]}
    return {**{k: v for k, v in content.items() if k != XYZ}, "properties": properties}


def as_it_was(state: State) -> Feature:
    """The feature of a state, to be written again."""
    return feature_of(content_of(state.feature))


def collections_of(planned: Plan) -> set[str]:
    """Those that something is written to."""
    return {name for name, writes in planned.items() if writes}


def in_parts(things: Iterable[T], feature: Callable[[T], Any]) -> Iterator[list[T]]:
    """Cut into parts that one call may write, by their number and by the bytes of what `feature`
    says is written for each."""
    part: list[T] = []
    size = 0
    for thing in things:
        bytes_ = _size(feature(thing))
        is_full = size + bytes_ > limits.WRITE_BYTES_MAX // BYTES_PER_JSON_BYTE
        if part and (is_full or len(part) == PART_MAX):
            yield part
            part, size = [], 0
        part.append(thing)
        size += bytes_
    if part:
        yield part


def _size(feature: Any) -> int:
    try:
        return len(msgspec.json.encode(feature))
    except (TypeError, ValueError, RecursionError):
        return 0  # It is no JSON, and the write will say where.


async def write_plan(session: WriteSession, planned: Plan, message: str) -> None:
    """Write all of it, and why."""
    for name, writes in planned.items():
        await write_all(session, name, writes)
    await session.message(MESSAGE, message)


def written_of(txn: int | None, planned: Plan) -> Written:
    """The report of what is planned or done."""
    created: dict[str, list[str]] = {}
    updated: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    for name, writes in planned.items():
        for write in writes:
            part = deleted if write.feature is None else created if write.head is None else updated
            part.setdefault(name, []).append(write.id)
    return Written(txn=txn, created=created, updated=updated, deleted=deleted)

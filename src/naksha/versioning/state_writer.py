"""Write features of the past, or of another branch, as new states."""

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
from naksha.versioning.records import UndecidedFeature

WAIT_S: Final = 5.0
"""Seconds to wait for the publication of a committed transaction."""
PART_MAX: Final = 20_000
"""Features written at once."""
_BYTES_PER_JSON_BYTE: Final = 8
"""Upper bound of stored bytes per JSON byte.

Geometries are stored in binary form, where a short number is longer than in JSON: `[0,0],` is a
point of 29 bytes.
"""
Feature = dict[str, Any]
T = TypeVar("T")


class StateWrite(msgspec.Struct, frozen=True):
    """A feature to write (None: to delete) over its current state, if any.

    `origin` is the state that it came from, if that is to be recorded as `muuid`.
    """

    id: str
    head: State | None
    feature: Feature | None
    origin: str | None = None


class WriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that a rollback, revert, merge or rebase wrote, or would write, by collection.

    `txn` is None for a dry run, and if there was nothing to write.
    """

    txn: int | None
    created: dict[str, list[str]]
    updated: dict[str, list[str]]
    deleted: dict[str, list[str]]
    conflicts: tuple[UndecidedFeature, ...] = ()

    @property
    def count(self) -> int:
        """The number of features."""
        parts = (self.created, self.updated, self.deleted)
        return sum(len(ids) for part in parts for ids in part.values())


Plan = dict[str, list[StateWrite]]
"""The writes by collection."""


async def _write_all(session: WriteSession, collection: str, writes: Sequence[StateWrite]) -> None:
    """Write features, each over exactly the given state.

    A deleted feature is restored from its tombstone.

    Raises:
        Conflict: A feature has another state by now.
        Retryable: Another client created the feature in the meantime.
    """
    if not writes:
        return
    prefix = (await session.resolve_collection(collection)).id_prefix
    for part in in_batches(writes, lambda write: write.feature):
        await _write(session, collection, part, prefix)


def id_to_write(id_: str, prefix: str | None) -> str:
    """Return the id under which to write a stored feature.

    The storage strips the prefix of the collection from every id, so an id that itself begins with
    the prefix must be given one more.
    """
    return prefix + id_ if prefix and id_.startswith(prefix) else id_


async def _write(
    session: WriteSession, collection: str, writes: Sequence[StateWrite], prefix: str | None
) -> None:
    gone = [write for write in writes if write.feature is None and write.head is not None]
    if gone:
        uuids = [None if write.head is None else write.head.uuid for write in gone]
        ids = [id_to_write(write.id, prefix) for write in gone]
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
                f"Feature {write.id!r} of collection {collection!r} was created concurrently;"
                " retry",
                feature_id=write.id,
                collection_id=collection,
            )


async def _restore(
    session: WriteSession, collection: str, ids: Sequence[str], prefix: str | None
) -> set[str]:
    """Restore those features that have a tombstone, and return their ids."""
    if not ids:
        return set()
    query = Query(ids=tuple(ids), states=States.DELETED)
    dead = [state.id async for state in session.states(collection, query)]
    if dead:
        try:
            await session.restore(collection, [id_to_write(id_, prefix) for id_ in dead])
        except FeatureNotFound as error:
            raise Retryable(
                f"Feature {error.feature_id!r} of collection {collection!r} was restored"
                " concurrently; retry",
                feature_id=error.feature_id,
            ) from error
    return set(dead)


def _locked(write: StateWrite, prefix: str | None) -> Feature:
    assert write.feature is not None
    feature = {**write.feature, "id": id_to_write(write.id, prefix)}
    if write.head is None:
        return feature
    properties = dict(write.feature["properties"])
    properties[XYZ] = {**properties[XYZ], "uuid": write.head.uuid}
    return {**feature, "properties": properties}


def feature_of(content: Feature) -> Feature:
    """Return the feature to write for content as returned by `content_of`.

    Tags and `crid` are always given, so that writing it also restores them.
    """
    properties = {**content["properties"], XYZ: content[XYZ]}
    return {**{k: v for k, v in content.items() if k != XYZ}, "properties": properties}


def feature_of_state(state: State) -> Feature:
    """Return the feature of a state, to be written again."""
    return feature_of(content_of(state.feature))


def collections_of(planned: Plan) -> set[str]:
    """Return the collections that a plan writes to."""
    return {name for name, writes in planned.items() if writes}


def in_batches(items: Iterable[T], feature: Callable[[T], Any]) -> Iterator[list[T]]:
    """Split items into batches that one call may write.

    Batches are limited by their number of items and by the bytes of `feature` of each item.
    """
    part: list[T] = []
    size = 0
    for thing in items:
        bytes_ = _size(feature(thing))
        is_full = size + bytes_ > limits.WRITE_BYTES_MAX // _BYTES_PER_JSON_BYTE
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
        return 0  # It is not JSON; the write reports the place.


async def write_plan(session: WriteSession, planned: Plan, message: str) -> None:
    """Write a plan and its commit message."""
    for name, writes in planned.items():
        await _write_all(session, name, writes)
    await session.message(MESSAGE, message)


def write_report(txn: int | None, planned: Plan) -> WriteReport:
    """Return the report of a planned or completed write."""
    created: dict[str, list[str]] = {}
    updated: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    for name, writes in planned.items():
        for write in writes:
            part = deleted if write.feature is None else created if write.head is None else updated
            part.setdefault(name, []).append(write.id)
    return WriteReport(txn=txn, created=created, updated=updated, deleted=deleted)

"""What handlers need that change writes on their way: ids, locks, and an answer in the order that
the client knows."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from naksha.hub.pipeline.requests import (
    IfExists,
    IfNotExists,
    Modification,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Deleted, Failure, Features, Notice, Written
from naksha.hub.write.failures import failure_of
from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument, LimitExceeded, NakshaError
from naksha.model.feature_problems import readable_id
from naksha.model.features import generate_ids
from naksha.model.state import XYZ, State

LOCKS: Final = ("uuid", "version")
"""What of the namespace says which state a feature was made from."""

Feature = dict[str, Any]
T = TypeVar("T", Failure, Notice)


# ---- Ids -------------------------------------------------------------------------------------


def check_objects(request: WriteFeatures) -> None:
    """InvalidArgument for what is no object, and so cannot be a feature either."""
    features: list[Any] = [each for one in request.modifications for each in one.features]
    for position, feature in enumerate(features):
        if not isinstance(feature, dict):
            raise InvalidArgument(
                f"must be a feature object, not {type(feature).__name__}",
                field=f"features[{position}]",
            )
        if not isinstance(feature.get("properties", {}), dict | type(None)):
            raise InvalidArgument(
                "must be an object", field="properties", feature_id=readable_id(feature.get("id"))
            )


def with_ids(request: WriteFeatures, *, everywhere: bool = False) -> WriteFeatures:
    """The same with the ids that the features will have: with the prefix, numbers as texts. Those
    without get one when there is a prefix, or `everywhere`."""
    check_objects(request)
    prefix = request.prefix_id

    def named(feature: Feature) -> Feature:
        id = feature.get("id")
        if isinstance(id, int) and not isinstance(id, bool):
            id = str(id)
        if id is None and (prefix or everywhere):
            id = generate_ids(1)[0]
        whole = prefix + id if isinstance(id, str) and id else id
        return feature if whole is feature.get("id") else {**feature, "id": whole}

    modifications = tuple(
        msgspec.structs.replace(
            one, features=tuple(map(named, one.features)), ids=tuple(prefix + i for i in one.ids)
        )
        for one in request.modifications
    )
    return msgspec.structs.replace(request, modifications=modifications, prefix_id="")


def ids_of(modification: Modification) -> Iterable[str]:
    """All ids that it is about, without those that are still to be made."""
    yield from modification.ids
    for feature in modification.features:
        if isinstance(feature.get("id"), str):
            yield feature["id"]


def all_ids_of(request: WriteFeatures) -> list[str]:
    """The same of all modifications, each once."""
    return list(dict.fromkeys(id for one in request.modifications for id in ids_of(one)))


class Order:
    """Where each id of a request stands: features and ids counted through, in each modification
    the features first."""

    def __init__(self, request: WriteFeatures) -> None:
        names = [
            id
            for one in request.modifications
            for id in (*(feature.get("id") for feature in one.features), *one.ids)
        ]
        self._places = {id: at for at, id in reversed([*enumerate(names)]) if isinstance(id, str)}

    def ids(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Ids as they come in the request, those that it does not have at the end."""
        end = len(self._places)
        return tuple(sorted({*ids}, key=lambda id: (self._places.get(id, end), id)))

    def placed(self, report: T) -> T:
        """A report about a feature, at the position that it has in the request."""
        return msgspec.structs.replace(report, position=self._places.get(report.id or ""))


# ---- Failures --------------------------------------------------------------------------------


class Refusals:
    """What went wrong with a write that is carried out in parts. Where not all must go right, the
    other parts go on; when nothing was done at all, the first error is that of the request."""

    def __init__(self, request: WriteFeatures) -> None:
        self._is_strict = request.transactional
        self._first: NakshaError | None = None
        self.failed: list[Failure] = []

    def add(self, error: NakshaError) -> None:
        """Remember an error of a feature, or of all features of a part; or raise it."""
        if self._is_strict:
            raise error
        self._first = self._first or error
        self.failed += error.failures or [failure_of(error)]

    async def of(self, part: Awaitable[Written]) -> Written:
        """What a part did; nothing, if it failed in all of its features."""
        try:
            return await part
        except NakshaError as error:
            if not error.failures:
                raise
            self.add(error)
            return Written()

    def check(self, written: Written) -> Written:
        """The answer, unless nothing but failures is in it."""
        done = (written.inserted, written.updated, written.deleted, written.retained)
        if self._first is not None and not any(done):
            self._first.failures = written.failed
            self._first.position = written.failed[0].position
            raise self._first
        return written


# ---- Locks -----------------------------------------------------------------------------------


def namespace_of(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    """The namespace that a feature came with."""
    properties = feature.get("properties")
    found = properties.get(XYZ) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def says(feature: Feature, state: State) -> bool:
    """Whether a feature says that it was made from a state."""
    said = namespace_of(feature)
    named = [name for name in LOCKS if said.get(name) is not None]
    return bool(named) and all(said[name] == state.xyz.get(name) for name in named)


def changed_since(state: State) -> Conflict:
    """The error of a feature that does not."""
    return Conflict(
        "The feature was changed since it was read, or does not say the version that it had; look"
        " at the head that is given here",
        feature_id=state.id,
        head=state.feature,
    )


def unlocked(feature: Feature) -> Feature:
    """Without what says which state it was made from: where it is written, that is none."""
    given = namespace_of(feature)
    if not any(name in given for name in LOCKS):
        return feature
    kept = {name: value for name, value in given.items() if name not in LOCKS}
    return {**feature, "properties": {**feature["properties"], XYZ: kept}}


def with_lock(feature: Feature, state: State) -> Feature:
    """With the state that must still be there when it is written."""
    namespace = {**namespace_of(feature), "uuid": state.uuid}
    return {**feature, "properties": {**(feature.get("properties") or {}), XYZ: namespace}}


# ---- What a query finds ----------------------------------------------------------------------


async def deletion_of(found: Features, message: str | None) -> WriteFeatures:
    """The deletion of all features of an answer, as one write."""
    ids: list[str] = []
    async with aclosing(found):
        async for states in found:
            ids += [state.id for state in states]
            if len(ids) > limits.WRITE_FEATURES_MAX:
                raise LimitExceeded(
                    f"Here at most {limits.WRITE_FEATURES_MAX} features are deleted at once; do it"
                    " in several parts",
                    field="query",
                )
    one = Modification(ids=tuple(ids), if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN)
    return WriteFeatures(modifications=(one,), message=message, returning=False)


def deleted_by(written: Written) -> Deleted:
    """What such a write did."""
    return Deleted(
        count=len(written.deleted),
        ids=written.deleted[: limits.DELETED_IDS_MAX],
        txn=written.txn,
        version=written.version,
    )

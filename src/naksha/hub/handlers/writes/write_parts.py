"""Building blocks for handlers that change writes: ids, locks, and responses in request order."""

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
from naksha.model.value_text import value_text

LOCKS: Final = ("uuid", "version")
"""Members of the namespace that name the state a feature is based on."""

Feature = dict[str, Any]
T = TypeVar("T", Failure, Notice)


# ---- Ids -------------------------------------------------------------------------------------


def check_objects(request: WriteFeatures) -> None:
    """Raise InvalidArgument for features, or their properties, that are not JSON objects."""
    features: list[Any] = [each for one in request.modifications for each in one.features]
    for position, feature in enumerate(features):
        if not isinstance(feature, dict):
            raise InvalidArgument(
                f"A feature must be a JSON object, not {value_text(feature)}",
                field=f"features[{position}]",
            )
        if not isinstance(feature.get("properties", {}), dict | type(None)):
            raise InvalidArgument(
                f"The properties of a feature must be a JSON object, not "
                f"{value_text(feature['properties'])}",
                field="properties",
                feature_id=readable_id(feature.get("id")),
            )


def with_ids(request: WriteFeatures, *, everywhere: bool = False) -> WriteFeatures:
    """Return the write with final ids: with the prefix, and numbers as text.

    Features without an id get one if there is a prefix, or with `everywhere`.
    """
    check_objects(request)
    prefix = request.prefix_id

    def named(feature: Feature) -> Feature:
        id = feature.get("id")
        if isinstance(id, int) and not isinstance(id, bool):
            id = str(id)
        if id is None and (prefix or everywhere):
            id = generate_ids(1)[0]
        prefixed = prefix + id if isinstance(id, str) and id else id
        return feature if prefixed is feature.get("id") else {**feature, "id": prefixed}

    modifications = tuple(
        msgspec.structs.replace(
            one, features=tuple(map(named, one.features)), ids=tuple(prefix + i for i in one.ids)
        )
        for one in request.modifications
    )
    return msgspec.structs.replace(request, modifications=modifications, prefix_id="")


def ids_of(modification: Modification) -> Iterable[str]:
    """Yield the ids of a modification, without those that are still to be generated."""
    yield from modification.ids
    for feature in modification.features:
        if isinstance(feature.get("id"), str):
            yield feature["id"]


def all_ids_of(request: WriteFeatures) -> list[str]:
    """Return the ids of all modifications, each once."""
    return list(dict.fromkeys(id for one in request.modifications for id in ids_of(one)))


class ResponseOrder:
    """Position of each id in a request, over all modifications, in each the features first."""

    def __init__(self, request: WriteFeatures) -> None:
        names = [
            id
            for one in request.modifications
            for id in (*(feature.get("id") for feature in one.features), *one.ids)
        ]
        self._places = {id: at for at, id in reversed([*enumerate(names)]) if isinstance(id, str)}

    def ids(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Sort ids by their position in the request, unknown ids last."""
        end = len(self._places)
        return tuple(sorted({*ids}, key=lambda id: (self._places.get(id, end), id)))

    def positioned(self, report: T) -> T:
        """Return the report with the position of its feature in the request."""
        return msgspec.structs.replace(report, position=self._places.get(report.id or ""))


# ---- Failures --------------------------------------------------------------------------------


class WriteErrors:
    """Errors of a write that is carried out in parts.

    A transactional write raises the first error. Otherwise the other parts continue, and the first
    error is raised at the end if nothing was written at all.
    """

    def __init__(self, request: WriteFeatures) -> None:
        self._is_strict = request.transactional
        self._first: NakshaError | None = None
        self.failed: list[Failure] = []

    def add(self, error: NakshaError) -> None:
        """Record an error of a feature or of a whole part; raise it in a transactional write."""
        if self._is_strict:
            raise error
        self._first = self._first or error
        self.failed += error.failures or [failure_of(error)]

    async def of(self, part: Awaitable[Written]) -> Written:
        """Return the result of a part; empty if all of its features failed."""
        try:
            return await part
        except NakshaError as error:
            if not error.failures:
                raise
            self.add(error)
            return Written()

    def check(self, written: Written) -> Written:
        """Return the response, or raise the first error if every feature failed."""
        done = (written.inserted, written.updated, written.deleted, written.retained)
        if self._first is not None and not any(done):
            self._first.failures = written.failed
            self._first.position = written.failed[0].position
            raise self._first
        return written


# ---- Locks -----------------------------------------------------------------------------------


def namespace_of(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the namespace that was sent with a feature."""
    properties = feature.get("properties")
    found = properties.get(XYZ) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def names_state(feature: Feature, state: State) -> bool:
    """Whether the feature names this state as its base, by uuid or version."""
    namespace = namespace_of(feature)
    named = [name for name in LOCKS if namespace.get(name) is not None]
    return bool(named) and all(namespace[name] == state.xyz.get(name) for name in named)


def changed_since(state: State) -> Conflict:
    """Return the error for a feature that is not based on the current state."""
    return Conflict(
        f"Feature {state.id!r:.64} was changed since it was read, or was sent without the uuid or "
        "version of its base; merge it with the head in this error",
        feature_id=state.id,
        head=state.feature,
    )


def unlocked(feature: Feature) -> Feature:
    """Remove the base uuid and version, which are meaningless where the feature is now written."""
    namespace = namespace_of(feature)
    if not any(name in namespace for name in LOCKS):
        return feature
    kept = {name: value for name, value in namespace.items() if name not in LOCKS}
    return {**feature, "properties": {**feature["properties"], XYZ: kept}}


def with_lock(feature: Feature, state: State) -> Feature:
    """Lock a feature to a state that must still be current when it is written."""
    namespace = {**namespace_of(feature), "uuid": state.uuid}
    return {**feature, "properties": {**(feature.get("properties") or {}), XYZ: namespace}}


# ---- Deletion by query -----------------------------------------------------------------------


async def deletion_of(found: Features, message: str | None) -> WriteFeatures:
    """Return one write that deletes all features of a response."""
    ids: list[str] = []
    async with aclosing(found):
        async for states in found:
            ids += [state.id for state in states]
            if len(ids) > limits.WRITE_FEATURES_MAX:
                raise LimitExceeded(
                    f"The query matches more than {limits.WRITE_FEATURES_MAX} features, the limit "
                    "of one deletion here; delete them in several requests",
                    field="query",
                )
    one = Modification(ids=tuple(ids), if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN)
    return WriteFeatures(modifications=(one,), message=message, returning=False)


def deleted_by(written: Written) -> Deleted:
    """Return the response to a deletion that was carried out as a write."""
    return Deleted(
        count=len(written.deleted),
        ids=written.deleted[: limits.DELETED_IDS_MAX],
        txn=written.txn,
        version=written.version,
    )

"""Validation of features against a JSON Schema and geometry rules before they are stored.

    {"schema": {"properties": {"properties": {"required": ["name"]}}},
     "geometry": {"types": ["Point"], "within": [5, 47, 16, 55]},
     "mode": "reject"}

In the mode `reject` (the default) an invalid feature is refused with all its violations; in the
mode `report` it is stored, and the response lists the violations. A patch is validated as the
whole feature that it results in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from naksha.hub.handlers.geometry_checks import GeometryRules
from naksha.hub.handlers.json_schema import FeatureSchema
from naksha.hub.handlers.passthrough import Feature
from naksha.hub.handlers.writes.head_writes import (
    Heads,
    check_merges,
    with_patches_applied,
    write_over_heads,
)
from naksha.hub.handlers.writes.write_parts import ResponseOrder, with_ids
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Failure, Written
from naksha.hub.write.namespaces import without_namespace
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import readable_id

_REJECT: Final = "reject"
REPORT: Final = "report"
_UNWRITTEN: Final = (IfExists.DELETE,)
_SHOWN: Final = 3
"""Number of violations of the first feature in an error message."""


class RuleViolation(NamedTuple):
    """A rule that a feature breaks, and where."""

    id: str | None
    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message}"


Found = dict[str | None, list[RuleViolation]]
"""Violations by feature id."""


class ValidationHandler:
    """Handler that validates every written feature."""

    metric_name: ClassVar[str] = "ValidationHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._schema: FeatureSchema | None = None
        self._geometry: GeometryRules | None = None
        if "schema" in properties:
            self._schema = FeatureSchema(properties["schema"], "properties.schema")
        if "geometry" in properties:
            self._geometry = GeometryRules(properties["geometry"], "properties.geometry")
        if self._schema is None and self._geometry is None:
            raise InvalidArgument(
                "A connector of the class 'validation' needs properties.schema or "
                "properties.geometry",
                field="properties",
            )
        self._mode = properties.get("mode", _REJECT)
        if self._mode not in (_REJECT, REPORT):
            raise InvalidArgument(
                f"properties.mode is {self._mode!r:.40}; it must be {_REJECT!r} or {REPORT!r}",
                field="properties.mode",
            )

    async def process(self, event: Event) -> Any:
        if not isinstance(event.request, WriteFeatures):
            return await event.send_upstream()
        return await self._write(event, with_ids(event.request, everywhere=True))

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        """Write valid features; only patched features are read first, all others are sent whole."""
        await check_merges(event, request)
        patched = [one for one in request.modifications if one.if_exists is IfExists.PATCH]
        ids = {f["id"] for one in patched for f in one.features if isinstance(f["id"], str)}
        found: Found = {}

        async def change(heads: Heads) -> WriteFeatures:
            found.clear()
            patched = with_patches_applied(request, heads)
            # Validation is slow, so it must not block the event loop.
            await asyncio.to_thread(self._validate, patched, found)
            return self._left(patched, found, request)

        written = await write_over_heads(event, request, ids, change)
        return self._with_violations(written, found, request)

    def _validate(self, request: WriteFeatures, found: Found) -> None:
        """Collect all violations in `found`."""
        for one in request.modifications:
            if one.if_exists in _UNWRITTEN:
                continue
            for feature in one.features:
                broken = list(islice(self._violations(feature), limits.VIOLATIONS_PER_FEATURE_MAX))
                if broken:
                    found.setdefault(readable_id(feature.get("id")), []).extend(broken)

    def _left(self, patched: WriteFeatures, found: Found, request: WriteFeatures) -> WriteFeatures:
        """Return the write that remains, or raise in the mode `reject`."""
        if not found or self._mode == REPORT:
            return patched
        if request.transactional or _is_all_of(patched, found):
            raise _refusal(found, ResponseOrder(request))
        return _without(patched, found)

    def _violations(self, feature: Feature) -> Iterator[RuleViolation]:
        id = readable_id(feature.get("id"))
        plain = without_namespace(feature)
        if self._schema is not None:
            try:
                for path, message in self._schema.problems(plain):
                    yield RuleViolation(id, "schema", path, message[: limits.VIOLATION_LENGTH_MAX])
            except RecursionError:
                yield RuleViolation(
                    id, "schema", "", "the feature is nested too deeply to be validated; flatten it"
                )
        if self._geometry is not None:
            for rule, message in self._geometry.problems(plain):
                yield RuleViolation(
                    id, f"geometry.{rule}", "/geometry", message[: limits.VIOLATION_LENGTH_MAX]
                )

    def _with_violations(
        self,
        written: Written,
        found: Mapping[str | None, Sequence[RuleViolation]],
        request: WriteFeatures,
    ) -> Written:
        if not found:
            return written
        every = [one for broken in found.values() for one in broken]
        if self._mode == REPORT:
            reported = tuple(one._asdict() for one in every[: limits.VIOLATIONS_MAX])
            return msgspec.structs.replace(written, violations=(*written.violations, *reported))
        order = ResponseOrder(request)
        failed = (*written.failed, *_failures(found))
        return msgspec.structs.replace(written, failed=tuple(map(order.positioned, failed)))


def _failures(found: Mapping[str | None, Sequence[RuleViolation]]) -> list[Failure]:
    return [
        Failure(
            id=id,
            position=None,
            message="; ".join(map(str, broken)),
            code=InvalidArgument.code,
            field=broken[0].path or None,
        )
        for id, broken in islice(found.items(), limits.VIOLATIONS_MAX)
    ]


def _refusal(
    found: Mapping[str | None, Sequence[RuleViolation]], order: ResponseOrder
) -> InvalidArgument:
    id, broken = next(iter(found.items()))
    more = f" (and {len(found) - 1} more features)" if len(found) > 1 else ""
    error = InvalidArgument(
        f"The feature violates rules of this space: {'; '.join(map(str, broken[:_SHOWN]))}{more}",
        field=broken[0].path or None,
        feature_id=id,
    )
    error.failures = tuple(map(order.positioned, _failures(found)))
    error.position = error.failures[0].position
    return error


def _is_all_of(request: WriteFeatures, found: Mapping[str | None, Any]) -> bool:
    return all(
        not one.ids and all(readable_id(f.get("id")) in found for f in one.features)
        for one in request.modifications
    )


def _without(request: WriteFeatures, found: Mapping[str | None, Any]) -> WriteFeatures:
    def kept(one: Modification) -> Modification:
        if one.if_exists in _UNWRITTEN:
            return one
        features = tuple(f for f in one.features if readable_id(f.get("id")) not in found)
        return msgspec.structs.replace(one, features=features)

    modifications = [kept(one) for one in request.modifications]
    left = tuple(one for one in modifications if one.features or one.ids)
    return msgspec.structs.replace(request, modifications=left)

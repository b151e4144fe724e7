"""The client's part of the namespace `@ns:com:here:xyz`.

It consists of tags, the client's own reference id, and the uuid or version that the feature is
based on. All other members belong to the storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX
from naksha.model.state import CONFLICTING, XYZ
from naksha.model.tags import normalise_tags
from naksha.model.value_text import value_text

PLACE: Final = f"properties.{XYZ}"
Feature = dict[str, Any]


class SentNamespace(NamedTuple):
    """The client's part of the namespace; None for missing members."""

    uuid: str | None = None
    version: int | None = None
    members: Mapping[str, Any] = {}
    """The whole namespace as sent."""


_EMPTY: Final = SentNamespace()


def sent_namespace_of(feature: Feature) -> SentNamespace:
    """Parse the namespace of a feature.

    Raises:
        InvalidArgument: A member has the wrong type.
    """
    properties = feature.get("properties")
    if properties is None:
        return _EMPTY
    if not isinstance(properties, dict):
        raise InvalidArgument(
            f"properties must be a JSON object, not {value_text(properties)}",
            field="properties",
        )
    members = properties.get(XYZ)
    if members is None:
        return _EMPTY
    if not isinstance(members, dict):
        raise InvalidArgument(
            f"The namespace @ns:com:here:xyz must be a JSON object, not {value_text(members)}",
            field=PLACE,
        )
    uuid, version = members.get("uuid"), members.get("version")
    if uuid is not None and not isinstance(uuid, str):
        raise InvalidArgument(
            f"uuid in @ns:com:here:xyz must be a string, not {value_text(uuid)}",
            field=f"{PLACE}.uuid",
        )
    if version is not None and not _is_version(version):
        raise InvalidArgument(
            f"version in @ns:com:here:xyz must be an integer in 0..{INT8_MAX}, not "
            f"{value_text(version)}",
            field=f"{PLACE}.version",
        )
    return SentNamespace(uuid, version, members)


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT8_MAX


def without_namespace(feature: Feature) -> Feature:
    """Return the feature without its namespace, with properties in any case."""
    properties = {**(feature.get("properties") or {})}
    properties.pop(XYZ, None)
    return {**feature, "properties": properties}


def with_namespace(feature: Feature, namespace: Mapping[str, Any]) -> Feature:
    """Return the feature with another namespace, and without the mark of a conflict."""
    properties = feature.get("properties")
    if properties is not None and not isinstance(properties, dict):
        raise InvalidArgument(
            f"properties must be a JSON object, not {value_text(properties)}",
            field="properties",
        )
    written = {**feature, "properties": {**(properties or {}), XYZ: {**namespace}}}
    written.pop(CONFLICTING, None)
    return written


class TagChange:
    """Tags that a request adds to all features, and then those that it removes."""

    def __init__(self, add: Sequence[str], remove: Sequence[str]) -> None:
        self._add = _normalised(add, "addTags")
        self._remove = frozenset(_normalised(remove, "removeTags"))

    def __bool__(self) -> bool:
        return bool(self._add or self._remove)

    def of(self, tags: Sequence[str]) -> list[str]:
        """Apply the change to some tags."""
        both = dict.fromkeys((*tags, *self._add))
        return [tag for tag in both if tag not in self._remove]


def tags_in(members: Mapping[str, Any], default: Sequence[str]) -> list[str]:
    """Return the normalised tags of a namespace: none for null, `default` if not given."""
    if "tags" not in members:
        return list(default)
    return _normalised(members["tags"] or (), f"{PLACE}.tags")


def _normalised(tags: Sequence[str], field: str) -> list[str]:
    try:
        return normalise_tags(tags)
    except InvalidArgument as error:
        error.field = f"{field}{(error.field or '').removeprefix('tags')}"
        raise

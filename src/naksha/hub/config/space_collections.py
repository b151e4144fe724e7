"""Mapping from spaces to the collections that they are stored in."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, NamedTuple

from naksha.hub.config.objects import Space
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.identity.names import check_collection_id
from naksha.model.value_text import value_text

_UNFIT: Final = re.compile(r"[^a-z0-9_]+")
_SLUG_MAX: Final = 15
_DIGEST_LENGTH: Final = 12
_DERIVED: Final = re.compile(rf"s-.*-[0-9a-f]{{{_DIGEST_LENGTH}}}")


class SpaceCollection(NamedTuple):
    """A collection that a space is stored in."""

    storage_id: str
    collection: CollectionInfo
    """The collection's id and configured settings."""
    is_own: bool
    """Whether its id is derived from the space, not named in the configuration."""
    auto_create: bool = True
    """Whether the hub creates it with the space or on the first write."""
    auto_delete: bool = True
    """Whether the hub drops it with the last space that is stored in it."""

    @property
    def place(self) -> tuple[str, str]:
        """The storage id and collection id, unique in the realm."""
        return self.storage_id, self.collection.id


def scope_of(realm_id: str, space_id: str) -> str:
    """Return the scope of a space's tag and branch names.

    It includes the realm: spaces of several realms may have the same id in the same storage.
    """
    return f"{realm_id}/{space_id}"


def derived_collection_id(space_id: str, salt: str = "") -> str:
    """Derive a collection id from a space id.

    It is the space id where that is a valid collection id, else a slug of it with a digest, which
    no other space gets. A space id that itself looks like a slug with a digest is not used
    unchanged, else it could be the collection of another space. A salt selects a different id.
    """
    if not salt and not _DERIVED.fullmatch(space_id):
        try:
            return check_collection_id(space_id)
        except InvalidArgument:
            pass
    slug = _UNFIT.sub("-", space_id.lower()).strip("-_")[:_SLUG_MAX]
    digest = hashlib.sha256(f"{salt}{space_id}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"s-{slug}-{digest}"


def collection_of(space: Space, properties: dict[str, Any]) -> CollectionInfo:
    """Return a space's collection with the settings for its creation.

    The connector's `collection` takes precedence over the space's; without either, the space has
    its own collection.
    """
    configured = _collection_settings(space, properties)
    keeps = space.versions_to_keep is None or space.versions_to_keep > 1
    return CollectionInfo(
        id=check_collection_id(
            configured.get("id") or space.collection_id or derived_collection_id(space.id),
            field="properties.collection.id",
        ),
        history_enabled=_flag(configured, "historyEnabled", keeps),
        max_age=_days(configured),
        id_prefix=_text(configured, "idPrefix"),
        author=_text(configured, "author"),
        optimal_partitioning=_flag(configured, "optimalPartitioning", False),
        points_only=_flag(configured, "pointsOnly", False),
        partitions=_partitions(configured),
    )


def space_collection(space: Space, storage_id: str, properties: dict[str, Any]) -> SpaceCollection:
    """Return a space's collection together with its storage."""
    return SpaceCollection(
        storage_id,
        collection_of(space, properties),
        is_own=not _collection_settings(space, properties).get("id"),
        auto_create=_flag(properties, "autoCreateCollection", True, "properties"),
        auto_delete=_flag(properties, "autoDeleteCollection", True, "properties"),
    )


def collection_missing(id: str) -> CollectionNotFound:
    """Return the error for a missing collection that must not be created automatically."""
    return CollectionNotFound(
        f"The collection {id!r} does not exist, and the connector's autoCreateCollection is false;"
        " create the collection or set autoCreateCollection to true",
        collection_id=id,
    )


def _collection_settings(space: Space, properties: dict[str, Any]) -> dict[str, Any]:
    configured = properties.get("collection") or space.properties.get("collection") or {}
    if isinstance(configured, str):
        return {"id": configured}
    if not isinstance(configured, dict):
        raise InvalidArgument(
            "properties.collection must be an id or an object with an id, not "
            f"{value_text(configured)}",
            field="properties.collection",
        )
    return configured


def _flag(
    configured: dict[str, Any], name: str, default: bool, at: str = "properties.collection"
) -> bool:
    value = configured.get(name, default)
    if not isinstance(value, bool):
        raise InvalidArgument(
            f"{at}.{name} must be true or false, not {value!r:.40}", field=f"{at}.{name}"
        )
    return value


def _text(configured: dict[str, Any], name: str) -> str | None:
    value = configured.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(
            f"properties.collection.{name} must be a string, not {value_text(value)}",
            field=f"properties.collection.{name}",
        )
    return value


def _days(configured: dict[str, Any]) -> int:
    days = configured.get("maxAge", CollectionInfo(id="a").max_age)
    if not isinstance(days, int) or isinstance(days, bool) or days < 0:
        raise InvalidArgument(
            f"properties.collection.maxAge is {days!r:.40}; it must be a number of days, 0 or more",
            field="properties.collection.maxAge",
        )
    return days


def _partitions(configured: dict[str, Any]) -> int:
    partitions = configured.get("partitions", 1)
    if isinstance(partitions, bool) or partitions not in (1, 16):
        raise InvalidArgument(
            f"properties.collection.partitions is {partitions!r:.40}; it must be 1 or 16",
            field="properties.collection.partitions",
        )
    return int(partitions)

"""Which collection a space is stored in."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from naksha.hub.objects import Space
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.names import check_collection_id

_UNFIT: Final = re.compile(r"[^a-z0-9_]+")
_SLUG_MAX: Final = 15
_DIGEST_LENGTH: Final = 12


def derived_collection_id(space_id: str) -> str:
    """The collection of a space: its own id where that fits, else something like it that no other
    space gets."""
    try:
        return check_collection_id(space_id)
    except InvalidArgument:
        slug = _UNFIT.sub("-", space_id.lower()).strip("-_")[:_SLUG_MAX]
        digest = hashlib.sha256(space_id.encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"s-{slug}-{digest}"


def collection_of(space: Space, properties: dict[str, Any]) -> CollectionInfo:
    """The collection, with the settings that it is created with: what the connector says, else
    what the space says, else one of the space's own."""
    told = properties.get("collection") or space.properties.get("collection") or {}
    if isinstance(told, str):
        told = {"id": told}
    if not isinstance(told, dict):
        raise InvalidArgument("It is an id or an object with an id", field="properties.collection")
    id = told.get("id") or derived_collection_id(space.id)
    keeps = space.versions_to_keep is None or space.versions_to_keep > 1
    return CollectionInfo(
        id=check_collection_id(id, field="properties.collection.id"),
        history_enabled=bool(told.get("historyEnabled", keeps)),
        max_age=int(told.get("maxAge", CollectionInfo(id="a").max_age)),
        id_prefix=told.get("idPrefix"),
        author=told.get("author"),
        optimal_partitioning=bool(told.get("optimalPartitioning", False)),
        points_only=bool(told.get("pointsOnly", False)),
    )

"""What the requests of a stored space are about."""

from __future__ import annotations

from typing import NamedTuple

from naksha.model.collection import CollectionInfo
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Reader, Storage
from naksha.versioning import Scope, place_of


class Target(NamedTuple):
    """A collection, and the storage that it is in."""

    storage: Storage
    collection: CollectionInfo
    """With the settings that it gets when it is created."""
    scope: Scope
    """Where tags and branches of the space have their names."""
    auto_create: bool = True
    """Whether the first write makes the collection."""


async def place(target: Target, ref: str) -> tuple[Reader, VersionSelector]:
    """Where to read what a version reference means."""
    if not ref or ref == "HEAD":
        return target.storage, HEAD
    found = await place_of(target.storage, ref, target.scope)
    return found.storage, found.at

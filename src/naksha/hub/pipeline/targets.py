"""Targets of requests: a space's collection, its storage, and the version to read."""

from __future__ import annotations

from typing import NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.hub.pipeline.requests import GetVersion
from naksha.hub.pipeline.responses import FixedVersion
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.version import HEAD, AtSeq, Head, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.versioning import Line, NameScope, parse_ref, place_of
from naksha.versioning.lines import line_on
from naksha.versioning.records import MAIN_LAYERS
from naksha.versioning.version_refs import MAIN_BRANCH, SingleRef


class CollectionTarget(NamedTuple):
    """The collection of a stored space, with its storage."""

    storage: Storage
    collection: CollectionInfo
    """The collection, with the settings for its creation."""
    scope: NameScope
    """The scope of the space's tag and branch names."""
    min_version: int = 0
    """Oldest readable version: the owner of the space gave up all earlier ones."""
    auto_create: bool = True
    """Whether the first write creates the collection."""
    storage_id: str = ""
    """The storage's id in the realm."""
    dateline: Dateline = Dateline.SPLIT
    """Handling of geometries that cross the date line."""


class ResolvedTarget(NamedTuple):
    """A collection at the version that a request reads."""

    target: CollectionTarget
    reader: StorageReader
    """The storage, or a branch of it."""
    at: VersionSelector
    version: FixedVersion | None
    """The version; None for HEAD, which moves."""

    @property
    def collection_id(self) -> str:
        """Id of the collection."""
        return self.target.collection.id

    async def check_version(self) -> None:
        """Raise VersionNotFound for a missing version when the collection itself does not exist."""
        if not isinstance(self.at, Head):
            await self.target.storage.resolve(self.at)


async def resolve(target: CollectionTarget, ref: str) -> ResolvedTarget:
    """Resolve a version reference.

    A version of main that is named by its number is not looked up: reading it raises an error if it
    does not exist.
    """
    parsed = parse_ref(ref)
    if isinstance(parsed, SingleRef) and parsed.branch == MAIN_BRANCH:
        if isinstance(parsed.point, Head):
            return ResolvedTarget(target, target.storage, HEAD, None)
        if isinstance(parsed.point, AtSeq):
            main = line_on(target.storage, MAIN_BRANCH, MAIN_LAYERS)
            fixed = _fixed(target, main, parsed.point.seq_number)
            return ResolvedTarget(target, target.storage, parsed.point, fixed)
    place = await place_of(target.storage, parsed, target.scope)
    is_head = isinstance(place.at, Head)
    version = None if is_head else _fixed(target, place.line, place.version.seq_number)
    return ResolvedTarget(target, place.storage, place.at, version)


async def fixed_version(target: CollectionTarget, request: GetVersion) -> FixedVersion | None:
    """Look up the version of a reference; None if it means HEAD."""
    if request.ref in ("", "HEAD") and not request.published:
        return None
    place = await place_of(target.storage, request.ref, target.scope)
    if isinstance(place.at, Head) and not request.published:
        return None
    return _fixed(target, place.line, place.version.seq_number)


def _fixed(target: CollectionTarget, line: Line, seq_number: int) -> FixedVersion:
    check_kept_by_owner(target, seq_number)
    layers = ",".join(f"{layer.overlay}@{layer.txn}" for layer in line.layers)
    return FixedVersion(
        ref=f"{line.name}:{seq_number}",
        line=f"{target.storage.number}/{target.collection.id}/{layers}",
        seq_number=seq_number,
    )


def check_kept_by_owner(target: CollectionTarget, seq_number: int) -> None:
    """Raise Expired for versions that the owner gave up; 0, the empty version, stays readable."""
    if 0 < seq_number < target.min_version:
        raise Expired(
            f"Version {seq_number} was given up by the owner of the space; the oldest readable "
            f"version is {target.min_version}",
            oldest=target.min_version,
            collection_id=target.collection.id,
        )

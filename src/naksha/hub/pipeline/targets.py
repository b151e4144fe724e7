"""Targets of requests: a space's collection, storage, and the version to read."""

from __future__ import annotations

from typing import NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.hub.pipeline.requests import GetVersion
from naksha.hub.pipeline.responses import FixedVersion
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.version import HEAD, AtSeq, Head, VersionSelector
from naksha.spi.storage import Reader, Storage
from naksha.versioning import NameScope, parse_ref, place_of
from naksha.versioning.version_refs import MAIN_BRANCH, SingleRef


class Target(NamedTuple):
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


async def place(target: Target, ref: str) -> tuple[Reader, VersionSelector]:
    """Resolve a version reference to a reader and a version selector."""
    if not ref or ref == "HEAD":
        return target.storage, HEAD
    number = _number_on_main(ref)
    if number is not None:
        # The storage resolves it when it reads, and raises an error if it does not exist.
        check_kept_by_owner(target, number.seq_number)
        return target.storage, number
    found = await place_of(target.storage, ref, target.scope)
    check_kept_by_owner(target, found.version.seq_number)
    return found.storage, found.at


def _number_on_main(ref: str) -> AtSeq | None:
    parsed = parse_ref(ref)
    if isinstance(parsed, SingleRef) and parsed.branch == MAIN_BRANCH:
        return parsed.point if isinstance(parsed.point, AtSeq) else None
    return None


async def check_version(target: Target, at: VersionSelector) -> None:
    """Raise VersionNotFound for a missing version when the collection itself does not exist."""
    if not isinstance(at, Head):
        await target.storage.resolve(at)


def check_kept_by_owner(target: Target, seq_number: int) -> None:
    """Raise Expired for versions that the owner gave up; 0, the empty version, stays readable."""
    if 0 < seq_number < target.min_version:
        raise Expired(
            f"Version {seq_number} was given up by the owner of the space; the oldest readable "
            f"version is {target.min_version}",
            oldest=target.min_version,
            collection_id=target.collection.id,
        )


async def fixed_version(target: Target, request: GetVersion) -> FixedVersion | None:
    """Resolve a reference to a fixed version; None if it means HEAD."""
    if request.ref in ("", "HEAD") and not request.published:
        return None
    found = await place_of(target.storage, request.ref, target.scope)
    if isinstance(found.at, Head) and not request.published:
        return None
    check_kept_by_owner(target, found.version.seq_number)
    layers = ",".join(f"{layer.overlay}@{layer.txn}" for layer in found.line.layers)
    return FixedVersion(
        ref=f"{found.line.name}:{found.version.seq_number}",
        line=f"{target.storage.number}/{target.collection.id}/{layers}",
        seq_number=found.version.seq_number,
    )

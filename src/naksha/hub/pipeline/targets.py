"""What the requests of a stored space are about."""

from __future__ import annotations

from typing import NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.hub.pipeline.requests import GetVersion
from naksha.hub.pipeline.responses import FixedVersion
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.version import HEAD, AtSeq, Head, VersionSelector
from naksha.spi.storage import Reader, Storage
from naksha.versioning import Scope, parse_ref, place_of
from naksha.versioning.version_refs import MAIN_BRANCH, One


class Target(NamedTuple):
    """A collection, and the storage that it is in."""

    storage: Storage
    collection: CollectionInfo
    """With the settings that it gets when it is created."""
    scope: Scope
    """Where tags and branches of the space have their names."""
    min_version: int = 0
    """Older versions were given up by the owner of the space."""
    auto_create: bool = True
    """Whether the first write makes the collection."""
    storage_id: str = ""
    """What the realm calls the storage."""
    dateline: Dateline = Dateline.SPLIT
    """What is done with geometries that cross the date line."""


async def place(target: Target, ref: str) -> tuple[Reader, VersionSelector]:
    """Where to read what a version reference means."""
    if not ref or ref == "HEAD":
        return target.storage, HEAD
    number = _number_on_main(ref)
    if number is not None:
        # The storage looks it up when it reads, and says so if there is no such version.
        check_kept_by_owner(target, number.seq_number)
        return target.storage, number
    found = await place_of(target.storage, ref, target.scope)
    check_kept_by_owner(target, found.version.seq_number)
    return found.storage, found.at


def _number_on_main(ref: str) -> AtSeq | None:
    parsed = parse_ref(ref)
    if isinstance(parsed, One) and parsed.branch == MAIN_BRANCH:
        return parsed.point if isinstance(parsed.point, AtSeq) else None
    return None


async def check_version(target: Target, at: VersionSelector) -> None:
    """What is said of a version where there is nothing to read: that it is not there either."""
    if not isinstance(at, Head):
        await target.storage.resolve(at)


def check_kept_by_owner(target: Target, seq_number: int) -> None:
    """Expired for what the owner of the space gave up; 0 is before everything, and stays."""
    if 0 < seq_number < target.min_version:
        raise Expired(
            f"Version {seq_number} was given up; the oldest one is {target.min_version}",
            oldest=target.min_version,
            collection_id=target.collection.id,
        )


async def fixed_version(target: Target, request: GetVersion) -> FixedVersion | None:
    """The version that a reference means; None if it means the present."""
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

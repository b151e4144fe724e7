"""Targets of requests: a space's collection, its storage, and the version to read."""

from __future__ import annotations

from typing import NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.hub.pipeline.requests import GetVersion
from naksha.hub.pipeline.responses import FixedVersion
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.version import HEAD, AtSeq, Head, Version, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.versioning import Line, NameScope, Place, parse_ref
from naksha.versioning.lines import RefResolver, line_on
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

    def resolver(self) -> RefResolver:
        """Return a resolver of the references in one request."""
        return RefResolver(self.storage, self.scope)


class ResolvedTarget(NamedTuple):
    """A collection at the version that a request reads."""

    target: CollectionTarget
    line: Line
    """Main or a branch."""
    at: VersionSelector
    """HEAD or AtSeq."""
    found: Version | None = None
    """The version, the last published one for HEAD, if it was looked up."""

    @classmethod
    def of(cls, target: CollectionTarget, place: Place) -> ResolvedTarget:
        """Return the collection at a version that was looked up."""
        return cls(target, place.line, place.at, place.version)

    @property
    def collection_id(self) -> str:
        """Id of the collection."""
        return self.target.collection.id

    @property
    def reader(self) -> StorageReader:
        """The storage, or a branch of it."""
        return self.line.reader

    @property
    def version(self) -> Version:
        """The version of a target that was looked up."""
        assert self.found is not None, "the version was not looked up"
        return self.found

    @property
    def place(self) -> Place:
        """The version of a target that was looked up, for functions of `naksha.versioning`."""
        return Place(self.line, self.version, self.at)

    @property
    def fixed(self) -> FixedVersion | None:
        """The version as clients name it; None for HEAD, which moves."""
        return _fixed(self, self.at.seq_number) if isinstance(self.at, AtSeq) else None

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
            return ResolvedTarget(target, _main(target), HEAD)
        if isinstance(parsed.point, AtSeq):
            check_kept_by_owner(target, parsed.point.seq_number)
            return ResolvedTarget(target, _main(target), parsed.point)
    resolved = ResolvedTarget.of(target, await target.resolver().place(parsed))
    if not isinstance(resolved.at, Head):
        check_kept_by_owner(target, resolved.version.seq_number)
    return resolved


async def fixed_version(target: CollectionTarget, request: GetVersion) -> FixedVersion | None:
    """Look up the version of a reference; None if it means HEAD."""
    if request.ref in ("", "HEAD") and not request.published:
        return None
    resolved = ResolvedTarget.of(target, await target.resolver().place(request.ref))
    if isinstance(resolved.at, Head) and not request.published:
        return None
    check_kept_by_owner(target, resolved.version.seq_number)
    return _fixed(resolved, resolved.version.seq_number)


def _main(target: CollectionTarget) -> Line:
    return line_on(target.storage, MAIN_BRANCH, MAIN_LAYERS)


def _fixed(resolved: ResolvedTarget, seq_number: int) -> FixedVersion:
    line, number = resolved.line, resolved.target.storage.number
    layers = ",".join(f"{layer.overlay}@{layer.txn}" for layer in line.layers)
    return FixedVersion(
        ref=f"{line.name}:{seq_number}",
        line=f"{number}/{resolved.collection_id}/{layers}",
        seq_number=seq_number,
    )


def check_kept_by_owner(target: CollectionTarget, seq_number: int) -> None:
    """Raise Expired for versions that the owner gave up; 0, the empty version, stays readable."""
    if 0 < seq_number < target.min_version:
        raise Expired(
            f"Version {seq_number} was removed from the space by its owner; read version "
            f"{target.min_version} or a later one",
            oldest=target.min_version,
            collection_id=target.collection.id,
        )

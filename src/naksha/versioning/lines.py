"""Lines (main and branches), and places: versions on a line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from naksha.model.errors import InvalidArgument, NotFound, NotSupported, VersionNotFound
from naksha.model.identity.uuids import TYPE_TRANSACTION, Uuid
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq, AtTxn, Head, Version, VersionSelector
from naksha.spi.storage import BranchLayer, Storage, StorageReader, WriteSession
from naksha.versioning.records import (
    MAIN_LAYERS,
    STORAGE,
    Branch,
    BranchEpoch,
    NameScope,
    StoredRecord,
    Tag,
    all_records,
    find_record,
    no_branch,
)
from naksha.versioning.version_refs import (
    MAIN_BRANCH,
    NamedRef,
    Point,
    RangeRef,
    Ref,
    SingleRef,
    UuidRef,
    parse_ref,
)


@dataclass(frozen=True, slots=True)
class Line:
    """Main or a branch, now or on a former base.

    `storage` reads and writes the line like any storage; `root` is the storage without branches.
    `session` is the session that the line is read in, if any: there no other client can change what
    is read.
    """

    name: str
    root: Storage
    storage: Storage
    layers: tuple[BranchLayer, ...]
    branch: Branch | None
    session: WriteSession | None = None
    number: int | None = None
    """Number of the branch that the line was named by; None for main.

    It stays when the branch is renamed. It is set even if `branch` is None: at a version before its
    own ones a branch is identical to its parent, and a tag stores only the layers.
    """

    @property
    def reader(self) -> StorageReader:
        """The reader of the line: its storage, or the session."""
        return self.storage if self.session is None else self.session.on_branch(self.layers)

    def read_in(self, session: WriteSession | None) -> Line:
        """Return the same line, read in a session."""
        return replace(self, session=session)

    @property
    def overlay(self) -> int:
        """The number of the overlay that receives writes."""
        return self.layers[0].overlay

    @property
    def overlays(self) -> tuple[int, ...]:
        """All overlays that the line was ever written to, on any base; its log covers these."""
        if self.branch is None:
            return (self.overlay,)
        return tuple(epoch.overlay for epoch in self.branch.epochs)


@dataclass(frozen=True, slots=True)
class Place:
    """A version on a line.

    For HEAD, `at` is HEAD and `version` is the last published version.
    """

    line: Line
    version: Version
    at: VersionSelector

    @property
    def storage(self) -> StorageReader:
        return self.line.reader

    def read_in(self, session: WriteSession | None) -> Place:
        """Return the same place, read in a session."""
        return replace(self, line=self.line.read_in(session))


async def line_of(storage: Storage, name: str, scope: NameScope = STORAGE) -> Line:
    """Return the line of main or of a branch."""
    return await RefResolver(storage, scope).line(name)


def line_of_branch(storage: Storage, branch: Branch, epoch: BranchEpoch | None = None) -> Line:
    """Return a branch as it is now, or as it was on a former base."""
    return line_on(storage, branch.name, (epoch or branch.now).layers, branch)


async def _line_at(storage: Storage, branch: Branch, txn: int) -> Line:
    """Return a branch as it was at a transaction, on the base that it had then.

    Before its first transaction, a branch is identical to its parent.
    """
    epoch = branch.epoch_at(txn)
    base = epoch.below[0]
    if epoch is branch.epochs[0] and txn <= (base.txn or 0):
        for known in await all_records(storage):
            record = known.record
            if isinstance(record, Branch) and base.overlay in [e.overlay for e in record.epochs]:
                line = await _line_at(storage, record, txn)
                return line_on(storage, branch.name, line.layers, number=branch.number)
        layers = (BranchLayer(base.overlay, None), *epoch.below[1:])
        return line_on(storage, branch.name, layers, number=branch.number)
    return line_of_branch(storage, branch, epoch)


def line_on(
    storage: Storage,
    name: str,
    layers: tuple[BranchLayer, ...],
    branch: Branch | None = None,
    *,
    number: int | None = None,
) -> Line:
    """Return the line of these layers."""
    if branch is not None:
        number = branch.number
    if layers[0].overlay == MAIN:
        return Line(name, storage, storage, MAIN_LAYERS, None, number=number)
    scope = None if branch is None else branch.scope.collections
    return Line(name, storage, storage.on_branch(layers, scope), layers, branch, number=number)


async def place_of(storage: Storage, ref: Ref | str, scope: NameScope = STORAGE) -> Place:
    """Return the single version that a reference selects."""
    return await RefResolver(storage, scope).place(ref)


async def range_of(
    storage: Storage, ref: Ref | str, scope: NameScope = STORAGE
) -> tuple[Place, Place]:
    """Return the two versions that enclose the changes which a reference selects.

    A single version selects the changes that it made itself.
    """
    return await RefResolver(storage, scope).range(ref)


async def place_before(place: Place) -> Place:
    """Return the previous version; a branch may have been on another base then."""
    line, version = place.line, await place.line.root.resolve(AtSeq(place.version.seq_number - 1))
    if line.branch is not None:
        line = await _line_at(line.root, line.branch, version.txn)
    return Place(line, version, AtSeq(version.seq_number))


async def at(line: Line, selector: VersionSelector) -> Place:
    """Return a version on a line."""
    return _place_at(line, selector, await line.reader.resolve(selector))


def _place_at(line: Line, selector: VersionSelector, version: Version) -> Place:
    fixed = HEAD if isinstance(selector, Head) else AtSeq(version.seq_number)
    return Place(line, version, fixed)


async def check_protectable(place: Place, scope: NameScope) -> None:
    """Raise an error unless all collections of a scope can keep a version from expiring.

    Raises:
        NotSupported: A collection has no history.
        Expired: The version is no longer kept.
    """
    for info in await place.storage.collections():
        if not scope.covers(info.id):
            continue
        if not info.history_enabled:
            raise NotSupported(
                f"The versions of collection {info.id!r} cannot be protected, because it keeps no"
                " history; enable its history, or exclude it from the scope",
                collection_id=info.id,
            )
        if place.version.seq_number > 0:
            await place.storage.resolve(AtSeq(place.version.seq_number), info.id)


def visible_txns(place: Place) -> list[tuple[int, int]]:
    """Return (overlay, last visible transaction) of each layer, main first.

    Nothing is visible beyond the version, so layers that began later are left out.
    """
    last = place.version.txn
    found = [
        (layer.overlay, last if layer.txn is None else min(layer.txn, last))
        for layer in reversed(place.line.layers)
    ]
    while len(found) > 1 and found[-2][1] == last:
        found.pop()
    return found


def _line_of_tag(storage: Storage, tag: Tag) -> Line:
    """Return the branch of a tag as it was then."""
    return line_on(storage, tag.branch, tag.layers, number=tag.branch_number)


async def place_of_tag(storage: Storage, tag: Tag) -> Place:
    """Return the version that a tag names, on the branch as it was then."""
    return await at(_line_of_tag(storage, tag), AtSeq(tag.version.seq_number))


class RefResolver:
    """Resolves references to versions of a storage, and looks up each name and version once.

    Use it for one call: names and HEAD move.
    """

    def __init__(self, storage: Storage, scope: NameScope = STORAGE) -> None:
        self._storage = storage
        self._scope = scope
        self._records: dict[str, StoredRecord | None] = {}
        self._versions: dict[VersionSelector, Version] = {}

    async def record(self, name: str) -> Tag | Branch | None:
        """Return the tag or branch with this name."""
        if name not in self._records:
            self._records[name] = await find_record(self._storage, self._scope, name)
        known = self._records[name]
        return None if known is None else known.record

    async def branch(self, name: str) -> Branch:
        """Return the branch with this name, else raise NotFound."""
        record = await self.record(name)
        if not isinstance(record, Branch):
            raise no_branch(name)
        return record

    async def version(self, selector: VersionSelector) -> Version:
        """Return the version of a selector; the last published one for HEAD."""
        if selector not in self._versions:
            version = await self._storage.resolve(selector)
            self._versions[selector] = self._versions[AtSeq(version.seq_number)] = version
        return self._versions[selector]

    async def line(self, name: str) -> Line:
        """Return the line of main or of a branch."""
        if name == MAIN_BRANCH:
            return line_on(self._storage, name, MAIN_LAYERS)
        return line_of_branch(self._storage, await self.branch(name))

    async def place(self, ref: Ref | str) -> Place:
        """Return the single version that a reference selects."""
        parsed = parse_ref(ref) if isinstance(ref, str) else ref
        if not isinstance(parsed, SingleRef):
            given = f"the range {ref!r:.64}" if isinstance(ref, str) else "a range"
            raise InvalidArgument(
                f"A reference to one version is required, not {given}", field="versionRef"
            )
        return await self._place(parsed.branch, parsed.point)

    async def range(self, ref: Ref | str) -> tuple[Place, Place]:
        """Return the two versions that enclose the changes which a reference selects."""
        parsed = parse_ref(ref) if isinstance(ref, str) else ref
        if isinstance(parsed, RangeRef):
            return (
                await self._place(parsed.branch, parsed.first),
                await self._place(parsed.branch, parsed.last),
            )
        if isinstance(parsed, SingleRef):
            last = await self._place(parsed.branch, parsed.point)
            if last.version.seq_number == 0:
                return last, last
            return await place_before(last), last
        line = await self.line(parsed.branch)
        return await self._at(line, AtSeq(0)), await self._at(line, HEAD)

    async def _at(self, line: Line, selector: VersionSelector) -> Place:
        return _place_at(line, selector, await self.version(selector))

    async def _place(self, branch: str, point: Point) -> Place:
        if isinstance(point, NamedRef):
            return await self._named(branch, point.name)
        selector = AtTxn(await self._txn_of(point)) if isinstance(point, UuidRef) else point
        line = await self.line(branch)
        if line.branch is None or isinstance(selector, Head):
            return await self._at(line, selector)
        version = await self.version(selector)
        line = await _line_at(self._storage, line.branch, version.txn)
        return Place(line, version, AtSeq(version.seq_number))

    async def _named(self, branch: str, name: str) -> Place:
        record = await self.record(name)
        if record is None:
            raise NotFound(f"Tag or branch {name!r} does not exist", field="versionRef")
        if isinstance(record, Branch):
            if branch != MAIN_BRANCH:
                raise InvalidArgument(
                    f"{name!r} is a branch and cannot follow another branch name; use {name!r} "
                    "alone, or with a version after it",
                    field="versionRef",
                )
            return await self._at(line_of_branch(self._storage, record), HEAD)
        tagged = await self._at(
            _line_of_tag(self._storage, record), AtSeq(record.version.seq_number)
        )
        if branch != MAIN_BRANCH:
            await self._check_on(tagged, record, branch)
        return tagged

    async def _check_on(self, tagged: Place, tag: Tag, branch: str) -> None:
        """Reject a tag of another branch whose version is not part of this one.

        The version with the same number has different contents on this branch.
        """
        here = await self._place(branch, AtSeq(tag.version.seq_number))
        if visible_txns(here) != visible_txns(tagged):
            raise InvalidArgument(
                f"Tag {tag.name!r} is a version of {tag.branch!r} that is not part of {branch!r};"
                f" use '{MAIN_BRANCH}:{tag.name}' to refer to it",
                field="versionRef",
            )

    async def _txn_of(self, point: UuidRef) -> int:
        identity, found = self._storage.identity, Uuid.parse(point.uuid)
        if found.type == TYPE_TRANSACTION:
            return identity.txn_of(point.uuid)
        if not identity.knows(found):
            raise VersionNotFound(
                f"The id {point.uuid} belongs to another storage; use an id of this storage"
            )
        return (await self._storage.state(point.uuid)).txn

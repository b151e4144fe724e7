"""Where versions are: lines (main and branches) and places on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from naksha.model.errors import InvalidArgument, NotFound, NotSupported, VersionNotFound
from naksha.model.identity.uuids import TYPE_TRANSACTION, Uuid
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq, AtTxn, Head, Version, VersionSelector
from naksha.spi.storage import Layer, Reader, Storage, WriteSession
from naksha.versioning.records import (
    MAIN_LAYERS,
    STORAGE,
    Branch,
    Epoch,
    Scope,
    Tag,
    branch_of,
    everywhere,
    find,
)
from naksha.versioning.version_refs import (
    MAIN_BRANCH,
    AtUuid,
    Named,
    One,
    Point,
    Range,
    Ref,
    parse_ref,
)


@dataclass(frozen=True, slots=True)
class Line:
    """Main or a branch, now or on a former base; `storage` reads and writes it like any storage,
    `root` is the one without branches. `session` is the one that it is read in, if any: there
    nobody else changes what is read."""

    name: str
    root: Storage
    storage: Storage
    layers: tuple[Layer, ...]
    branch: Branch | None
    session: WriteSession | None = None
    number: int | None = None
    """That of the branch which it is called by, whatever its name is now; None for main. At a
    version before its own ones a branch is what it was made from, and a tag knows the layers
    only."""

    @property
    def reader(self) -> Reader:
        """Where it is read."""
        return self.storage if self.session is None else self.session.on_branch(self.layers)

    def read_in(self, session: WriteSession | None) -> Line:
        """The same, read in a session."""
        return replace(self, session=session)

    @property
    def overlay(self) -> int:
        """The number of the overlay that its writes go to."""
        return self.layers[0].overlay

    @property
    def overlays(self) -> tuple[int, ...]:
        """All that it was ever written to, on whatever base: what its log is about."""
        if self.branch is None:
            return (self.overlay,)
        return tuple(epoch.overlay for epoch in self.branch.epochs)


@dataclass(frozen=True, slots=True)
class Place:
    """A version on a line. For HEAD `at` says so, and `version` is the last published one."""

    line: Line
    version: Version
    at: VersionSelector

    @property
    def storage(self) -> Reader:
        return self.line.reader

    def read_in(self, session: WriteSession | None) -> Place:
        """The same, read in a session."""
        return replace(self, line=self.line.read_in(session))


async def line_of(storage: Storage, name: str, scope: Scope = STORAGE) -> Line:
    """Main, or a branch."""
    if name == MAIN_BRANCH:
        return line_on(storage, name, MAIN_LAYERS)
    branch, _ = await branch_of(storage, scope, name)
    return line_of_branch(storage, branch)


def line_of_branch(storage: Storage, branch: Branch, epoch: Epoch | None = None) -> Line:
    """A branch as it is now, or as it was on a former base."""
    return line_on(storage, branch.name, (epoch or branch.now).layers, branch)


async def line_then(storage: Storage, branch: Branch, txn: int) -> Line:
    """A branch as it was at a transaction: on the base that it had then; before its first one it
    is what it was made from."""
    epoch = branch.epoch_at(txn)
    base = epoch.below[0]
    if epoch is branch.epochs[0] and txn <= (base.txn or 0):
        for known in await everywhere(storage):
            record = known.record
            if isinstance(record, Branch) and base.overlay in [e.overlay for e in record.epochs]:
                line = await line_then(storage, record, txn)
                return line_on(storage, branch.name, line.layers, number=branch.number)
        layers = (Layer(base.overlay, None), *epoch.below[1:])
        return line_on(storage, branch.name, layers, number=branch.number)
    return line_of_branch(storage, branch, epoch)


def line_on(
    storage: Storage,
    name: str,
    layers: tuple[Layer, ...],
    branch: Branch | None = None,
    *,
    number: int | None = None,
) -> Line:
    """A line of these layers."""
    if branch is not None:
        number = branch.number
    if layers[0].overlay == MAIN:
        return Line(name, storage, storage, MAIN_LAYERS, None, number=number)
    scope = None if branch is None else branch.scope.collections
    return Line(name, storage, storage.on_branch(layers, scope), layers, branch, number=number)


async def place_of(storage: Storage, ref: Ref | str, scope: Scope = STORAGE) -> Place:
    """The one version that is meant."""
    parsed = parse_ref(ref) if isinstance(ref, str) else ref
    if not isinstance(parsed, One):
        raise InvalidArgument("One version is needed, not a range", field="versionRef")
    return await _place(storage, parsed.branch, parsed.point, scope)


async def range_of(storage: Storage, ref: Ref | str, scope: Scope = STORAGE) -> tuple[Place, Place]:
    """The two versions between which the changes are that are meant; one version alone means what
    it changed itself."""
    parsed = parse_ref(ref) if isinstance(ref, str) else ref
    if isinstance(parsed, Range):
        return (
            await _place(storage, parsed.branch, parsed.first, scope),
            await _place(storage, parsed.branch, parsed.last, scope),
        )
    if isinstance(parsed, One):
        last = await _place(storage, parsed.branch, parsed.point, scope)
        if last.version.seq_number == 0:
            return last, last
        return await place_before(last), last
    line = await line_of(storage, parsed.branch, scope)
    return await at(line, AtSeq(0)), await at(line, HEAD)


async def place_before(place: Place) -> Place:
    """One version earlier; a branch may have been on another base then."""
    line, version = place.line, await place.line.root.resolve(AtSeq(place.version.seq_number - 1))
    if line.branch is not None:
        line = await line_then(line.root, line.branch, version.txn)
    return Place(line, version, AtSeq(version.seq_number))


async def at(line: Line, selector: VersionSelector) -> Place:
    """A version on a line."""
    version = await line.reader.resolve(selector)
    fixed = HEAD if isinstance(selector, Head) else AtSeq(version.seq_number)
    return Place(line, version, fixed)


async def check_protectable(place: Place, scope: Scope) -> None:
    """What is to be protected must still be there, and go on being kept."""
    for info in await place.storage.collections():
        if not scope.covers(info.id):
            continue
        if not info.history_enabled:
            raise NotSupported(
                "A collection without history cannot be protected; switch its history on, or leave"
                " it out of the scope",
                collection_id=info.id,
            )
        if place.version.seq_number > 0:
            await place.storage.resolve(AtSeq(place.version.seq_number), info.id)


async def _place(storage: Storage, branch: str, point: Point, scope: Scope) -> Place:
    if isinstance(point, Named):
        return await _named(storage, branch, point.name, scope)
    selector = AtTxn(await _txn_of(storage, point)) if isinstance(point, AtUuid) else point
    if branch == MAIN_BRANCH:
        return await at(await line_of(storage, branch), selector)
    record, _ = await branch_of(storage, scope, branch)
    if isinstance(selector, Head):
        return await at(line_of_branch(storage, record), HEAD)
    version = await storage.resolve(selector)
    line = await line_then(storage, record, version.txn)
    return Place(line, version, AtSeq(version.seq_number))


async def _named(storage: Storage, branch: str, name: str, scope: Scope) -> Place:
    known = await find(storage, scope, name)
    if known is None:
        raise NotFound(f"There is no tag or branch {name!r}", field="versionRef")
    if isinstance(known.record, Branch):
        if branch != MAIN_BRANCH:
            raise InvalidArgument(f"{name!r} is a branch, not a version", field="versionRef")
        return await at(line_of_branch(storage, known.record), HEAD)
    tagged = await place_of_tag(storage, known.record)
    if branch != MAIN_BRANCH:
        await _check_on(tagged, known.record, branch, scope)
    return tagged


async def _check_on(tagged: Place, tag: Tag, branch: str, scope: Scope) -> None:
    """Refuse a tag of another branch: the version with its number has something else on this
    one."""
    here = await _place(tagged.line.root, branch, AtSeq(tag.version.seq_number), scope)
    if seen_at(here) != seen_at(tagged):
        raise InvalidArgument(
            f"Tag {tag.name!r} is a version of {tag.branch!r} that {branch!r} has not in it; say"
            f" '{MAIN_BRANCH}:{tag.name}' if that one is meant",
            field="versionRef",
        )


def seen_at(place: Place) -> list[tuple[int, int]]:
    """(overlay, last transaction seen of it), main first; nothing is seen beyond the version, and
    what began later is left out."""
    last = place.version.txn
    found = [
        (layer.overlay, last if layer.txn is None else min(layer.txn, last))
        for layer in reversed(place.line.layers)
    ]
    while len(found) > 1 and found[-2][1] == last:
        found.pop()
    return found


async def place_of_tag(storage: Storage, tag: Tag) -> Place:
    """The version that a tag names, on the branch as it was then."""
    line = line_on(storage, tag.branch, tag.layers, number=tag.branch_number)
    return await at(line, AtSeq(tag.version.seq_number))


async def _txn_of(storage: Storage, point: AtUuid) -> int:
    found = Uuid.parse(point.uuid)
    if found.type == TYPE_TRANSACTION:
        return storage.identity.txn_of(point.uuid)
    if not storage.identity.knows(found):
        raise VersionNotFound(f"{point.uuid} is of another storage")
    return (await storage.state(point.uuid)).txn

"""Verification that everything a realm's pointers lead to exists, is readable and consistent.

The classes are those of Nessie: a pointer is *consistent*; or all its commits exist, but something
that they refer to is missing; or commits are missing themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from naksha.catalog.commits import Commit, child_of
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.index import IndexSegment, Stripe
from naksha.catalog.index.page import IndexPage
from naksha.catalog.maintenance.log_horizon import LogHorizonState
from naksha.catalog.maintenance.mark_set import MarkSet
from naksha.catalog.maintenance.pointer_walk import changed_refs, entity_refs, index_of, log_down
from naksha.catalog.maintenance.realm_reader import OBJECTS_BATCH, RealmReader, batches
from naksha.catalog.maintenance.retained_ids import TypeIdentifier
from naksha.catalog.object_rows import assembled
from naksha.catalog.objects import Object, ObjectRef
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.model.errors import InvalidArgument, StorageCorrupt
from naksha.spi.catalog import PointerRow

DAMAGE: Final = (StorageCorrupt, InvalidArgument)
"""Exceptions for data that is damaged or of another type than expected.

Any other error, for example an unreachable database, says nothing about the data.
"""


class Consistency(StrEnum):
    """Result of checking a pointer."""

    CONSISTENT = "CONSISTENT"
    CONTENT_MISSING = "CONTENT_MISSING"
    """All commits exist, but not everything that they refer to."""
    COMMIT_MISSING = "COMMIT_MISSING"
    """The pointer or its log is broken."""


class FindingKind(StrEnum):
    """Kind of a finding."""

    POINTER_UNREADABLE = "POINTER_UNREADABLE"
    HEAD_MISSING = "HEAD_MISSING"
    HEAD_UNREADABLE = "HEAD_UNREADABLE"
    COMMIT_MISSING = "COMMIT_MISSING"
    COMMIT_UNREADABLE = "COMMIT_UNREADABLE"
    LOG_WRONG = "LOG_WRONG"
    """A commit's number, ancestors or time do not match the commit before it."""
    INDEX_DAMAGED = "INDEX_DAMAGED"
    OBJECT_MISSING = "OBJECT_MISSING"
    OBJECT_UNREADABLE = "OBJECT_UNREADABLE"

    @property
    def consistency(self) -> Consistency:
        is_content = self in (
            FindingKind.INDEX_DAMAGED,
            FindingKind.OBJECT_MISSING,
            FindingKind.OBJECT_UNREADABLE,
        )
        return Consistency.CONTENT_MISSING if is_content else Consistency.COMMIT_MISSING


class Finding(msgspec.Struct, frozen=True):
    """One problem."""

    problem: FindingKind
    seq: int
    """The commit that it refers to; 0 for none."""
    text: str


class PointerCheck(msgspec.Struct, kw_only=True):
    """Result of checking a pointer."""

    pointer: str
    seq: int = 0
    """The number of the newest commit; 0 if it has no log."""
    oldest: int = 0
    """The number of the oldest commit that was found."""
    findings: list[Finding] = []
    more: int = 0
    """Number of further problems that are not listed."""

    @property
    def consistency(self) -> Consistency:
        classes = {finding.problem.consistency for finding in self.findings}
        if Consistency.COMMIT_MISSING in classes:
            return Consistency.COMMIT_MISSING
        return Consistency.CONTENT_MISSING if classes else Consistency.CONSISTENT

    def add(self, problem: FindingKind, seq: int, what: object) -> None:
        if len(self.findings) < limits.MAINTENANCE_NOTES_MAX:
            self.findings.append(Finding(problem, seq, str(what)))
        else:
            self.more += 1


class RealmChecker:
    """Checks the pointers of one realm, and marks what they lead to."""

    def __init__(
        self,
        reader: RealmReader,
        state: LogHorizonState,
        types: dict[str, TypeIdentifier],
        marks: MarkSet,
    ) -> None:
        self._reader = reader
        self._state = state
        self._types = types
        self._marks = marks
        self._good: set[int] = set()
        """Objects that were checked, with everything that they refer to."""

    async def check(self, row: PointerRow) -> PointerCheck:
        """Check one pointer, with its whole log."""
        check = PointerCheck(pointer=row.name)
        try:
            pointer = Pointer.from_row(row)
        except DAMAGE as error:
            check.add(FindingKind.POINTER_UNREADABLE, 0, error)
            return check
        if pointer.target is None:
            return check
        try:
            head = await self._reader.fetch(pointer.target)
        except DAMAGE as error:
            check.add(FindingKind.HEAD_UNREADABLE, 0, error)
            return check
        if head is None:
            check.add(FindingKind.HEAD_MISSING, 0, f"Object {pointer.target.id} is missing")
        elif isinstance(head.value, Commit):
            await self._check_log(pointer, head, check)
        else:
            await self._check_objects([pointer.target], check, 0)
        return check

    # ---- A log -------------------------------------------------------------------------------

    async def _check_log(self, pointer: Pointer, head: Object[Any], check: PointerCheck) -> None:
        oldest = self._state.oldest(pointer.name, pointer.created)
        stripes: set[int] = set()
        newer: Object[Commit] | None = None
        check.seq = head.value.seq
        try:
            async for commit in log_down(self._reader, head, oldest):
                check.oldest = commit.value.seq
                if newer is not None:
                    _check_child(commit, newer.value, check)
                newer = commit
                await self._check_commit(commit, stripes, check, is_head=commit is head)
        except DAMAGE as error:
            check.add(FindingKind.COMMIT_UNREADABLE, check.oldest - 1, error)
            return
        if check.oldest > oldest:
            check.add(
                FindingKind.COMMIT_MISSING,
                check.oldest - 1,
                f"Commit {check.oldest - 1} is missing; the log begins at {oldest}",
            )
        elif newer is not None and newer.value.seq == 1:
            _check_first(newer.value, check)

    async def _check_commit(
        self, commit: Object[Commit], stripes: set[int], check: PointerCheck, *, is_head: bool
    ) -> None:
        value = commit.value
        if not isinstance(value, EntitiesCommit):
            await self._check_objects([commit.ref], check, value.seq)
            return
        self._marks.add(self._reader.realm, [commit.id])
        try:
            index = index_of(value, self._reader)
            _read_whole(value.index.embedded)
            parts = [ref async for ref in index.stripe_refs(stripes)]
            self._marks.add(self._reader.realm, [ref.id for ref in parts])
            await self._check_pages(parts)
            refs = [ref async for ref in entity_refs(index)] if is_head else []
        except DAMAGE as error:
            check.add(FindingKind.INDEX_DAMAGED, value.seq, error)
            refs = []
        await self._check_objects([*refs, *changed_refs(value.changes)], check, value.seq)

    async def _check_pages(self, refs: Iterable[ObjectRef]) -> None:
        for some in batches(refs, OBJECTS_BATCH):
            for ref, value in zip(some, await self._reader.fetch_values(some), strict=True):
                if not isinstance(value, Stripe | IndexSegment):
                    raise StorageCorrupt(
                        f"Object {ref.id} of type {ref.type!r}, a part of an index, is missing; "
                        "restore the catalog from a backup"
                    )
                _read_whole(value.page)

    # ---- Objects -----------------------------------------------------------------------------

    async def _check_objects(
        self, refs: Iterable[ObjectRef], check: PointerCheck, seq: int
    ) -> None:
        """Check that objects exist and are readable, with everything that they refer to."""
        todo = {ref.id: ref for ref in refs if ref.id not in self._good}
        while todo:
            self._marks.add(self._reader.realm, todo)
            self._good.update(todo)
            found: list[ObjectRef] = []
            for some in batches(todo.values(), OBJECTS_BATCH):
                found += await self._check_some(some, check, seq)
            todo = {ref.id: ref for ref in found if ref.id not in self._good}

    async def _check_some(
        self, refs: list[ObjectRef], check: PointerCheck, seq: int
    ) -> list[ObjectRef]:
        """Check objects and return what they refer to."""
        found: list[ObjectRef] = []
        rows = await self._reader.rows(refs)
        for ref in refs:
            try:
                kept = assembled(ref, rows)
                if kept is None:
                    check.add(
                        FindingKind.OBJECT_MISSING,
                        seq,
                        f"Object {ref.id} of type {ref.type!r} is missing",
                    )
                elif (identifier := self._types.get(ref.type)) is not None:
                    found += [each async for each in identifier.references(kept, self._reader)]
            except DAMAGE as error:
                check.add(FindingKind.OBJECT_UNREADABLE, seq, error)
        return found


def _check_child(parent: Object[Commit], child: Commit, check: PointerCheck) -> None:
    expected = child_of(parent, child, child.at_us)
    for field in ("seq", "tail", "anchors", "at_us"):
        found, wanted = getattr(child, field), getattr(expected, field)
        if found != wanted:
            check.add(
                FindingKind.LOG_WRONG,
                child.seq,
                f"Member {field} of commit {child.seq} is {found!r}, but must be {wanted!r}",
            )


def _check_first(first: Commit, check: PointerCheck) -> None:
    if first.tail or first.anchors:
        check.add(FindingKind.LOG_WRONG, 1, "The first commit has ancestors")


def _read_whole(page: bytes) -> None:
    """Read every byte of a page, which verifies all checksums."""
    for _ in IndexPage(page).scan():
        pass

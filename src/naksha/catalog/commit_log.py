"""The log of a pointer: its commits in either direction, in pages with a cursor to resume from.

A cursor identifies one commit of one life of a pointer. A cursor that was never valid raises
`VersionNotFound`; a cursor whose commits, or whose successors, are no longer kept raises `Expired`.
A gap is therefore never mistaken for the end of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from itertools import takewhile
from typing import Final, Generic

import msgspec

from naksha.catalog.commits import ANCHOR_STEPS, Commit, H, head_of
from naksha.catalog.objects import Object, ObjectRef, type_id_of
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.model.errors import Expired, InvalidArgument, VersionNotFound

_CURSOR: Final = re.compile(r"([0-9a-f]{1,16})\.([0-9]{1,18})\.([0-9a-f]{1,16})")
_POLL_SECONDS_MIN: Final = 0.05
_POLL_SECONDS_MAX: Final = 1.0
"""Longest interval at which a waiting reader polls for commits of other processes."""


class LogCursor(msgspec.Struct, frozen=True):
    """A place in the log: after one commit, or at the beginning (`seq` 0)."""

    created: int
    seq: int
    id: int

    def __str__(self) -> str:
        return f"{self.created:x}.{self.seq}.{self.id:x}"

    @classmethod
    def parse(cls, text: str) -> LogCursor:
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise InvalidArgument(
                f"{text[:80]!r} is not a valid log cursor; use one that the log returned",
                field="cursor",
            )
        created, seq, id = found.groups()
        return cls(int(created, 16), int(seq), int(id, 16))


class LogPage(msgspec.Struct, Generic[H], frozen=True):
    """Some commits and the cursor to continue from; without commits, the requested one."""

    commits: list[Object[H]]
    cursor: str


class CommitLog(Generic[H]):
    """The commits behind one pointer."""

    def __init__(self, persistence: Persistence, name: str, kind: type[H]) -> None:
        self._persistence = persistence
        self._name = name
        self._kind = kind
        self._type = type_id_of(kind)

    async def cursor(self) -> str:
        """Return the cursor after the newest commit; only later commits follow it."""
        pointer = await self._persistence.pointer_now(self._name)
        head = await self._head(pointer)
        return str(_behind(pointer, head))

    async def newest_first(
        self, before: str | None = None, limit: int = limits.COMMIT_TAIL_MAX
    ) -> LogPage[H]:
        """Return commits in descending order, from the head or from before a cursor's commit."""
        pointer = await self._persistence.pointer_now(self._name)
        head = await self._head(pointer)
        place = LogCursor.parse(before) if before is not None else None
        if place is not None:
            await self._check(pointer, head, place)
            last = place.seq - 1
        else:
            place = LogCursor(pointer.created, 0, 0)
            last = head.value.seq if head is not None else 0
        commits = await self._down(head, last, max(1, last - _checked(limit) + 1))
        if last > 0 and not commits:
            raise self._expired(last)
        return LogPage(commits, str(_behind(pointer, commits[-1]) if commits else place))

    async def oldest_first(
        self, after: str | None = None, limit: int = limits.COMMIT_TAIL_MAX
    ) -> LogPage[H]:
        """Return commits in ascending order, from after a cursor or from the first one."""
        pointer = await self._persistence.pointer_now(self._name)
        head = await self._head(pointer)
        place = LogCursor.parse(after) if after is not None else LogCursor(pointer.created, 0, 0)
        await self._check(pointer, head, place)
        newest = head.value.seq if head is not None else 0
        last = min(newest, place.seq + _checked(limit))
        commits = await self._down(head, last, place.seq + 1)
        if len(commits) < last - place.seq:
            raise self._expired(place.seq + 1)
        commits.reverse()
        return LogPage(commits, str(_behind(pointer, commits[-1]) if commits else place))

    async def before(self, at_us: int) -> str:
        """Return the cursor after the last commit that was made before a time.

        Raises:
            Expired: Commits since then may be gone.
        """
        pointer = await self._persistence.pointer_now(self._name)
        head = await self._head(pointer)
        if head is None or head.value.at_us < at_us:
            return str(_behind(pointer, head))
        first, known, newest = head, 1, head.value.seq
        while known < newest:  # Commit `newest` is not before the time; all before `known` are.
            middle = (known + newest) // 2
            try:
                commit = await self._fetch(await self._id_at(head, middle), middle)
            except Expired:
                known = middle + 1
                continue
            if commit.value.at_us < at_us:
                known = middle + 1
            else:
                first, newest = commit, middle
        if first.value.seq == 1:
            return str(LogCursor(pointer.created, 0, 0))
        earlier = first.value.seq - 1
        id = await self._id_at(first, earlier)
        if (await self._fetch(id, earlier)).value.at_us >= at_us:
            raise self._expired(earlier)
        return str(LogCursor(pointer.created, earlier, id))

    async def wait(
        self, after: str, limit: int = limits.COMMIT_TAIL_MAX, seconds: float = 30.0
    ) -> LogPage[H]:
        """Return `oldest_first`, but wait for new commits if there are none.

        The page is empty if no commit is made in time.
        """
        deadline = time.monotonic() + min(seconds, limits.LOG_WAIT_SECONDS_MAX)
        pause = _POLL_SECONDS_MIN
        while True:
            moved = self._persistence.moves.next_of(self._persistence.realm, self._name)
            page = await self.oldest_first(after, limit)
            rest = deadline - time.monotonic()
            if page.commits or rest <= 0:
                return page
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(moved.wait(), min(pause, rest))
            pause = min(2 * pause, _POLL_SECONDS_MAX)

    async def has(self, pointer: Pointer, seq: int, id: int) -> bool:
        """Return whether a commit is behind the pointer.

        Raises:
            Expired: The log does not go back far enough to tell.
        """
        head = await self._head(pointer)
        return head is not None and await self._is_behind(head, seq, id)

    # ---- Finding -----------------------------------------------------------------------------

    async def _head(self, pointer: Pointer) -> Object[H] | None:
        return await head_of(self._persistence, pointer, self._kind)

    async def _check(self, pointer: Pointer, head: Object[H] | None, place: LogCursor) -> None:
        """Raise VersionNotFound if the cursor does not belong to this log."""
        is_ours = place.created == pointer.created
        if is_ours and place.seq > 0:
            is_ours = head is not None and await self._is_behind(head, place.seq, place.id)
        if not is_ours:
            raise VersionNotFound(
                f"The log of pointer {self._name!r} has no position {place}; the cursor belongs to"
                " another log or to a deleted pointer",
                field="cursor",
            )

    async def _is_behind(self, head: Object[H], seq: int, id: int) -> bool:
        return seq <= head.value.seq and await self._id_at(head, seq) == id

    async def _id_at(self, head: Object[H], seq: int) -> int:
        """Return the id of the commit with a number that is not after the head."""
        commit = head
        while True:
            gap = commit.value.seq - seq
            if gap == 0:
                return commit.id
            if gap <= len(commit.value.tail):
                return commit.value.tail[gap - 1]
            commit = await self._fetch(_step_towards(commit.value, seq), seq)

    async def _down(self, head: Object[H] | None, last: int, first: int) -> list[Object[H]]:
        """Return the commits from `last` down to `first`, as far as they still exist."""
        if head is None or last < first:
            return []
        try:
            commit = await self._fetch(await self._id_at(head, last), last)
        except Expired:
            return []
        found = [commit]
        while (wanted := found[-1].value.seq - first) > 0:
            refs = [ObjectRef(self._type, id) for id in found[-1].value.tail[:wanted]]
            older = await self._persistence.fetch_many(refs, self._kind)
            existing = list(takewhile(lambda thing: thing is not None, older))
            found += [thing for thing in existing if thing is not None]
            if not refs or len(existing) < len(refs):
                break
        return found

    async def _fetch(self, id: int, seq: int) -> Object[H]:
        found = await self._persistence.fetch(ObjectRef(self._type, id), self._kind)
        if found is None:
            raise self._expired(seq)
        return found

    def _expired(self, seq: int) -> Expired:
        return Expired(
            f"Commit {seq} of pointer {self._name!r} is no longer kept; read the current state and"
            " continue from there"
        )


def _step_towards(commit: Commit, seq: int) -> int:
    """Return the ancestor that a commit names which is nearest to `seq`, but not below it."""
    for level in reversed(range(len(commit.anchors))):
        step = ANCHOR_STEPS[level]
        if (commit.seq - 1) // step * step >= seq:
            return commit.anchors[level]
    return commit.tail[-1]


def _behind(pointer: Pointer, commit: Object[H] | None) -> LogCursor:
    if commit is None:
        return LogCursor(pointer.created, 0, 0)
    return LogCursor(pointer.created, commit.value.seq, commit.id)


def _checked(limit: int) -> int:
    if not 1 <= limit <= limits.LOG_PAGE_MAX:
        raise InvalidArgument(
            f"The limit of a log page must be between 1 and {limits.LOG_PAGE_MAX:,} commits,"
            f" not {limit}",
            field="limit",
        )
    return limit

"""Decision about each feature of a modification, given its current state."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from naksha.hub.pipeline.requests import IfExists, IfNotExists, OnConflict
from naksha.hub.write.contents import Content, created, merged, patched, replaced
from naksha.hub.write.entries import Entry
from naksha.hub.write.namespaces import PLACE, Feature, Said, said_in
from naksha.hub.write.rules import Rules
from naksha.model.errors import Conflict, FeatureExists, FeatureNotFound
from naksha.model.merge import same
from naksha.model.state import XYZ, State
from naksha.spi.support.write_merge import content_of


class Planned(NamedTuple):
    """A feature to write."""

    entry: Entry
    content: Content


class Plan(msgspec.Struct):
    """Decisions about the features of a modification; each feature is in one of the lists."""

    creates: list[Planned] = []
    changes: list[Planned] = []
    """Changes of the state that the lock in the namespace names."""
    deletes: list[tuple[Entry, str]] = []
    """Deletions, with the id of the current state."""
    kept: list[tuple[Entry, State | None]] = []
    """Features that are left unchanged, or absent."""


class Known(NamedTuple):
    """States that are known about a feature.

    `head` is the current state, `base` the state that the writer changed, `read` the state at the
    version that the request names.
    """

    head: State | None
    base: State | None = None
    read: State | None = None


class Judge:
    """Decides about features, one at a time."""

    def __init__(self, rules: Rules, plan: Plan) -> None:
        self._rules = rules
        self._plan = plan

    def judge(self, entry: Entry, known: Known) -> None:
        """Decide about a feature and add it to the plan.

        Raises:
            NakshaError: The feature cannot be written; the message says why.
        """
        if known.head is None:
            self._absent(entry, known)
        else:
            self._present(entry, known.head, known)

    # ---- Absent features ---------------------------------------------------------------------

    def _absent(self, entry: Entry, known: Known) -> None:
        rule = self._rules.modification.if_not_exists
        if rule is IfNotExists.ERROR:
            raise FeatureNotFound(
                f"Feature {entry.id!r:.64} does not exist; create it, or correct its id", field="id"
            )
        if rule is IfNotExists.RETAIN or entry.feature is None:
            self._plan.kept.append((entry, None))
            return
        said = said_in(entry.feature)
        if self._was_deleted(said, known):
            self._deleted_meanwhile(entry, entry.feature, said)
            return
        self._create(entry, created(entry.feature, said, self._rules.tags))

    def _was_deleted(self, said: Said, known: Known) -> bool:
        """Whether the write is based on a state of a feature that is deleted now."""
        if self._rules.number_of(said.uuid) is not None:
            return True
        if said.version is not None:
            return self._rules.is_merge and said.version > 0
        return known.read is not None

    def _deleted_meanwhile(self, entry: Entry, sent: Feature, said: Said) -> None:
        on_conflict = self._rules.modification.on_conflict
        if self._rules.is_merge and on_conflict is OnConflict.RETAIN:
            self._plan.kept.append((entry, None))
        elif self._rules.is_merge and on_conflict is OnConflict.REPLACE:
            self._create(entry, created(sent, said, self._rules.tags, unlocked=True))
        else:
            member = "version" if said.uuid is None else "uuid"
            raise Conflict(
                f"Feature {entry.id!r:.64} was deleted since it was read; send it without "
                f"{member} to create it again",
                field=f"{PLACE}.{member}",
            )

    def _create(self, entry: Entry, content: Content) -> None:
        self._plan.creates.append(Planned(entry, content))

    # ---- Existing features -------------------------------------------------------------------

    def _present(self, entry: Entry, head: State, known: Known) -> None:
        rule = self._rules.modification.if_exists
        if rule is IfExists.ERROR:
            raise FeatureExists(
                f"Feature {entry.id!r:.64} already exists; update it, or choose another id",
                field="id",
                head=head.feature,
            )
        if rule is IfExists.RETAIN:
            self._plan.kept.append((entry, head))
            return
        said = Said() if entry.feature is None else said_in(entry.feature)
        if not self._rules.is_merge:
            self._check_lock(said, head)
            if self._rules.detects:
                self._check_version(said, head, known.read)
        if rule is IfExists.DELETE:
            self._plan.deletes.append((entry, head.heading().uuid))
            return
        assert entry.feature is not None, "ids alone are not changed"
        content = self._changed(rule, entry.feature, said, head, known)
        self._plan.changes.append(Planned(entry, content))

    def _changed(
        self, rule: IfExists, sent: Feature, said: Said, head: State, known: Known
    ) -> Content:
        tags = self._rules.tags
        if rule is IfExists.PATCH:
            return patched(sent, said, head, tags)
        if rule is IfExists.REPLACE:
            return replaced(sent, said, head, tags)
        if known.base is None:
            return self._without_base(sent, said, head)
        if known.base.heading().uuid == head.heading().uuid:
            return replaced(sent, said, head, tags)
        return merged(sent, head, known.base, tags, self._rules.modification.on_conflict)

    def _without_base(self, sent: Feature, said: Said, head: State) -> Content:
        """Return the content of a merge whose base is not kept, so changes are unknown."""
        rule, tags = self._rules.modification.on_conflict, self._rules.tags
        if rule is OnConflict.RETAIN:
            return patched({"id": head.id}, Said(), head, tags)
        content = replaced(sent, said, head, tags)
        if rule is OnConflict.REPLACE or _says_the_same(sent, head):
            return content
        raise Conflict(
            f"The state that feature {head.id!r:.64} is based on is no longer kept, so the "
            "feature cannot be merged; merge it into `head`, or send cr=retain or cr=replace",
            field=f"{PLACE}.version" if said.uuid is None else f"{PLACE}.uuid",
            head=head.feature,
        )

    def _check_lock(self, said: Said, head: State) -> None:
        is_ours = self._rules.number_of(said.uuid) is not None
        if is_ours and not self._rules.is_same(said.uuid, head):
            raise _changed_since("uuid", head)

    def _check_version(self, said: Said, head: State, read: State | None) -> None:
        """Check the feature's version, or else that it is unchanged since the request's version.

        A uuid in the feature was checked before.
        """
        if said.version is not None:
            if said.version != head.xyz["version"]:
                raise _changed_since("version", head)
        elif self._rules.number_of(said.uuid) is None and (
            read is None or read.heading().uuid != head.heading().uuid
        ):
            raise _changed_since("version", head)


def _says_the_same(sent: Feature, head: State) -> bool:
    now = content_of(head.feature)
    return same(content_of(sent, now[XYZ]), now)


def _changed_since(member: str, head: State) -> Conflict:
    return Conflict(
        f"Feature {head.id!r:.64} was changed since it was read, or was sent without its version; "
        "merge it with the head in this error",
        field=f"{PLACE}.{member}",
        head=head.feature,
    )

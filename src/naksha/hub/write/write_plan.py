"""Decision about each feature of a modification, given its current state."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from naksha.hub.pipeline.requests import IfExists, IfNotExists, OnConflict
from naksha.hub.write.contents import (
    Content,
    create_content,
    merge_content,
    patch_content,
    replace_content,
)
from naksha.hub.write.entries import Entry
from naksha.hub.write.namespaces import PLACE, Feature, SentNamespace, sent_namespace_of
from naksha.hub.write.rules import Rules
from naksha.model.errors import Conflict, FeatureExists, FeatureNotFound
from naksha.model.merge import same
from naksha.model.state import XYZ, State
from naksha.spi.support.write_merge import content_of


class PlannedWrite(NamedTuple):
    """A feature to write."""

    entry: Entry
    content: Content


class WritePlan(msgspec.Struct):
    """Decisions about the features of a modification; each feature is in one of the lists."""

    creates: list[PlannedWrite] = []
    changes: list[PlannedWrite] = []
    """Changes of the state that the lock in the namespace names."""
    deletes: list[tuple[Entry, str]] = []
    """Deletions, with the id of the current state."""
    retained: list[tuple[Entry, State | None]] = []
    """Features that are left unchanged, or absent."""


class FeatureStates(NamedTuple):
    """States that are known about a feature.

    `head` is the current state, `base` the state that the writer changed, `read` the state at the
    version that the request names.
    """

    head: State | None
    base: State | None = None
    read: State | None = None


class WritePlanner:
    """Decides about features, one at a time."""

    def __init__(self, rules: Rules, plan: WritePlan) -> None:
        self._rules = rules
        self._plan = plan

    def add(self, entry: Entry, states: FeatureStates) -> None:
        """Decide about a feature and add it to the plan.

        Raises:
            NakshaError: The feature cannot be written; the message says why.
        """
        if states.head is None:
            self._absent(entry, states)
        else:
            self._present(entry, states.head, states)

    # ---- Absent features ---------------------------------------------------------------------

    def _absent(self, entry: Entry, states: FeatureStates) -> None:
        rule = self._rules.modification.if_not_exists
        if rule is IfNotExists.ERROR:
            raise FeatureNotFound(
                f"Feature {entry.id!r:.64} does not exist; create it, or correct its id", field="id"
            )
        if rule is IfNotExists.RETAIN or entry.feature is None:
            self._plan.retained.append((entry, None))
            return
        namespace = sent_namespace_of(entry.feature)
        if self._was_deleted(namespace, states):
            self._deleted_meanwhile(entry, entry.feature, namespace)
            return
        self._create(entry, create_content(entry.feature, namespace, self._rules.tags))

    def _was_deleted(self, namespace: SentNamespace, states: FeatureStates) -> bool:
        """Whether the write is based on a state of a feature that is deleted now."""
        if self._rules.number_of(namespace.uuid) is not None:
            return True
        if namespace.version is not None:
            return self._rules.is_merge and namespace.version > 0
        return states.read is not None

    def _deleted_meanwhile(self, entry: Entry, sent: Feature, namespace: SentNamespace) -> None:
        on_conflict = self._rules.modification.on_conflict
        if self._rules.is_merge and on_conflict is OnConflict.RETAIN:
            self._plan.retained.append((entry, None))
        elif self._rules.is_merge and on_conflict is OnConflict.REPLACE:
            self._create(entry, create_content(sent, namespace, self._rules.tags, unlocked=True))
        else:
            member = "version" if namespace.uuid is None else "uuid"
            raise Conflict(
                f"Feature {entry.id!r:.64} was deleted since it was read; send it without "
                f"{member} to create it again",
                field=f"{PLACE}.{member}",
            )

    def _create(self, entry: Entry, content: Content) -> None:
        self._plan.creates.append(PlannedWrite(entry, content))

    # ---- Existing features -------------------------------------------------------------------

    def _present(self, entry: Entry, head: State, states: FeatureStates) -> None:
        rule = self._rules.modification.if_exists
        if rule is IfExists.ERROR:
            raise FeatureExists(
                f"Feature {entry.id!r:.64} already exists; update it, or choose another id",
                field="id",
                head=head.feature,
            )
        if rule is IfExists.RETAIN:
            self._plan.retained.append((entry, head))
            return
        namespace = SentNamespace() if entry.feature is None else sent_namespace_of(entry.feature)
        if not self._rules.is_merge:
            self._check_lock(namespace, head)
            if self._rules.detects_conflicts:
                self._check_version(namespace, head, states.read)
        if rule is IfExists.DELETE:
            self._plan.deletes.append((entry, head.heading().uuid))
            return
        assert entry.feature is not None, "ids alone are not changed"
        content = self._changed(rule, entry.feature, namespace, head, states)
        self._plan.changes.append(PlannedWrite(entry, content))

    def _changed(
        self,
        rule: IfExists,
        sent: Feature,
        namespace: SentNamespace,
        head: State,
        states: FeatureStates,
    ) -> Content:
        tags = self._rules.tags
        if rule is IfExists.PATCH:
            return patch_content(sent, namespace, head, tags)
        if rule is IfExists.REPLACE:
            return replace_content(sent, namespace, head, tags)
        if states.base is None:
            return self._content_without_base(sent, namespace, head)
        if states.base.heading().uuid == head.heading().uuid:
            return replace_content(sent, namespace, head, tags)
        return merge_content(sent, head, states.base, tags, self._rules.modification.on_conflict)

    def _content_without_base(
        self, sent: Feature, namespace: SentNamespace, head: State
    ) -> Content:
        """Return the content of a merge whose base is not kept, so changes are unknown."""
        rule, tags = self._rules.modification.on_conflict, self._rules.tags
        if rule is OnConflict.RETAIN:
            return patch_content({"id": head.id}, SentNamespace(), head, tags)
        content = replace_content(sent, namespace, head, tags)
        if rule is OnConflict.REPLACE or _has_same_content(sent, head):
            return content
        raise Conflict(
            f"The state that feature {head.id!r:.64} is based on is no longer kept, so the "
            "feature cannot be merged; merge it into `head`, or send cr=retain or cr=replace",
            field=f"{PLACE}.version" if namespace.uuid is None else f"{PLACE}.uuid",
            head=head.feature,
        )

    def _check_lock(self, namespace: SentNamespace, head: State) -> None:
        is_of_collection = self._rules.number_of(namespace.uuid) is not None
        if is_of_collection and not self._rules.is_same(namespace.uuid, head):
            raise _changed_since("uuid", head)

    def _check_version(self, namespace: SentNamespace, head: State, read: State | None) -> None:
        """Check the feature's version, or else that it is unchanged since the request's version.

        A uuid in the feature was checked before.
        """
        if namespace.version is not None:
            if namespace.version != head.xyz["version"]:
                raise _changed_since("version", head)
        elif self._rules.number_of(namespace.uuid) is None and (
            read is None or read.heading().uuid != head.heading().uuid
        ):
            raise _changed_since("version", head)


def _has_same_content(sent: Feature, head: State) -> bool:
    head_content = content_of(head.feature)
    return same(content_of(sent, head_content[XYZ]), head_content)


def _changed_since(member: str, head: State) -> Conflict:
    return Conflict(
        f"Feature {head.id!r:.64} was changed since it was read, or was sent without its version; "
        "merge it with the head in this error",
        field=f"{PLACE}.{member}",
        head=head.feature,
    )

"""Responses to version requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from naksha.hub.pipeline.responses import Features
from naksha.versioning import (
    Branch,
    Changeset,
    CollectionEffect,
    FeatureDiff,
    FeedTransaction,
    HistoryStep,
    StoredConflict,
    UndecidedFeature,
)


class ChangedFeatures(NamedTuple):
    """A changeset with its changed features, which are read lazily."""

    changeset: Changeset
    inserted: Features
    updated: Features
    deleted: Features


class Changesets(NamedTuple):
    """Changesets of a version range, both ends included.

    `after` is the page token of the next page, if there may be one. `is_empty` means that the range
    has no changesets, independent of the filter.
    """

    start_version: int
    end_version: int
    changesets: list[ChangedFeatures]
    after: str | None
    is_empty: bool = False


class LogEntry(NamedTuple):
    """A changeset without its features, with its effect on the collection of a space."""

    changeset: Changeset
    effect: CollectionEffect


class ChangesetLog(NamedTuple):
    """Entries of the log, and the version to continue after, if there may be more."""

    entries: list[LogEntry]
    after: int | None


class Changes(NamedTuple):
    """A page of the change feed with the next position; the client is up to date at `last`."""

    storage: str
    items: list[FeedTransaction]
    position: str
    last: int


class Differences(NamedTuple):
    """Differences between two versions, streamed."""

    start_version: int
    end_version: int
    changes: AsyncIterator[FeatureDiff]


class FeatureHistory(NamedTuple):
    """States of features, each with its predecessor, streamed."""

    steps: AsyncIterator[HistoryStep]


class VersionSpan(msgspec.Struct, frozen=True, rename="camel"):
    """The range of readable versions."""

    min_version: int
    max_version: int


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a rollback, revert, merge or rebase, or of its dry run."""

    version: int | None
    inserted: list[str]
    updated: list[str]
    deleted: list[str]
    conflicts: tuple[UndecidedFeature, ...] = ()


class Conflicts(NamedTuple):
    """Pending merges, each with the features that need a decision."""

    conflicts: list[tuple[StoredConflict, list[UndecidedFeature]]]


class BranchState(NamedTuple):
    """A branch, with its references resolved."""

    branch: Branch
    base_ref: str
    """Version reference of its base."""
    merges: dict[str, str]
    """Merged versions of the branch, each mapped to the version reference of the merge."""
    solving: str | None = None
    """The branch on which its conflicts are resolved, if it has any."""

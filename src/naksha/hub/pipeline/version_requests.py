"""Requests for versions of a space: log, diffs, tags, branches, merges and rollbacks.

`ref` selects the branch, and for ranges the start and end version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.pipeline.requests import MATCH_ALL, Request
from naksha.hub.pipeline.version_responses import (
    BranchState,
    Changes,
    ChangesetLog,
    Changesets,
    Conflicts,
    Differences,
    FeatureHistory,
    Rewritten,
    VersionSpan,
)
from naksha.model import limits
from naksha.model.query import Query
from naksha.versioning import MergePolicy, Tag

_WRITES = (Right.CREATE_FEATURES, Right.UPDATE_FEATURES, Right.DELETE_FEATURES)


class _Managing(Request[Any], frozen=True, kw_only=True, tag=""):
    """Base of requests that change names of versions; they need the right to manage the space."""

    changes: ClassVar[bool] = True

    def needs(self) -> Collection[Right]:
        return (Right.READ_FEATURES, Right.MANAGE_SPACES)


class _Rewriting(Request[Rewritten], frozen=True, kw_only=True, tag=""):
    """Base of requests that can change any feature, such as rollback and merge."""

    changes: ClassVar[bool] = True

    message: str | None = None
    dry_run: bool = False

    def needs(self) -> Collection[Right]:
        return (Right.READ_FEATURES,) if self.dry_run else (Right.READ_FEATURES, *_WRITES)


class ReadChangesets(Request[Changesets], frozen=True, kw_only=True, tag="ReadChangesets"):
    """Read changesets, oldest first, with at most `limit` features in total.

    `ref` is a range of the log: a single version means all versions up to it, the end may be in the
    future, and versions that the owner of the space gave up are left out.
    """

    single: bool = False
    """Whether a single version means only its own changeset."""
    after: str = ""
    """Page token: a version, or a position inside a version, to continue after."""
    limit: int = limits.PAGE_DEFAULT
    features: Query = MATCH_ALL
    """Only changes of features that match before or after the change; authors, actions and times
    are those of the change. Not named `query`: handlers that hide features narrow the field
    `query`, and must reject this request."""


class ReadLog(Request[ChangesetLog], frozen=True, kw_only=True, tag="ReadLog"):
    """Read changesets without their features: author, time, message, counts and box."""

    after: int = 0
    """Version to continue after; 0: from the begin, or the end if newest first."""
    limit: int = limits.CHANGESET_PAGE_DEFAULT
    newest_first: bool = True
    text: str | None = None
    """Only changesets whose message contains it, ignoring case."""
    features: Query = MATCH_ALL
    """As in `ReadChangesets`."""


class ReadChanges(Request[Changes], frozen=True, kw_only=True, tag="ReadChanges"):
    """Read the next changes of the branch `ref`, in version order.

    With a query, only changes of features that match before or after: a feature that stops matching
    is reported once more, as in a diff.
    """

    after: str = ""
    """Position or version to continue after; empty: only future changes."""
    query: Query = MATCH_ALL
    actions: tuple[str, ...] | None = None
    limit: int = limits.FEED_TRANSACTIONS_DEFAULT
    """Maximum number of transactions to examine."""
    wait_seconds: float = 0.0
    """Long-poll timeout if there are no new changes."""


class ReadDiff(Request[Differences], frozen=True, kw_only=True, tag="ReadDiff"):
    """Compare two versions: both ends of the range `ref`, or `ref` and `other`.

    `other` may be on another branch.
    """

    other: str | None = None
    query: Query = MATCH_ALL
    of_log: bool = False
    """Whether `ref` is a range of the log, as in `ReadChangesets`."""


class ReadHistory(Request[FeatureHistory], frozen=True, kw_only=True, tag="ReadHistory"):
    """Read the states of features, ordered by feature and time."""

    query: Query = MATCH_ALL


class ReadVersionSpan(Request[VersionSpan], frozen=True, kw_only=True, tag="ReadVersionSpan"):
    """Read the oldest and the newest readable version."""


class ForgetVersions(_Managing, frozen=True, kw_only=True, tag="ForgetVersions"):
    """Give up the versions of the space before `older_than`."""

    older_than: int


class RollBack(_Rewriting, frozen=True, kw_only=True, tag="RollBack"):
    """Restore the features of a branch, all or those of a query, to the version `to`."""

    to: str
    query: Query | None = None


class Revert(_Rewriting, frozen=True, kw_only=True, tag="Revert"):
    """Undo the changes of one version; later changes by others are kept."""

    version: str
    features: Query = MATCH_ALL
    """Only changes of features that match before or after the change; see `ReadChangesets`."""


class Merge(_Rewriting, frozen=True, kw_only=True, tag="Merge"):
    """Merge the changes of one branch into another."""

    source: str
    target: str
    policy: MergePolicy = MergePolicy.FAIL


class Rebase(_Rewriting, frozen=True, kw_only=True, tag="Rebase"):
    """Move a branch onto another base."""

    branch: str
    onto: str | None = None
    policy: MergePolicy = MergePolicy.FAIL


class ResolveConflict(_Rewriting, frozen=True, kw_only=True, tag="ResolveConflict"):
    """Complete a pending merge with a choice for each of its features."""

    conflict: str
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    """By feature id: `ours`, `theirs`, or the feature to write (null: delete it)."""
    policy: MergePolicy = MergePolicy.FAIL


class GiveUpConflict(_Managing, frozen=True, kw_only=True, tag="GiveUpConflict"):
    """Discard a pending merge."""

    conflict: str


class ReadConflicts(Request[Conflicts], frozen=True, kw_only=True, tag="ReadConflicts"):
    """Read the pending merges of a branch."""

    branch: str


class ListTags(Request[list[Tag]], frozen=True, kw_only=True, tag="ListTags"):
    """List all tags of the space."""


class GetTag(Request[Tag], frozen=True, kw_only=True, tag="GetTag"):
    """Read one tag."""

    name: str


class PutTag(_Managing, frozen=True, kw_only=True, tag="PutTag"):
    """Tag the version `ref`. The tag must be new, unless `moves` allows moving an existing one."""

    name: str
    description: str | None = None
    system: bool = False
    moves: bool = False


class DropTag(_Managing, frozen=True, kw_only=True, tag="DropTag"):
    """Delete a tag."""

    name: str


class ListBranches(Request[list[BranchState]], frozen=True, kw_only=True, tag="ListBranches"):
    """List all branches of the space except main."""


class GetBranch(Request[BranchState], frozen=True, kw_only=True, tag="GetBranch"):
    """Read one branch."""

    name: str


class MakeBranch(_Managing, frozen=True, kw_only=True, tag="MakeBranch"):
    """Create a branch from the version `ref`."""

    name: str
    description: str | None = None


class RenameBranch(_Managing, frozen=True, kw_only=True, tag="RenameBranch"):
    """Rename a branch."""

    name: str
    new_name: str


class DescribeBranch(_Managing, frozen=True, kw_only=True, tag="DescribeBranch"):
    """Change the description of a branch."""

    name: str
    description: str


class DropBranch(_Managing, frozen=True, kw_only=True, tag="DropBranch"):
    """Delete a branch and everything written on it."""

    name: str

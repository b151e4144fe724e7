"""Requests about versions of a space: its log, its tags and branches, and going back.

`ref` says on which branch, and where it is a range, between which versions.
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
    Changesets,
    Conflicts,
    Differences,
    FeatureHistory,
    Rewritten,
    VersionSpan,
)
from naksha.model import limits
from naksha.model.query import Query
from naksha.versioning import Policy, Tag

_WRITES = (Right.CREATE_FEATURES, Right.UPDATE_FEATURES, Right.DELETE_FEATURES)


class _Managing(Request[Any], frozen=True, kw_only=True, tag=""):
    """Whoever names versions manages the space."""

    changes: ClassVar[bool] = True

    def needs(self) -> Collection[Right]:
        return (Right.READ_FEATURES, Right.MANAGE_SPACES)


class _Rewriting(Request[Rewritten], frozen=True, kw_only=True, tag=""):
    """Whoever goes back, or merges, may do anything to any feature."""

    changes: ClassVar[bool] = True

    message: str | None = None
    dry_run: bool = False

    def needs(self) -> Collection[Right]:
        return (Right.READ_FEATURES,) if self.dry_run else (Right.READ_FEATURES, *_WRITES)


class ReadChangesets(Request[Changesets], frozen=True, kw_only=True, tag="ReadChangesets"):
    """What was changed by which version, oldest first; at most `limit` features together.

    `ref` is a range of the log: one version means everything up to it, the end may be still to
    come, and what the owner of the space gave up is left out."""

    single: bool = False
    """Whether one version means only what it changed itself."""
    after: str = ""
    """The page token: a version to go on after, or a place inside of one."""
    limit: int = limits.PAGE_DEFAULT
    features: Query = MATCH_ALL
    """Only changes of features that match before or after them; authors, actions and times are
    those of the change. Not called `query`: handlers that hide features narrow queries, and must
    refuse this request."""


class ReadChanges(Request[Changes], frozen=True, kw_only=True, tag="ReadChanges"):
    """The next changes of a branch, in the order of its versions. `ref` says which branch.

    With a query only of features that match it, or did so before: what a space hides it tells of
    when it goes out of sight, as a difference does."""

    after: str = ""
    """The position to go on from, or a version; nothing: from now on."""
    query: Query = MATCH_ALL
    actions: tuple[str, ...] | None = None
    limit: int = limits.FEED_TRANSACTIONS_DEFAULT
    """Transactions that are looked at, at most."""
    wait_seconds: float = 0.0
    """How long to wait when there is nothing new."""


class ReadDiff(Request[Differences], frozen=True, kw_only=True, tag="ReadDiff"):
    """The features that are not the same in two versions: those of the range `ref`, or `ref` and
    `other`, which may be on another branch."""

    other: str | None = None
    query: Query = MATCH_ALL
    of_log: bool = False
    """Whether `ref` is a range of the log, as in `ReadChangesets`."""


class ReadHistory(Request[FeatureHistory], frozen=True, kw_only=True, tag="ReadHistory"):
    """Who did what to some features, ordered by feature and time."""

    query: Query = MATCH_ALL


class ReadVersionSpan(Request[VersionSpan], frozen=True, kw_only=True, tag="ReadVersionSpan"):
    """The oldest and the newest version that can be read."""


class ForgetVersions(_Managing, frozen=True, kw_only=True, tag="ForgetVersions"):
    """Versions of the space older than one are given up."""

    older_than: int


class RollBack(_Rewriting, frozen=True, kw_only=True, tag="RollBack"):
    """The branch becomes again what it was at the version `to`, all of it or what fits a query."""

    to: str
    query: Query | None = None


class Revert(_Rewriting, frozen=True, kw_only=True, tag="Revert"):
    """What one version changed is taken back; what others did since stays."""

    version: str
    features: Query = MATCH_ALL
    """Only changes of features that match before or after them; see `ReadChangesets`."""


class Merge(_Rewriting, frozen=True, kw_only=True, tag="Merge"):
    """What was changed on a branch comes to another one."""

    source: str
    target: str
    policy: Policy = Policy.FAIL


class Rebase(_Rewriting, frozen=True, kw_only=True, tag="Rebase"):
    """A branch is put onto another base."""

    branch: str
    onto: str | None = None
    policy: Policy = Policy.FAIL


class ResolveConflict(_Rewriting, frozen=True, kw_only=True, tag="ResolveConflict"):
    """A merge that waits is done, with a choice for each of its features."""

    conflict: str
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    """By feature id: `ours`, `theirs`, or the feature as it shall be (null: deleted)."""
    policy: Policy = Policy.FAIL


class GiveUpConflict(_Managing, frozen=True, kw_only=True, tag="GiveUpConflict"):
    """A merge that waits is forgotten."""

    conflict: str


class ReadConflicts(Request[Conflicts], frozen=True, kw_only=True, tag="ReadConflicts"):
    """The merges of a branch that wait for a decision."""

    branch: str


class ListTags(Request[list[Tag]], frozen=True, kw_only=True, tag="ListTags"):
    """All tags of the space."""


class GetTag(Request[Tag], frozen=True, kw_only=True, tag="GetTag"):
    """One of them."""

    name: str


class PutTag(_Managing, frozen=True, kw_only=True, tag="PutTag"):
    """Name the version `ref`; `moves` an existing tag there, else it must be new."""

    name: str
    description: str | None = None
    system: bool = False
    moves: bool = False


class DropTag(_Managing, frozen=True, kw_only=True, tag="DropTag"):
    """Take a name away."""

    name: str


class ListBranches(Request[list[BranchState]], frozen=True, kw_only=True, tag="ListBranches"):
    """All branches of the space but main."""


class GetBranch(Request[BranchState], frozen=True, kw_only=True, tag="GetBranch"):
    """One of them."""

    name: str


class MakeBranch(_Managing, frozen=True, kw_only=True, tag="MakeBranch"):
    """Branch off from the version `ref`."""

    name: str
    description: str | None = None


class RenameBranch(_Managing, frozen=True, kw_only=True, tag="RenameBranch"):
    """Give a branch another name."""

    name: str
    new_name: str


class DescribeBranch(_Managing, frozen=True, kw_only=True, tag="DescribeBranch"):
    """Say anew what a branch is for."""

    name: str
    description: str


class DropBranch(_Managing, frozen=True, kw_only=True, tag="DropBranch"):
    """Remove a branch with all that was written on it."""

    name: str

"""What is answered about versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from naksha.hub.pipeline.responses import Features
from naksha.versioning import (
    Branch,
    Change,
    Changeset,
    Published,
    Step,
    StoredConflict,
    Undecided,
)


class ChangedFeatures(NamedTuple):
    """A changeset and what it did; the features are read when somebody looks at them."""

    changeset: Changeset
    inserted: Features
    updated: Features
    deleted: Features


class Changesets(NamedTuple):
    """Changesets from one version to another one, both included. `after` is the token of the next
    page, when there may be more. `is_empty`: the range has no changesets, whatever the filter."""

    start_version: int
    end_version: int
    changesets: list[ChangedFeatures]
    after: str | None
    is_empty: bool = False


class Changes(NamedTuple):
    """A page of a feed, and the position to go on from; up to date when that is `last`."""

    storage: str
    items: list[Published]
    position: str
    last: int


class Differences(NamedTuple):
    """What differs between two versions, streamed."""

    start_version: int
    end_version: int
    changes: AsyncIterator[Change]


class FeatureHistory(NamedTuple):
    """States of features, each with the one before it, streamed."""

    steps: AsyncIterator[Step]


class VersionSpan(msgspec.Struct, frozen=True, rename="camel"):
    """The versions that can be read."""

    min_version: int
    max_version: int


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback, revert, merge or rebase did, or would do."""

    version: int | None
    inserted: list[str]
    updated: list[str]
    deleted: list[str]
    conflicts: tuple[Undecided, ...] = ()


class Conflicts(NamedTuple):
    """Merges that wait, each with the features to decide about."""

    conflicts: list[tuple[StoredConflict, list[Undecided]]]


class BranchState(NamedTuple):
    """A branch, and what its numbers mean."""

    branch: Branch
    base_ref: str
    """What it stands on, as a version reference."""
    merges: dict[str, str]
    """Versions of it that were merged, each with where it went, as a version reference."""
    solving: str | None = None
    """The branch on which its conflicts are solved, if it has any."""

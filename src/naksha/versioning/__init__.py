"""Versioning on any storage: log, diff, history, rollback, tags, branches and merges."""

from naksha.versioning.branches import (
    branches,
    create_branch,
    delete_branch,
    describe_branch,
    open_branch,
    rename_branch,
)
from naksha.versioning.changesets import (
    Changeset,
    CollectionEffect,
    changeset,
    changeset_of,
)
from naksha.versioning.diff import DiffAction, FeatureDiff, diff, diff_all
from naksha.versioning.feed.events import (
    FeatureChange,
    FeedFilter,
    FeedPage,
    FeedPosition,
    FeedTransaction,
)
from naksha.versioning.feed.feed import read_feed
from naksha.versioning.history import HistoryStep, history
from naksha.versioning.history_import import EditStep, ImportedStep, SnapshotStep, import_history
from naksha.versioning.lines import Line, Place, line_of, place_of, range_of
from naksha.versioning.log import ChangesetPage, changesets
from naksha.versioning.merges.branch_resolution import merge_resolution
from naksha.versioning.merges.conflicts import (
    conflict_of,
    conflicts,
    give_up_conflict,
    undecided_of,
)
from naksha.versioning.merges.merge import Choices, MergePolicy, merge
from naksha.versioning.merges.rebase import rebase
from naksha.versioning.merges.resolution import resolve_conflict
from naksha.versioning.records import (
    Attribution,
    Branch,
    NameScope,
    StoredConflict,
    Tag,
    UndecidedFeature,
)
from naksha.versioning.rollback import revert, rollback
from naksha.versioning.state_writer import WriteReport
from naksha.versioning.storage_round import maintain_storage
from naksha.versioning.tags import (
    create_tag,
    delete_tag,
    drop_expired_tags,
    expired_tags,
    tag_of,
    tags,
)
from naksha.versioning.version_refs import Ref, parse_ref

__all__ = [
    "Attribution",
    "Branch",
    "Changeset",
    "ChangesetPage",
    "Choices",
    "CollectionEffect",
    "DiffAction",
    "EditStep",
    "FeatureChange",
    "FeatureDiff",
    "FeedFilter",
    "FeedPage",
    "FeedPosition",
    "FeedTransaction",
    "HistoryStep",
    "ImportedStep",
    "Line",
    "MergePolicy",
    "NameScope",
    "Place",
    "Ref",
    "SnapshotStep",
    "StoredConflict",
    "Tag",
    "UndecidedFeature",
    "WriteReport",
    "branches",
    "changeset",
    "changeset_of",
    "changesets",
    "conflict_of",
    "conflicts",
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "describe_branch",
    "diff",
    "diff_all",
    "drop_expired_tags",
    "expired_tags",
    "give_up_conflict",
    "history",
    "import_history",
    "line_of",
    "maintain_storage",
    "merge",
    "merge_resolution",
    "open_branch",
    "parse_ref",
    "place_of",
    "range_of",
    "read_feed",
    "rebase",
    "rename_branch",
    "resolve_conflict",
    "revert",
    "rollback",
    "tag_of",
    "tags",
    "undecided_of",
]

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
    changeset,
    changeset_of,
)
from naksha.versioning.conflicts import (
    conflict_of,
    conflicts,
    give_up_conflict,
    undecided_of,
)
from naksha.versioning.diff import Action, Change, diff, diff_all
from naksha.versioning.feed import read_feed
from naksha.versioning.feed_parts import (
    FeatureChange,
    FeedFilter,
    FeedPage,
    FeedPosition,
    Published,
)
from naksha.versioning.history import Step, history
from naksha.versioning.importing import Edits, Imported, Snapshot, import_history
from naksha.versioning.log import ChangesetPage, changesets
from naksha.versioning.merges import Choices, Policy, merge
from naksha.versioning.places import Line, Place, line_of, place_of, range_of
from naksha.versioning.rebase import rebase
from naksha.versioning.records import Branch, Scope, Signed, StoredConflict, Tag, Undecided
from naksha.versioning.refs import Ref, parse_ref
from naksha.versioning.resolving import resolve_conflict
from naksha.versioning.rollback import revert, rollback
from naksha.versioning.solved import merge_solved
from naksha.versioning.tags import create_tag, delete_tag, drop_expired_tags, tag_of, tags
from naksha.versioning.writing import Written

__all__ = [
    "Action",
    "Branch",
    "Change",
    "Changeset",
    "ChangesetPage",
    "Choices",
    "Edits",
    "FeatureChange",
    "FeedFilter",
    "FeedPage",
    "FeedPosition",
    "Imported",
    "Line",
    "Place",
    "Policy",
    "Published",
    "Ref",
    "Scope",
    "Signed",
    "Snapshot",
    "Step",
    "StoredConflict",
    "Tag",
    "Undecided",
    "Written",
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
    "give_up_conflict",
    "history",
    "import_history",
    "line_of",
    "merge",
    "merge_solved",
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

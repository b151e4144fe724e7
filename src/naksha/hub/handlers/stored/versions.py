"""Functions for requests about versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from naksha.hub.handlers.stored import feed, log, refs, rewrite
from naksha.hub.pipeline import version_requests
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import Request
from naksha.hub.pipeline.targets import CollectionTarget

VERSION_FUNCTIONS: Final[
    dict[type[Request[Any]], Callable[[CollectionTarget, Any, Event], Awaitable[Any]]]
] = {
    version_requests.ReadChangesets: log.read_changesets,
    version_requests.ReadLog: log.read_log,
    version_requests.ReadChanges: feed.read_changes,
    version_requests.ReadDiff: log.read_diff,
    version_requests.ReadHistory: log.read_history,
    version_requests.ReadVersionSpan: log.read_version_span,
    version_requests.ForgetVersions: log.forget_versions,
    version_requests.RollBack: rewrite.roll_back,
    version_requests.Revert: rewrite.revert_version,
    version_requests.Merge: rewrite.merge_branch,
    version_requests.Rebase: rewrite.rebase_branch,
    version_requests.ResolveConflict: rewrite.resolve_space_conflict,
    version_requests.GiveUpConflict: rewrite.abandon_conflict,
    version_requests.ReadConflicts: rewrite.read_conflicts,
    version_requests.ListTags: refs.list_tags,
    version_requests.GetTag: refs.get_tag,
    version_requests.PutTag: refs.put_tag,
    version_requests.DropTag: refs.drop_tag,
    version_requests.ListBranches: refs.list_branches,
    version_requests.GetBranch: refs.get_branch,
    version_requests.MakeBranch: refs.create_space_branch,
    version_requests.RenameBranch: refs.rename_space_branch,
    version_requests.DescribeBranch: refs.describe_space_branch,
    version_requests.DropBranch: refs.drop_branch,
}

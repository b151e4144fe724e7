"""What a stored space answers about its versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from naksha.hub import version_requests as asked
from naksha.hub.handlers import storage_feed, storage_log, storage_names, storage_rewriting
from naksha.hub.pipeline import Event
from naksha.hub.requests import Request
from naksha.hub.targets import Target

VERSION_ANSWERS: Final[dict[type[Request[Any]], Callable[[Target, Any, Event], Awaitable[Any]]]] = {
    asked.ReadChangesets: storage_log.read_changesets,
    asked.ReadChanges: storage_feed.read_changes,
    asked.ReadDiff: storage_log.read_diff,
    asked.ReadHistory: storage_log.read_history,
    asked.ReadVersionSpan: storage_log.read_version_span,
    asked.ForgetVersions: storage_log.forget_versions,
    asked.RollBack: storage_rewriting.roll_back,
    asked.Revert: storage_rewriting.take_back,
    asked.Merge: storage_rewriting.merge_branch,
    asked.Rebase: storage_rewriting.rebase_branch,
    asked.ResolveConflict: storage_rewriting.resolve,
    asked.GiveUpConflict: storage_rewriting.give_up,
    asked.ReadConflicts: storage_rewriting.read_conflicts,
    asked.ListTags: storage_names.list_tags,
    asked.GetTag: storage_names.get_tag,
    asked.PutTag: storage_names.put_tag,
    asked.DropTag: storage_names.drop_tag,
    asked.ListBranches: storage_names.list_branches,
    asked.GetBranch: storage_names.get_branch,
    asked.MakeBranch: storage_names.make_branch,
    asked.RenameBranch: storage_names.name_branch,
    asked.DescribeBranch: storage_names.tell_branch,
    asked.DropBranch: storage_names.drop_branch,
}

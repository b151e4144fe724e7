"""Functions for requests about versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from naksha.hub.handlers.stored import feed, log, refs, rewrite
from naksha.hub.pipeline import version_requests as asked
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import Request
from naksha.hub.pipeline.targets import Target

VERSION_ANSWERS: Final[dict[type[Request[Any]], Callable[[Target, Any, Event], Awaitable[Any]]]] = {
    asked.ReadChangesets: log.read_changesets,
    asked.ReadChanges: feed.read_changes,
    asked.ReadDiff: log.read_diff,
    asked.ReadHistory: log.read_history,
    asked.ReadVersionSpan: log.read_version_span,
    asked.ForgetVersions: log.forget_versions,
    asked.RollBack: rewrite.roll_back,
    asked.Revert: rewrite.take_back,
    asked.Merge: rewrite.merge_branch,
    asked.Rebase: rewrite.rebase_branch,
    asked.ResolveConflict: rewrite.resolve,
    asked.GiveUpConflict: rewrite.give_up,
    asked.ReadConflicts: rewrite.read_conflicts,
    asked.ListTags: refs.list_tags,
    asked.GetTag: refs.get_tag,
    asked.PutTag: refs.put_tag,
    asked.DropTag: refs.drop_tag,
    asked.ListBranches: refs.list_branches,
    asked.GetBranch: refs.get_branch,
    asked.MakeBranch: refs.make_branch,
    asked.RenameBranch: refs.name_branch,
    asked.DescribeBranch: refs.tell_branch,
    asked.DropBranch: refs.drop_branch,
}

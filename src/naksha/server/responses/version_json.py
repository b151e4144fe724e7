"""JSON of tags, branches, changesets and diffs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import msgspec

from naksha.hub.pipeline.responses import Features
from naksha.hub.pipeline.version_responses import (
    BranchState,
    ChangedFeatures,
    ChangesetLog,
    Changesets,
    Differences,
    LogEntry,
    Rewritten,
)
from naksha.model.json_text import open_object
from naksha.versioning import Changeset, DiffAction, HistoryStep, Tag, UndecidedFeature
from naksha.versioning.version_refs import MAIN_BRANCH

_encode = msgspec.json.encode
_SPOOL_BYTES: Final = 1024 * 1024
"""Larger intermediate results are kept in a file."""


def tag_json(tag: Tag, space_id: str) -> dict[str, Any]:
    """Return the JSON of a tag."""
    version = tag.version.seq_number
    return {
        "id": tag.name,
        "spaceId": space_id,
        "branchId": tag.branch,
        "version": version,
        "versionRef": str(version) if tag.branch == MAIN_BRANCH else f"{tag.branch}:{version}",
        "system": tag.system,
        "description": tag.description or "",
        "author": tag.author or tag.app_id,
        "createdAt": tag.created_ms,
    }


def branch_json(state: BranchState, space_id: str) -> dict[str, Any]:
    """Return the JSON of a branch."""
    branch = state.branch
    more = {} if state.solving is None else {"conflictSolvingBranch": state.solving}
    return {
        "id": branch.name,
        "spaceId": space_id,
        "baseRef": state.base_ref,
        "description": branch.description or "",
        "state": branch.state,
        "merges": state.merges,
        "conflicts": list(branch.conflicts),
        **more,
        "author": branch.author or branch.app_id,
        "createdAt": branch.created_ms,
    }


def rewritten_json(done: Rewritten) -> dict[str, Any]:
    """Return the result of a rollback, revert, merge or rebase; empty lists are left out."""
    lists = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    body: dict[str, Any] = {"type": "VersionOperationResponse", "version": done.version}
    body |= {name: ids for name, ids in lists.items() if ids}
    if done.conflicts:
        body["conflicts"] = [undecided_json(one) for one in done.conflicts]
    return body


def undecided_json(one: UndecidedFeature) -> dict[str, Any]:
    """Return the JSON of a feature with a merge conflict."""
    return {
        "id": one.id,
        "base": one.base,
        "ours": one.ours,
        "theirs": one.theirs,
        "paths": list(one.paths),
    }


def step_json(step: HistoryStep) -> bytes:
    """Encode a step in the history of a feature: a state and its changes."""
    author, app_id = step.actor
    about = {
        "id": step.id,
        "action": step.action,
        "author": author,
        "appId": app_id,
        "at": step.started_ms,
        "patch": step.patch(),
    }
    return _encode({**about, "feature": msgspec.Raw(step.state.raw)})


def log_json(page: ChangesetLog) -> dict[str, Any]:
    """Return the JSON of a page of the log."""
    body: dict[str, Any] = {
        "type": "ChangesetLog",
        "changesets": [_log_entry_json(entry) for entry in page.entries],
    }
    return body if page.after is None else {**body, "nextPageToken": str(page.after)}


def _log_entry_json(entry: LogEntry) -> dict[str, Any]:
    effect = entry.effect
    counts = {
        "inserted": effect.created,
        "updated": effect.updated,
        "deleted": effect.deleted,
        "bbox": effect.bbox,
    }
    return _changeset_head(entry.changeset) | counts


def _changeset_head(found: Changeset) -> dict[str, Any]:
    head: dict[str, Any] = {
        "version": found.version.seq_number,
        "txn": str(found.version.txn),
        "author": found.author or found.app_id,
        "appId": found.app_id,
        "createdAt": found.started_ms,
        "publishedAt": found.version.published_ms,
    }
    return head if found.message is None else {**head, "message": found.message}


async def changesets_bytes(page: Changesets) -> AsyncIterator[bytes]:
    """Stream a ChangesetCollection."""
    head: dict[str, Any] = {
        "type": "ChangesetCollection",
        "startVersion": page.start_version,
        "endVersion": page.end_version,
    }
    if page.after is not None:
        head["nextPageToken"] = page.after
    yield open_object(head) + b',"versions":{'
    separator = b""
    for changed in page.changesets:
        yield separator + b'\n"%d":' % changed.changeset.version.seq_number
        separator = b","
        async for part in changeset_bytes(changed):
            yield part
    yield b"}}"


async def changeset_bytes(
    changed: ChangedFeatures, next_page_token: str | None = None
) -> AsyncIterator[bytes]:
    """Stream a Changeset."""
    head: dict[str, Any] = {"type": "Changeset", **_changeset_head(changed.changeset)}
    if next_page_token is not None:
        head["nextPageToken"] = next_page_token
    yield open_object(head)
    for name in ("inserted", "updated", "deleted"):
        yield b',"%b":' % name.encode()
        async for part in _collection_bytes(getattr(changed, name)):
            yield part
    yield b"}"


async def _collection_bytes(features: Features) -> AsyncIterator[bytes]:
    """Stream a FeatureCollection nested in another document."""
    yield b'{"type":"FeatureCollection","features":['
    separator = b""
    async for states in features:
        yield separator + b",".join([state.raw for state in states])
        separator = b","
    yield b"]}"


async def differences_bytes(found: Differences) -> AsyncIterator[bytes]:
    """Stream a Diff."""
    head = {
        "type": "Diff",
        "startVersion": found.start_version,
        "endVersion": found.end_version,
    }
    yield open_object(head) + b',"changes":['
    separator = b"\n"
    async for change in found.changes:
        yield separator + change.to_json()
        separator = b",\n"
    yield b"]}"


_LETTERS: Final = {DiffAction.CREATED: "I", DiffAction.UPDATED: "U", DiffAction.DELETED: "D"}


async def squashed_bytes(
    found: Differences, kind: str, operations: Collection[str] = ()
) -> AsyncIterator[bytes]:
    """Stream a range as one changeset: every feature once, in its final state.

    `operations` restricts it to some operations.
    """
    head = {"type": kind, "startVersion": found.start_version, "endVersion": found.end_version}
    with (
        SpooledTemporaryFile(_SPOOL_BYTES) as updated,
        SpooledTemporaryFile(_SPOOL_BYTES) as deleted,
    ):
        later = {DiffAction.UPDATED: updated, DiffAction.DELETED: deleted}
        yield open_object(head) + b',"inserted":{"type":"FeatureCollection","features":['
        separator = b""
        async for change in found.changes:
            if operations and _LETTERS[change.action] not in operations:
                continue
            state = change.new or change.old
            assert state is not None
            if change.action is DiffAction.CREATED:
                yield separator + state.raw
                separator = b","
            else:
                spool = later[change.action]
                spool.write((b"," if spool.tell() else b"") + state.raw)
        for name, spool in ((b"updated", updated), (b"deleted", deleted)):
            yield b']},"%b":{"type":"FeatureCollection","features":[' % name
            spool.seek(0)
            while part := spool.read(_SPOOL_BYTES):
                yield part
    yield b"]}}"

"""Content of the feature to write: what the client sent, combined with the current state.

Tags and `crid` are kept unless the client sends such a member, even when the feature is replaced,
so a client that ignores the namespace does not damage it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from naksha.hub.pipeline.requests import OnConflict
from naksha.hub.write.namespaces import (
    Feature,
    SentNamespace,
    TagChange,
    tags_in,
    with_namespace,
    without_namespace,
)
from naksha.hub.write.patch import apply_patch
from naksha.model.errors import Conflict
from naksha.model.merge import Side, merge3
from naksha.model.state import XYZ, State
from naksha.spi.support.write_merge import content_of


class Content(NamedTuple):
    """A feature to write. `muuid` is the state that was merged into it, if any."""

    feature: Feature
    muuid: str | None = None


def create_content(
    sent: Feature, namespace: SentNamespace, tags: TagChange, *, unlocked: bool = False
) -> Content:
    """Return the content of a new feature.

    A base state that it names is left in for the storage to refuse or ignore, unless `unlocked`.
    """
    members = dict(namespace.members)
    if unlocked:
        members.pop("uuid", None)
    if tags:
        members["tags"] = tags.of(tags_in(namespace.members, ()))
    elif not unlocked:
        return Content(sent)
    return Content(with_namespace(sent, members))


def replace_content(
    sent: Feature, namespace: SentNamespace, head: State, tags: TagChange
) -> Content:
    """Return the sent feature as the whole content."""
    return Content(with_namespace(sent, _client_members(namespace, head, tags)))


def patch_content(sent: Feature, namespace: SentNamespace, head: State, tags: TagChange) -> Content:
    """Apply the sent feature as a patch: null removes a member, arrays are replaced."""
    body = apply_patch(without_namespace(head.feature), without_namespace(sent))
    return Content(with_namespace(body, _client_members(namespace, head, tags)))


def _client_members(namespace: SentNamespace, head: State, tags: TagChange) -> dict[str, Any]:
    """Return the client's part of the namespace, locked to the state that was read."""
    members: dict[str, Any] = {"uuid": head.heading().uuid}
    if "crid" in namespace.members:
        members["crid"] = namespace.members["crid"]
    if tags:
        members["tags"] = tags.of(tags_in(namespace.members, head.xyz["tags"]))
    elif "tags" in namespace.members:
        members["tags"] = tags_in(namespace.members, ())
    return members


def merge_content(
    sent: Feature, head: State, base: State, tags: TagChange, on_conflict: OnConflict
) -> Content:
    """Merge the changes of both sides since a base.

    Raises:
        Conflict: Both sides changed the same value, and the request does not say which one wins.
    """
    base_content = content_of(base.feature)
    prefer: Side = "theirs" if on_conflict is OnConflict.REPLACE else "ours"
    ours, theirs = content_of(head.feature), content_of(sent, base_content[XYZ])
    result = merge3(base_content, ours, theirs, prefer=prefer)
    if result.conflicts and on_conflict is OnConflict.ERROR:
        raise _conflict([each.path for each in result.conflicts], head)
    content: dict[str, Any] = dict(result.value)
    members = content.pop(XYZ)
    members = {**members, "uuid": head.heading().uuid, "tags": tags.of(members["tags"])}
    return Content(with_namespace(content, members), base.heading().uuid)


def _conflict(paths: Sequence[str], head: State) -> Conflict:
    return Conflict(
        f"Both sides changed {', '.join(paths)}; set onMergeConflict to retain or replace, or merge"
        " your changes into the head in this error",
        field=paths[0],
        head=head.feature,
    )

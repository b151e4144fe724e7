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
    Said,
    TagChange,
    tags_in,
    with_namespace,
    without_namespace,
)
from naksha.hub.write.patch import patched as merge_patched
from naksha.model.errors import Conflict
from naksha.model.merge import Side, merge3
from naksha.model.state import XYZ, State
from naksha.spi.support.write_merge import content_of


class Content(NamedTuple):
    """A feature to write. `muuid` is the state that was merged into it, if any."""

    feature: Feature
    muuid: str | None = None


def created(sent: Feature, said: Said, tags: TagChange, *, unlocked: bool = False) -> Content:
    """Return the content of a new feature.

    A base state that it names is left in for the storage to refuse or ignore, unless `unlocked`.
    """
    namespace = dict(said.given)
    if unlocked:
        namespace.pop("uuid", None)
    if tags:
        namespace["tags"] = tags.of(tags_in(said.given, ()))
    elif not unlocked:
        return Content(sent)
    return Content(with_namespace(sent, namespace))


def replaced(sent: Feature, said: Said, head: State, tags: TagChange) -> Content:
    """Return the sent feature as the whole content."""
    return Content(with_namespace(sent, _namespace(said, head, tags)))


def patched(sent: Feature, said: Said, head: State, tags: TagChange) -> Content:
    """Apply the sent feature as a patch: null removes a member, arrays are replaced."""
    body = merge_patched(without_namespace(head.feature), without_namespace(sent))
    return Content(with_namespace(body, _namespace(said, head, tags)))


def _namespace(said: Said, head: State, tags: TagChange) -> dict[str, Any]:
    """Return the client's part of the namespace, locked to the state that was read."""
    namespace: dict[str, Any] = {"uuid": head.heading().uuid}
    if "crid" in said.given:
        namespace["crid"] = said.given["crid"]
    if tags:
        namespace["tags"] = tags.of(tags_in(said.given, head.xyz["tags"]))
    elif "tags" in said.given:
        namespace["tags"] = tags_in(said.given, ())
    return namespace


def merged(
    sent: Feature, head: State, base: State, tags: TagChange, on_conflict: OnConflict
) -> Content:
    """Merge the changes of both sides since a base.

    Raises:
        Conflict: Both sides changed the same value, and the request does not say which one wins.
    """
    begun = content_of(base.feature)
    prefer: Side = "theirs" if on_conflict is OnConflict.REPLACE else "ours"
    ours, theirs = content_of(head.feature), content_of(sent, begun[XYZ])
    result = merge3(begun, ours, theirs, prefer=prefer)
    if result.conflicts and on_conflict is OnConflict.ERROR:
        raise _conflict([each.path for each in result.conflicts], head)
    content: dict[str, Any] = dict(result.value)
    namespace = content.pop(XYZ)
    namespace = {**namespace, "uuid": head.heading().uuid, "tags": tags.of(namespace["tags"])}
    return Content(with_namespace(content, namespace), base.heading().uuid)


def _conflict(paths: Sequence[str], head: State) -> Conflict:
    return Conflict(
        f"Both sides changed {', '.join(paths)}; set onMergeConflict to retain or replace, or merge"
        " your changes into the head in this error",
        field=paths[0],
        head=head.feature,
    )

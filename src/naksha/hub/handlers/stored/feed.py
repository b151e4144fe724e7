"""Change feed of a stored space."""

from __future__ import annotations

from collections import Counter

import msgspec

from naksha.hub.feed.pages import FeedSource, next_changes
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.targets import CollectionTarget, check_kept_by_owner
from naksha.hub.pipeline.version_requests import (
    ReadChanges,
)
from naksha.hub.pipeline.version_responses import Changes
from naksha.versioning import FeedFilter, FeedTransaction, parse_ref
from naksha.versioning.change_filters import ALL
from naksha.versioning.changesets import CollectionEffect


async def read_changes(target: CollectionTarget, request: ReadChanges, event: Event) -> Changes:
    """Return the next changes of the collection."""
    line = await target.resolver().line(parse_ref(request.ref).branch)
    where = FeedFilter(
        collections=(target.collection.id,), actions=request.actions, query=request.query
    )

    def check(seq_number: int) -> None:
        # The changes of the oldest version are kept together with it.
        check_kept_by_owner(target, seq_number + 1)

    source = FeedSource(target.storage_id, line, where, event.space.id)
    found = await next_changes(source, request, check)
    if where.query == ALL and where.feature_actions is None:
        return found
    return found._replace(items=[matching_only(item) for item in found.items])


def matching_only(item: FeedTransaction) -> FeedTransaction:
    """Reduce a transaction to the matching features, since a filter may hide the rest."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in item.without_states}
    for change in item.changes:
        counts.setdefault(change.collection, Counter())[change.action] += 1
    touched = tuple(
        CollectionEffect(name, number["CREATE"], number["UPDATE"], number["DELETE"], 0, None)
        for name, number in sorted(counts.items())
    )
    changeset = msgspec.structs.replace(item.changeset, touched=touched)
    return msgspec.structs.replace(item, changeset=changeset)

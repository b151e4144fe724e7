"""JSON form of published transactions, the same for feed clients, webhooks and files.

Features are copied as their stored bytes. The JSON is a single line.
"""

from __future__ import annotations

from typing import Any

import msgspec

from naksha.versioning import FeedTransaction

_encode = msgspec.json.encode


def published_json(item: FeedTransaction, storage: str) -> bytes:
    """Encode a published transaction, or a part of one; unknown members are left out.

    `collections` summarizes the whole transaction, `features` contains only this part.
    """
    changeset = item.changeset
    head: dict[str, Any] = {
        "type": "Changes",
        "storage": storage,
        "version": changeset.version.seq_number,
        "txn": str(changeset.version.txn),
        "publishedAt": changeset.version.published_ms,
        "startedAt": changeset.started_ms,
        "appId": changeset.app_id,
    }
    if changeset.author is not None:
        head["author"] = changeset.author
    if changeset.message is not None:
        head["message"] = changeset.message
    head |= {"part": item.part, "isLast": item.is_last, "collections": _collections(item)}
    features = [
        {
            "action": change.action,
            "collection": change.collection,
            "feature": msgspec.Raw(change.state.raw),
        }
        for change in item.changes
    ]
    return _encode({**head, "features": features})


def _collections(item: FeedTransaction) -> list[dict[str, Any]]:
    """Summarize the changes per collection; `changed` means that its settings changed."""
    changeset = item.changeset
    found: dict[str, dict[str, Any]] = {}
    for each in changeset.touched:
        one = found[each.collection] = {
            "id": each.collection,
            "created": each.created,
            "updated": each.updated,
            "deleted": each.deleted,
            "statesKept": each.collection not in item.without_states,
        }
        if each.purged:
            one["purged"] = each.purged
        if each.bbox is not None:
            one["bbox"] = list(each.bbox)
    for name in changeset.collections_changed:
        found.setdefault(name, {"id": name})["changed"] = True
    return [found[name] for name in sorted(found)]

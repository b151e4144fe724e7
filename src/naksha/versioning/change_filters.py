"""Split a query on changes into a filter on features and a filter on the changes themselves.

Ids, properties, tags, area and time of creation describe a feature and apply to its old or its new
state, so a feature that leaves an area is found there. Author, app id,
action, time of the update and transaction describe the change and apply to the state that the
change made: rolling back Ann's changes does not touch what others changed in features that Ann
wrote before.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from naksha.model.query import Query

ALL: Final = Query()
"""The query that matches everything."""
OF_CHANGE: Final = (
    "authors",
    "app_ids",
    "actions",
    "updated_from",
    "updated_to",
    "txn_from",
    "txn_to",
)
"""Fields of a query that describe the change; all others describe the feature."""


def split_query(query: Query) -> tuple[Query, Query]:
    """Return the filter on features and the filter on changes."""
    change: dict[str, Any] = {name: getattr(query, name) for name in OF_CHANGE}
    return msgspec.structs.replace(query, **dict.fromkeys(OF_CHANGE)), Query(**change)

"""A sorted map from key to value that is stored inside a commit, with overflow objects.

    index = Index(fetch_many, commit.index)
    index.put(b"space/berlin", ref.to_bytes())
    saved = await index.save(new_id)          # saved.container goes into the next commit

Recent changes are *embedded* in the container, which is a field of the commit. When they grow too
large, they are spilled into *stripes*, objects that each hold a range of the keys; *segments* list
the stripes if there are many. All of them are *pages* of one format.
"""

from naksha.catalog.index.container import (
    EMPTY_CONTAINER,
    IndexContainer,
    IndexSegment,
    PageRef,
    Stripe,
)
from naksha.catalog.index.index import SavedIndex, SortedIndex
from naksha.catalog.index.limits import IndexLimits
from naksha.catalog.index.page_loader import FetchMany

__all__ = [
    "EMPTY_CONTAINER",
    "FetchMany",
    "IndexContainer",
    "IndexLimits",
    "IndexSegment",
    "PageRef",
    "SavedIndex",
    "SortedIndex",
    "Stripe",
]

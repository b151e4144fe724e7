"""Writes to a space: which features are created, changed, deleted or left unchanged.

entries             the features and ids of a request, each with its position
dateline_split      geometries that cross the date line
places              the line that is written to, and the version that the write is based on
open_collection     the collection, created on the first write
namespaces          what a client sends in `@ns:com:here:xyz`
rules               the rules of a modification
contents            patch, merge, replace: the feature to write
merge_bases         the base states of three-way merges
decide              what to do with each feature, given its current state
guards              rights that cover only some features
steps               a modification as a few set-based calls of a session
failures            errors of single features
reports             what was done, for the response
writes              WriteFeatures as a whole
deletes             DeleteFeatures as a whole
unmask              deletions that uncover the layer below
purges              PurgeFeatures as a whole
patch               merge of a client's patch into the current feature
conflicted_branches branches that are read-only until their conflicts are resolved
"""

from naksha.hub.write.deletes import delete_features
from naksha.hub.write.purges import purge_features
from naksha.hub.write.writes import is_news, published, write_features, write_in

__all__ = [
    "delete_features",
    "is_news",
    "published",
    "purge_features",
    "write_features",
    "write_in",
]

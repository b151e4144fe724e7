"""Writes to a space: which features are created, changed, deleted or left unchanged.

entries             the features and ids of a request, each with its position
written_line        main or a branch, and the version that the write is based on
dateline_split      geometries that cross the date line
open_collection     the collection, created on the first write
namespaces          the client's members of `@ns:com:here:xyz`
rules               the rules of a modification
contents            patch, merge, replace: the feature to write
merge_bases         the base states of three-way merges
write_plan          what to do with each feature, given its current state
guards              rights that cover only some features
modifications       a modification as a few set-based calls of a session
failures            errors of single features
reports             the outcome of each feature, for the response
writes              WriteFeatures as a whole
deletes             DeleteFeatures as a whole
unmask              deletions that uncover the layer below
purges              PurgeFeatures as a whole
patch               merge of a client's patch into the current feature
conflicted_branches branches that are read-only until their conflicts are resolved
"""

from naksha.hub.write.deletes import delete_features
from naksha.hub.write.purges import purge_features
from naksha.hub.write.writes import (
    is_first_delivery,
    published_version,
    write_features,
    write_in_session,
)

__all__ = [
    "delete_features",
    "is_first_delivery",
    "published_version",
    "purge_features",
    "write_features",
    "write_in_session",
]

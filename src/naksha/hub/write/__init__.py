"""What a write to a space means: which features are made, changed, deleted or left alone.

entries      what the request says, feature by feature
wrapping     geometries over the date line
places       which line is written to, and the version that it is based on
opening      the collection, which is made when it is not there yet
namespaces   what a client says in `@ns:com:here:xyz`
rules        what a modification asks for
contents     patch, merge, replace: the feature that is to be written
bases        the states that three-way merges begin with
judging      what is to be done with each feature, given what is there
permits      whether that may be done, where rights are to some features only
steps        a modification as a few set-based calls of a session
failures     what went wrong, and with which feature
reports      what was done
writes       WriteFeatures as a whole
deletes      DeleteFeatures as a whole
unmasking    deletions that show the layer below
purges       PurgeFeatures as a whole
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

"""Rights that cover only some features.

The guards of a request check every change, with the feature before and after it, in the transaction
that makes it. The number of features is checked once at the end, with other writers locked out.
"""

from __future__ import annotations

from collections.abc import Iterable

from naksha.hub.auth.row_rights import RightsAttributes, rights_attributes_of
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.write.namespaces import Feature, sent_namespace_of, tags_in
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Forbidden
from naksha.model.query import Query
from naksha.model.state import State
from naksha.spi.storage import StorageReader


class WritePermissions:
    """Permissions of a request on features; false if nothing has to be checked."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def __bool__(self) -> bool:
        return bool(self._context.guards)

    def check(
        self, head: State | None, content: Feature | None, info: CollectionInfo | None = None
    ) -> None:
        """Raise Forbidden if `head` must not become `content`.

        A `head` of None means that the feature is new, a `content` of None that it is deleted.
        """
        old = None if head is None else rights_attributes_of(head)
        new = None if content is None else self._after(old, content, info)
        self._context.check_change(old, new)

    @property
    def are_counted(self) -> bool:
        """Whether the actor's token limits the number of features.

        If so, close the gates of the space's collections before creating features.
        """
        return self._context.actor.limits.max_features_per_space is not None

    async def check_count(self, reader: StorageReader, collections: Iterable[str]) -> None:
        """Raise Forbidden if a space's collections have more features than the token allows."""
        most = self._context.actor.limits.max_features_per_space
        if most is None:
            return
        count = sum([await reader.count(collection, Query()) for collection in collections])
        if count > most:
            raise Forbidden(
                f"The space would have {count} features, but the token allows at most {most}; "
                "delete some, or use a token that allows more"
            )

    def _after(
        self, old: RightsAttributes | None, content: Feature, info: CollectionInfo | None
    ) -> RightsAttributes:
        """Return the marks the storage will set on a feature.

        The author is that of the writer, else the previous one, else that of the collection.
        """
        actor = self._context.actor
        kept = None if info is None else info.author
        author = kept or actor.app_id if old is None else old.author
        tags = tags_in(sent_namespace_of(content).members, () if old is None else tuple(old.tags))
        return RightsAttributes(str(content["id"]), tags, actor.app_id, actor.author or author)

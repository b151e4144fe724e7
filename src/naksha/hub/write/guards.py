"""Rights to some features only: the guards of a request are asked about every change, with the
feature as it is and as it will be, in the transaction that makes it. How many features there may be
is asked once, at its end, and nobody else writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from naksha.hub.auth.row_rights import Marks, marks_of
from naksha.hub.pipeline.request_context import Context
from naksha.hub.write.namespaces import Feature, said_in, tags_in
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Forbidden
from naksha.model.query import Query
from naksha.model.state import State
from naksha.spi.storage import Reader


class Permits:
    """What a request may do to features. Nothing needs to be asked where it is false."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __bool__(self) -> bool:
        return bool(self._context.guards)

    def check(
        self, head: State | None, content: Feature | None, info: CollectionInfo | None = None
    ) -> None:
        """Forbidden when a feature (None: it is not there) must not become another one (None: it
        is deleted)."""
        old = None if head is None else marks_of(head)
        new = None if content is None else self._after(old, content, info)
        self._context.check_change(old, new)

    @property
    def are_counted(self) -> bool:
        """Whether the token of the actor says how many features there may be. Who creates some has
        to close the gates of the space's collections before."""
        return self._context.actor.limits.max_features_per_space is not None

    async def check_count(self, reader: Reader, collections: Iterable[str]) -> None:
        """Forbidden when there are more features in the collections of a space than that."""
        most = self._context.actor.limits.max_features_per_space
        if most is None:
            return
        count = sum([await reader.count(collection, Query()) for collection in collections])
        if count > most:
            raise Forbidden(
                f"There would be {count} features, and the token allows {most} in a space; "
                "delete some, or ask for a token that allows more"
            )

    def _after(self, old: Marks | None, content: Feature, info: CollectionInfo | None) -> Marks:
        """How the storage will mark a feature: it has the author of who writes, else it keeps the
        one that it has, or gets that of the collection."""
        actor = self._context.actor
        kept = None if info is None else info.author
        author = kept or actor.app_id if old is None else old.author
        tags = tags_in(said_in(content).given, () if old is None else tuple(old.tags))
        return Marks(str(content["id"]), tags, actor.app_id, actor.author or author)

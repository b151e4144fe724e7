"""DeleteFeatures: all that a query finds, as one transaction, some at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from naksha.hub.context import Context
from naksha.hub.requests import MATCH_ALL, DeleteFeatures
from naksha.hub.responses import Deleted
from naksha.hub.targets import Target
from naksha.hub.writing.permits import Permits
from naksha.hub.writing.places import WrittenLine, on_line
from naksha.hub.writing.writes import published
from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Conflict, InvalidArgument, Retryable
from naksha.model.query import Query, States
from naksha.model.state import Found
from naksha.spi.storage import WriteSession
from naksha.versioning.changesets import MESSAGE


async def delete_features(target: Target, request: DeleteFeatures, context: Context) -> Deleted:
    """Delete what a query finds; nothing when nobody ever wrote to the collection."""
    query = _checked(request.query)

    async def write(line: WrittenLine) -> Deleted:
        if line.base is not None:
            raise InvalidArgument(
                "What a query finds can be deleted at HEAD only", field="versionRef"
            )
        delete = _Delete(target.collection.id, query, request.message, Permits(context))
        actor = context.actor
        return await line.storage.run(delete.attempt, actor.app_id, actor.author)

    deleted = await on_line(target, request.ref, write)
    if deleted.txn is None:
        return deleted
    return msgspec.structs.replace(deleted, version=await published(target, deleted.txn))


def _checked(query: Query) -> Query:
    if query.limit is not None or query.cursor is not None or query.states is not States.LIVE:
        raise InvalidArgument(
            "What is deleted is all that the query finds, so it has no limit, handle or states",
            field="limit",
        )
    return msgspec.structs.replace(query, space=None, limit=limits.READ_CHUNK_FEATURES)


class _Delete:
    """One deletion. It may be done several times until nobody gets in between."""

    def __init__(
        self, collection: str, query: Query, message: str | None, permits: Permits
    ) -> None:
        self._collection = collection
        self._query = query
        self._message = message
        self._attempts = itertools.count()
        by_id = msgspec.structs.replace(query, ids=None, limit=None)
        self._permits = permits
        self._depends_on_content = by_id != MATCH_ALL or bool(permits)

    async def attempt(self, session: WriteSession) -> Deleted:
        """Delete page by page, behind what was deleted: so none of it is found again."""
        if next(self._attempts) >= limits.RETRY_GATE_COUNT:
            await session.close_gates([self._collection])
        ids: list[str] = []
        count = 0
        last: Found | None = None
        try:
            while found := await session.found(self._collection, self._query, after=last):
                if self._permits:
                    await self._check(session, found)
                count += await self._delete(session, found)
                ids += [one.id for one in found[: limits.DELETED_IDS_MAX - len(ids)]]
                last = found[-1]
                if len(found) < limits.READ_CHUNK_FEATURES:
                    break
        except CollectionNotFound:
            return Deleted(count=0)
        if session.txn is not None and self._message is not None:
            await session.message(MESSAGE, self._message)
        return Deleted(count=count, ids=tuple(ids), txn=session.txn)

    async def _check(self, session: WriteSession, found: Sequence[Found]) -> None:
        """Permits look at whole states. If it is another one by then, the lock does not fit."""
        page = await session.page(self._collection, Query(ids=tuple(one.id for one in found)))
        for state in page.states:
            self._permits.check(state, None)

    async def _delete(self, session: WriteSession, found: Sequence[Found]) -> int:
        """What was changed since it was found is not what was to be deleted, perhaps."""
        ids = [one.id for one in found]
        uuids = [one.uuid for one in found] if self._depends_on_content else None
        try:
            outcomes = await session.delete(self._collection, ids, uuids=uuids)
        except Conflict as error:
            if error.feature_id is None:
                raise
            raise Retryable("A feature was changed at the same time") from error
        return sum(outcome.action == "DELETED" for outcome in outcomes)

"""DeleteFeatures: delete all features that match a query, page by page in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import MASKS, MATCH_ALL, DeleteFeatures
from naksha.hub.pipeline.responses import Deleted
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.hub.write.guards import WritePermissions
from naksha.hub.write.unmask import unmask
from naksha.hub.write.writes import published_version
from naksha.hub.write.written_line import WrittenLine, on_line
from naksha.model import limits
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureNotFound,
    InvalidArgument,
    Retryable,
)
from naksha.model.query import Query, States
from naksha.model.state import MatchingState
from naksha.spi.storage import WriteSession
from naksha.versioning.changesets import MESSAGE


async def delete_features(
    target: CollectionTarget, request: DeleteFeatures, context: RequestContext
) -> Deleted:
    """Delete the features that match a query; none before the first write to the collection."""
    query = _paged(request.query)

    async def write(line: WrittenLine) -> Deleted:
        if line.base is not None:
            raise InvalidArgument(
                "Features can be deleted by a query only at HEAD; remove the version from the "
                "reference",
                field="versionRef",
            )
        limited = msgspec.structs.replace(request, query=query)
        delete = _Delete(target.collection.id, limited, WritePermissions(context))
        actor = context.actor
        return await line.storage.run(delete.attempt, actor.app_id, actor.author)

    deleted = await on_line(target, request.ref, write)
    if deleted.txn is None:
        return deleted
    return msgspec.structs.replace(deleted, version=await published_version(target, deleted.txn))


def _paged(query: Query) -> Query:
    if query.limit is not None or query.cursor is not None or query.states is not States.LIVE:
        raise InvalidArgument(
            "A deletion covers all features that match the query; remove limit, handle and states",
            field="limit",
        )
    return msgspec.structs.replace(query, space=None, limit=limits.READ_CHUNK_FEATURES)


class _DeletedFeatures(msgspec.Struct):
    """The number of deleted features, and the first of their ids."""

    count: int = 0
    ids: list[str] = []


class _Delete:
    """One deletion. It may be attempted several times until no other writer interferes."""

    def __init__(
        self, collection: str, request: DeleteFeatures, permissions: WritePermissions
    ) -> None:
        self._collection = collection
        self._query = request.query
        self._message = request.message
        self._attempts = itertools.count()
        by_id = msgspec.structs.replace(self._query, ids=None, limit=None)
        self._permissions = permissions
        self._depends_on_content = by_id != MATCH_ALL or bool(permissions)
        self._masks = not request.unmasks
        self._finds_tombstones = request.unmasks and by_id == MATCH_ALL

    async def attempt(self, session: WriteSession) -> Deleted:
        """Delete page by page, each after the last, so that no feature is found twice."""
        if next(self._attempts) >= limits.RETRY_GATE_COUNT:
            await session.close_gates([self._collection])
        deleted = _DeletedFeatures()
        if self._message is not None:
            await session.message(MESSAGE, self._message, if_changed=True)
        try:
            if self._finds_tombstones:
                masking = {"states": States.DELETED, "where": MASKS}
                query = msgspec.structs.replace(self._query, **masking)
                await self._delete_all(session, query, deleted)
            await self._delete_all(session, self._query, deleted, commit=True)
        except CollectionNotFound:
            return Deleted(count=0)
        return Deleted(count=deleted.count, ids=tuple(deleted.ids), txn=session.txn)

    async def _delete_all(
        self,
        session: WriteSession,
        query: Query,
        deleted: _DeletedFeatures,
        *,
        commit: bool = False,
    ) -> None:
        """Delete all features of a query; with `commit`, commit with the last page."""
        last: MatchingState | None = None
        while page := await session.matching_states(self._collection, query, after=last):
            if self._permissions:
                await self._check_permissions(session, query, page)
            is_last = len(page) < limits.READ_CHUNK_FEATURES
            deleted.count += await self._delete(session, query, page, commit and is_last)
            deleted.ids += [state.id for state in page[: limits.DELETED_IDS_MAX - len(deleted.ids)]]
            last = page[-1]
            if is_last:
                break

    async def _check_permissions(
        self, session: WriteSession, query: Query, page: Sequence[MatchingState]
    ) -> None:
        """Check permissions against whole states. If a state changes afterwards, its lock fails."""
        ids = tuple(state.id for state in page)
        whole = await session.page(self._collection, Query(ids=ids, states=query.states))
        for state in whole.states:
            self._permissions.check(state, None)

    async def _delete(
        self, session: WriteSession, query: Query, page: Sequence[MatchingState], commit: bool
    ) -> int:
        """Delete features; retry if one changed, since it may not match the query any more."""
        ids = [state.id for state in page]
        uuids = [state.uuid for state in page] if self._depends_on_content else None
        try:
            if query.states is States.DELETED:
                outcomes = await unmask(session, self._collection, ids)
            else:
                outcomes = await session.delete(
                    self._collection, ids, uuids=uuids, masks=self._masks, commit=commit
                )
        except (Conflict, FeatureNotFound) as error:
            if error.feature_id is None:
                raise
            raise Retryable(
                f"Another writer changed feature {error.feature_id!r:.64} during the deletion; "
                "retry the request"
            ) from error
        return sum(outcome.action == "DELETED" for outcome in outcomes)

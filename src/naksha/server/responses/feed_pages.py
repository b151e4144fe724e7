"""Read pages of a change feed, each with the actor's rights at that time."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
from starlette.requests import Request

from naksha.hub.feed.storage_feed import read_storage_changes
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.server.middleware.gate import admission_key
from naksha.server.middleware.request_record import record_of
from naksha.server.requests.state import context_of, realm_of, server_of


class FeedRequest(ABC):
    """The change feed of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.server = server_of(request)
        self.record = record_of(request)

    @abstractmethod
    async def read(self, realm: RealmHub, request: ReadChanges, context: RequestContext) -> Changes:
        """Read a page."""

    async def page(self, request: ReadChanges) -> Changes:
        """Read a page.

        A request that has to wait releases its admission slot and counts as a long-polling request
        instead.

        Raises:
            Busy: Too many requests are waiting.
        """
        found = await self.now(msgspec.structs.replace(request, wait_seconds=0.0))
        if found.items or not request.wait_seconds:
            return found
        long_polls = self.server.long_polls
        with long_polls.place(admission_key(self.record)):
            self.leave_turn()
            later = await long_polls.unless_ending(self.later(request, found.position))
        return found if later is None else later

    def leave_turn(self) -> None:
        """Release the admission slot: the request only waits from now on."""
        if self.record.slot is not None:
            self.record.slot.leave()

    async def now(self, request: ReadChanges) -> Changes:
        """Read a page with the current rights.

        Raises:
            Unauthorized: The token is no longer valid.
        """
        self.record.actor = self.server.authenticator.actor(self.request.scope, self.record)
        realm = await realm_of(self.request)
        return await self.read(realm, request, await context_of(self.request, realm))

    async def later(self, request: ReadChanges, position: str) -> Changes:
        """Read the page after a position.

        It waits at most half of the request timeout, so that the wait itself never times out.
        """
        seconds = min(request.wait_seconds, self.server.settings.request_seconds / 2)
        return await self.now(
            msgspec.structs.replace(request, after=position, wait_seconds=seconds)
        )


class SpaceFeedRequest(FeedRequest):
    """The change feed of a space."""

    def __init__(self, request: Request, space_id: str) -> None:
        super().__init__(request)
        self._space_id = space_id

    async def read(self, realm: RealmHub, request: ReadChanges, context: RequestContext) -> Changes:
        return await realm.send(self._space_id, request, context)


class StorageFeedRequest(FeedRequest):
    """The change feed of a storage."""

    def __init__(self, request: Request, storage_id: str, collections: tuple[str, ...]) -> None:
        super().__init__(request)
        self._storage_id = storage_id
        self._collections = collections

    async def read(self, realm: RealmHub, request: ReadChanges, context: RequestContext) -> Changes:
        return await read_storage_changes(
            realm, self._storage_id, self._collections, request, context.actor
        )

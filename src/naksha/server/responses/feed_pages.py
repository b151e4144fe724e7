"""Where pages of a change feed come from: each is asked for anew, with the rights that whoever asks
has at that time."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
from fastapi import Request

from naksha.hub.feed.storage_feed import read_storage_changes
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Context
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.server.middleware.gate import line_of
from naksha.server.middleware.request_context import visit_of
from naksha.server.requests.state import context_of, server_of


class Feed(ABC):
    """The feed that a request is about."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.server = server_of(request)
        self.visit = visit_of(request)

    @abstractmethod
    async def read(self, realm: RealmHub, asked: ReadChanges, context: Context) -> Changes:
        """A page."""

    async def page(self, asked: ReadChanges) -> Changes:
        """A page; who has to wait for it takes no turn meanwhile, but is counted as one who waits.

        Raises:
            Busy: Too many wait.
        """
        found = await self.now(msgspec.structs.replace(asked, wait_seconds=0.0))
        if found.items or not asked.wait_seconds:
            return found
        watchers = self.server.watchers
        with watchers.place(line_of(self.visit)):
            self.leave_turn()
            later = await watchers.unless_ending(self.later(asked, found.position))
        return found if later is None else later

    def leave_turn(self) -> None:
        """From now on it only waits."""
        if self.visit.turn is not None:
            self.visit.turn.leave()

    async def now(self, asked: ReadChanges) -> Changes:
        """A page, with the rights of now.

        Raises:
            Unauthorized: The token is not good any more.
        """
        server = self.server
        self.visit.actor = server.doorkeeper.actor(self.request.scope, self.visit)
        context = await context_of(self.request)
        realm = await server.hub.realm(context.actor.realm)
        return await self.read(realm, asked, context)

    async def later(self, asked: ReadChanges, position: str) -> Changes:
        """The next page after a position. It is waited for a part of the time that a request may
        take at most."""
        seconds = min(asked.wait_seconds, self.server.settings.request_seconds / 2)
        return await self.now(msgspec.structs.replace(asked, after=position, wait_seconds=seconds))


class SpaceFeed(Feed):
    """What a space tells of its changes."""

    def __init__(self, request: Request, space_id: str) -> None:
        super().__init__(request)
        self._space_id = space_id

    async def read(self, realm: RealmHub, asked: ReadChanges, context: Context) -> Changes:
        return await realm.send(self._space_id, asked, context)


class StorageFeed(Feed):
    """The changes of a storage."""

    def __init__(self, request: Request, storage_id: str, collections: tuple[str, ...]) -> None:
        super().__init__(request)
        self._storage_id = storage_id
        self._collections = collections

    async def read(self, realm: RealmHub, asked: ReadChanges, context: Context) -> Changes:
        return await read_storage_changes(
            realm, self._storage_id, self._collections, asked, context.actor
        )

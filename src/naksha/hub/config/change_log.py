"""Change log of a realm's configuration: which objects changed, when, and by which actor."""

from __future__ import annotations

from typing import Any

from naksha.catalog.catalog import OpenRealm
from naksha.catalog.commit_log import LogCursor, LogPage
from naksha.catalog.entities import EntitiesCommit, EntityChange
from naksha.catalog.objects import Object, ObjectRef
from naksha.hub.config.change_rights import is_visible
from naksha.hub.config.objects import POINTER, Connector, HubObject, Role, Space, StorageObject
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import Forbidden

KINDS: dict[str, type[HubObject]] = {
    kind.kind: kind for kind in (Space, Connector, StorageObject, Role, Subscription)
}


class ConfigLog:
    """Configuration log for one actor, limited to changes of objects that the actor may see."""

    def __init__(self, realm: OpenRealm, actor: Actor) -> None:
        if not any(actor.rights.grants.get(kind.use_right) for kind in KINDS.values()):
            raise Forbidden(
                "Reading the configuration log requires a right to use at least one kind of "
                "object; request a token or a role that grants one"
            )
        self._realm = realm
        self._actor = actor
        self._log = realm.entities(POINTER).log

    async def newest_first(self, before: str | None, limit: int) -> dict[str, Any]:
        """Return commits in descending order, from the newest or from just before a cursor."""
        return await self._page(await self._log.newest_first(before, limit))

    async def oldest_first(self, after: str | None, limit: int) -> dict[str, Any]:
        """Return commits in ascending order, from the first or from just after a cursor."""
        return await self._page(await self._log.oldest_first(after, limit))

    async def since(self, time_ms: int, limit: int) -> dict[str, Any]:
        """Return commits in ascending order, from a point in time."""
        return await self.oldest_first(await self._log.before(time_ms * 1000), limit)

    async def _page(self, page: LogPage[EntitiesCommit]) -> dict[str, Any]:
        created = LogCursor.parse(page.cursor).created
        commits = [await self._commit(commit, created) for commit in page.commits]
        return {"type": "ConfigurationChanges", "commits": commits, "next": page.cursor}

    async def _commit(self, commit: Object[EntitiesCommit], created: int) -> dict[str, Any]:
        value = commit.value
        changes = [each for change in value.changes if (each := await self._shown(change))]
        is_hidden = bool(value.changes) and not changes
        return {
            "cursor": str(LogCursor(created, value.seq, commit.id)),
            "version": value.seq,
            "time": value.at_us // 1000,
            "message": "" if is_hidden else value.message,
            "appId": "" if is_hidden else value.app_id,
            "author": "" if is_hidden else value.author,
            "changes": changes,
        }

    async def _shown(self, change: EntityChange) -> dict[str, Any] | None:
        """Return a change as JSON if the actor may see the object before or after it, else None."""
        name, _, id = change.key.partition("/")
        kind = KINDS.get(name)
        refs = [ObjectRef.from_bytes(each) for each in (change.ref, change.old) if each]
        if kind is None:
            return None
        found = await self._realm.persistence.fetch_many(refs, kind)
        if not any(
            entity is not None and is_visible(entity.value, self._actor) for entity in found
        ):
            return None
        return {"action": change.action, "kind": name, "id": id}

"""Reverse references: which objects name an object, and which spaces are stored in a collection.

The commit that removes an object checks that no other object needs it. The index keeps the terms of
every object (what it names, where it is stored, who owns it) and, for each term, the objects that
have it, so that the check does not read all objects.

The index follows the commits. Each look-up takes a snapshot, or an edit with its own changes. The
index first reads again the objects that differ between this state and that of the last look-up. It
does not matter which of them is older, or whether either was ever committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from naksha.catalog.entities import LIST_PAGE, EntitySnapshot
from naksha.hub.config.objects import Connector, HubObject, Space, key_of
from naksha.hub.config.references import (
    connectors_named,
    stored_by,
    stored_in,
    stored_references_of,
)
from naksha.hub.config.space_collections import SpaceCollection
from naksha.hub.pipeline.default_pipeline import own_connectors
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import NakshaError

Term: TypeAlias = str | tuple[str, str]
"""The key of a named object, `owned_by` an owner, or the storage and the id of a collection."""
_KINDS: Final = (Space, Connector, Subscription)
"""Storages and roles name nothing."""
_PREFIXES: Final = tuple(f"{kind.kind}/" for kind in _KINDS)
_STEPS_MAX: Final = 50
"""How many look-ups the index can go back without reading all objects again."""
_USERS_NAMED_MAX: Final = 5
"""An error names at most so many users of an object."""


class _IndexUpdate(NamedTuple):
    """A move of the index: to a commit, or to the uncommitted changes of an edit."""

    commit: int | None
    keys: frozenset[str]
    """The objects that may differ from the step before."""


class ReferenceIndex:
    """The objects of a realm by their terms."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._terms: dict[str, frozenset[Term]] = {}
        self._keys: dict[Term, set[str]] = {}
        self._steps: list[_IndexUpdate] = []

    async def keys(self, snapshot: EntitySnapshot, term: Term) -> set[str]:
        """Return the keys of the objects that have a term."""
        async with self._lock:
            await self._follow(snapshot)
            return set(self._keys.get(term, ()))

    async def spaces_served_by(self, snapshot: EntitySnapshot, connector_id: str) -> list[Space]:
        """Return the spaces with a connector in their pipeline, other than as a processor."""
        spaces = await self._spaces(snapshot, key_of(Connector, connector_id))
        return [space for space in spaces if connector_id in space.event_handler_ids]

    async def spaces_stored_in(
        self, snapshot: EntitySnapshot, storage_id: str, collection_id: str
    ) -> list[Space]:
        """Return the spaces that are stored in a collection, in the order of their ids."""
        return await self._spaces(snapshot, (storage_id, collection_id))

    async def _spaces(self, snapshot: EntitySnapshot, term: Term) -> list[Space]:
        keys = sorted(await self.keys(snapshot, term))
        return [entity async for entity in _read(snapshot, keys) if isinstance(entity, Space)]

    async def users_of(self, snapshot: EntitySnapshot, entity: HubObject) -> list[str]:
        """Return some of the objects that reference an object, as an error lists them."""
        keys = await self.keys(snapshot, entity.key) - {entity.key}
        named = (key.split("/", 1) for key in sorted(keys)[:_USERS_NAMED_MAX])
        return [f"{kind} {id!r}" for kind, id in named]

    async def unused_without(self, snapshot: EntitySnapshot, space: Space) -> list[SpaceCollection]:
        """Return the collections of a space that no other space is stored in."""
        return [
            each
            for each in await stored_in(snapshot, space)
            if await self.keys(snapshot, each.place) <= {space.key}
        ]

    # ---- Following the commits -------------------------------------------------------------------

    async def _follow(self, snapshot: EntitySnapshot) -> None:
        """Bring the index to the state of a snapshot.

        All changes of the index come after the last `await`, so that a cancelled look-up leaves
        it unchanged.
        """
        found = await self._changed(snapshot)
        terms: dict[str, frozenset[Term]] = {}
        if found is None:
            async for entity in _all(snapshot):
                terms[entity.key] = await _terms_of(snapshot, entity)
            self._terms, self._keys, self._steps = {}, {}, []
        else:
            kept, keys = found
            terms = dict.fromkeys(keys, frozenset())
            async for entity in _read(snapshot, [*keys]):
                terms[entity.key] = await _terms_of(snapshot, entity)
            del self._steps[kept:]
        for key, now in terms.items():
            self._set(key, now)
        self._note(snapshot, frozenset(() if found is None else terms))

    async def _changed(self, snapshot: EntitySnapshot) -> tuple[int, set[str]] | None:
        """Return the number of steps that lead to a snapshot, and the objects that may differ.

        None if it is faster to read all objects.
        """
        known = {step.commit: place for place, step in enumerate(self._steps, start=1)}
        if not known:
            return None
        keys, passed = set(snapshot.changed_keys), 0
        async for commit in snapshot.commits():
            kept = known.get(commit.id)
            if kept is not None:
                keys.update(*(step.keys for step in self._steps[kept:]))
                return kept, self._with_dependents(keys)
            if passed > len(self._terms):
                break
            passed += 1
            keys.update(change.key for change in commit.value.changes)
        return None

    def _with_dependents(self, keys: Iterable[str]) -> set[str]:
        """Add the users of changed connectors: where a space is stored depends on them."""
        found = {key for key in keys if key.startswith(_PREFIXES)}
        for connector in [key for key in found if key.startswith(f"{Connector.kind}/")]:
            found |= self._keys.get(connector, set())
        return found

    def _set(self, key: str, now: frozenset[Term]) -> None:
        """Replace the terms of an object."""
        for term in self._terms.pop(key, frozenset()) - now:
            others = self._keys[term]
            others.discard(key)
            if not others:
                del self._keys[term]
        for term in now:
            self._keys.setdefault(term, set()).add(key)
        if now:
            self._terms[key] = now

    def _note(self, snapshot: EntitySnapshot, keys: frozenset[str]) -> None:
        """Record the steps to a snapshot."""
        if snapshot.commit is None:
            return
        if not self._steps or self._steps[-1].commit != snapshot.commit.id:
            self._steps.append(_IndexUpdate(snapshot.commit.id, keys))
        if snapshot.changed_keys:
            changed = self._with_dependents(snapshot.changed_keys)
            self._steps.append(_IndexUpdate(None, frozenset(changed)))
        del self._steps[:-_STEPS_MAX]


def owned_by(owner: str) -> Term:
    """Return the term of the spaces of an owner."""
    return f"owner/{owner}"


async def _all(snapshot: EntitySnapshot) -> AsyncIterator[HubObject]:
    for kind in _KINDS:
        read = 0
        async for _, found in snapshot.list(f"{kind.kind}/", kind):
            yield found.value
            read += 1
            if read % LIST_PAGE == 0:
                await asyncio.sleep(0)  # let the hub serve requests meanwhile


async def _read(snapshot: EntitySnapshot, keys: Sequence[str]) -> AsyncIterator[HubObject]:
    """Yield the existing objects with these keys."""
    for start in range(0, len(keys), LIST_PAGE):
        for found in await snapshot.get_many(keys[start : start + LIST_PAGE], HubObject):
            if found is not None:
                yield found.value


async def _terms_of(snapshot: EntitySnapshot, entity: HubObject) -> frozenset[Term]:
    terms: set[Term] = {name.key for name in stored_references_of(entity)}
    if isinstance(entity, Space):
        terms.add(owned_by(entity.owner))
        named = entity.event_handler_ids
        connectors = await connectors_named(snapshot, named) if named else None
        with suppress(NakshaError):  # the space cannot serve requests either
            used = own_connectors(entity) if connectors is None else connectors
            terms |= {each.place for each in stored_by(entity, used)}
    return frozenset(terms)

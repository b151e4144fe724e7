"""Identifiers: extensions that define what maintenance retains.

A *realm identifier* claims realms and may refine the default, which retains every pointer with a
part of its log. A realm that no identifier claims is left alone. A *type identifier* returns the
objects that objects of a type refer to; a registered type without one refers to nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, Protocol

from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.maintenance.retention import Retention, RetentionRule, retention_of
from naksha.catalog.objects import Object, ObjectRef
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.catalog.realms import Realm
from naksha.catalog.system_objects import SYSTEM_REALM


class RealmIdentifier(ABC):
    """Defines what is retained in realms; None means no opinion.

    Whatever one identifier retains is retained, whatever others return.
    """

    @abstractmethod
    def claims(self, realm: str) -> bool:
        """Return whether this identifier knows what is needed in the realm."""

    def keeps_pointer(self, realm: str, pointer: Pointer) -> bool | None:
        """Return False to delete a pointer, with everything that nothing else refers to."""
        return None

    def keeps_conditional(self, realm: str, kind: str) -> bool | None:
        """Return False if conditional objects of the type are needed only when referred to."""
        return None

    def retention(self, realm: str, pointer: str) -> Retention | None:
        """Return how much of a pointer's log is kept."""
        return None

    async def roots(self, reader: RealmReader) -> AsyncIterator[ObjectRef]:
        """Iterate over objects that are needed although no pointer leads to them."""
        none: tuple[ObjectRef, ...] = ()
        for ref in none:
            yield ref

    async def release(self, realm: Realm, persistence: Persistence) -> None:  # noqa: B027
        """Release what a realm holds outside of the catalog.

        It is called before the rows of the realm are deleted. An error postpones that to the next
        run, so it may be called several times.
        """


class TypeIdentifier(Protocol):
    """Knows the objects of one type."""

    type: str

    def references(self, kept: Object[Any], reader: RealmReader) -> AsyncIterator[ObjectRef]:
        """Iterate over the objects that an object refers to."""


class AllRealms(RealmIdentifier):
    """Claims every realm, and retains logs by rules, of which the first match applies."""

    def __init__(self, rules: Sequence[RetentionRule] = ()) -> None:
        self._rules = rules

    def claims(self, realm: str) -> bool:
        return realm != SYSTEM_REALM

    def retention(self, realm: str, pointer: str) -> Retention | None:
        return retention_of(pointer, self._rules)


class SystemRealm(RealmIdentifier):
    """Claims the realm of the catalog itself."""

    _RUNS: Final = Retention(commits=200, seconds=0)
    """Runs are stored by their number; the commits that led to them are soon obsolete."""

    def claims(self, realm: str) -> bool:
        return realm == SYSTEM_REALM

    def retention(self, realm: str, pointer: str) -> Retention | None:
        return self._RUNS if pointer == "maintenance" else None


class Identifiers:
    """All registered identifiers."""

    def __init__(
        self, realms: Iterable[RealmIdentifier], types: Iterable[TypeIdentifier] = ()
    ) -> None:
        self._realms = [SystemRealm(), *realms]
        self.types = {identifier.type: identifier for identifier in types}

    def of(self, realm: str) -> ClaimedRealm | None:
        """Return the identifiers that claim a realm, or None."""
        claiming = [identifier for identifier in self._realms if identifier.claims(realm)]
        return ClaimedRealm(realm, claiming) if claiming else None


class ClaimedRealm:
    """Combined opinion of the identifiers that claim a realm."""

    def __init__(self, realm: str, identifiers: Sequence[RealmIdentifier]) -> None:
        self.realm = realm
        self._identifiers = identifiers

    def keeps_pointer(self, pointer: Pointer) -> bool:
        return _any_keeps(each.keeps_pointer(self.realm, pointer) for each in self._identifiers)

    def keeps_conditional(self, kind: str) -> bool:
        return _any_keeps(each.keeps_conditional(self.realm, kind) for each in self._identifiers)

    def retention(self, pointer: str) -> Retention:
        """Return the longest retention of all identifiers."""
        votes = [each.retention(self.realm, pointer) for each in self._identifiers]
        found = [retention for retention in votes if retention is not None] or [Retention()]
        return Retention(
            max(retention.commits for retention in found),
            max(retention.seconds for retention in found),
        )

    async def roots(self, reader: RealmReader) -> AsyncIterator[ObjectRef]:
        for identifier in self._identifiers:
            async for ref in identifier.roots(reader):
                yield ref

    async def release(self, realm: Realm, persistence: Persistence) -> None:
        for identifier in self._identifiers:
            await identifier.release(realm, persistence)


def _any_keeps(opinions: Iterable[bool | None]) -> bool:
    votes = set(opinions)
    return True in votes or False not in votes

"""Who says what is to be retained.

A *realm identifier* claims realms and may say more about them than the rule: every pointer is
retained, with so much of its log. A realm that nobody claims is left alone. A *type identifier*
says which objects the objects of a type refer to; a registered type without one refers to nothing.
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
    """Answers with None where it has no opinion. What one wants to retain is retained, whatever
    others say."""

    @abstractmethod
    def claims(self, realm: str) -> bool:
        """Whether this one knows what is needed in the realm."""

    def keeps_pointer(self, realm: str, pointer: Pointer) -> bool | None:
        """False: it is to be deleted, with all that nothing else points to."""
        return None

    def keeps_conditional(self, realm: str, kind: str) -> bool | None:
        """False: conditional objects of the type are needed only if something refers to them."""
        return None

    def retention(self, realm: str, pointer: str) -> Retention | None:
        """How much of a pointer's log is kept."""
        return None

    async def roots(self, reader: RealmReader) -> AsyncIterator[ObjectRef]:
        """Objects that are needed although no pointer leads to them."""
        none: tuple[ObjectRef, ...] = ()
        for ref in none:
            yield ref

    async def release(self, realm: Realm, persistence: Persistence) -> None:  # noqa: B027
        """Release what a realm holds outside of the catalog. Called before its rows are deleted;
        an error postpones that to the next run, so it may be called several times."""


class TypeIdentifier(Protocol):
    """Knows the objects of one type."""

    type: str

    def references(self, kept: Object[Any], reader: RealmReader) -> AsyncIterator[ObjectRef]:
        """What an object refers to."""


class AllRealms(RealmIdentifier):
    """Claims every realm, and retains logs by rules: the first one that matches counts."""

    def __init__(self, rules: Sequence[RetentionRule] = ()) -> None:
        self._rules = rules

    def claims(self, realm: str) -> bool:
        return realm != SYSTEM_REALM

    def retention(self, realm: str, pointer: str) -> Retention | None:
        return retention_of(pointer, self._rules)


class SystemRealm(RealmIdentifier):
    """Claims the realm of the catalog itself."""

    _RUNS: Final = Retention(commits=200, seconds=0)
    """Runs are remembered by their number; how each of them came about is not needed for long."""

    def claims(self, realm: str) -> bool:
        return realm == SYSTEM_REALM

    def retention(self, realm: str, pointer: str) -> Retention | None:
        return self._RUNS if pointer == "maintenance" else None


class Identifiers:
    """All that are asked."""

    def __init__(
        self, realms: Iterable[RealmIdentifier], types: Iterable[TypeIdentifier] = ()
    ) -> None:
        self._realms = [SystemRealm(), *realms]
        self.types = {identifier.type: identifier for identifier in types}

    def of(self, realm: str) -> ClaimedRealm | None:
        """Those that claim a realm; None: nobody does."""
        claiming = [identifier for identifier in self._realms if identifier.claims(realm)]
        return ClaimedRealm(realm, claiming) if claiming else None


class ClaimedRealm:
    """What those who claim a realm say together."""

    def __init__(self, realm: str, identifiers: Sequence[RealmIdentifier]) -> None:
        self.realm = realm
        self._identifiers = identifiers

    def keeps_pointer(self, pointer: Pointer) -> bool:
        return _together(each.keeps_pointer(self.realm, pointer) for each in self._identifiers)

    def keeps_conditional(self, kind: str) -> bool:
        return _together(each.keeps_conditional(self.realm, kind) for each in self._identifiers)

    def retention(self, pointer: str) -> Retention:
        """What keeps more, when several have something to say."""
        said = [each.retention(self.realm, pointer) for each in self._identifiers]
        found = [retention for retention in said if retention is not None] or [Retention()]
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


def _together(answers: Iterable[bool | None]) -> bool:
    said = set(answers)
    return True in said or False not in said

"""Storage identities: ids and numbers that are unique in a catalog.

State ids name their storage by its id, UUIDs by its number. A new storage therefore gets an id
derived from its name in the catalog, and an unused random number. The catalog stores both with the
configuration of the storage, so that they are known without opening it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.config.objects import Identity, StorageObject
from naksha.hub.pipeline.request_context import DEFAULT_REALM
from naksha.model import limits
from naksha.model.errors import Conflict
from naksha.model.identity.names import check_storage_id, storage_id_from
from naksha.model.identity.uuids import STORAGE_NUMBER_MAX
from naksha.spi.storage import Storage

_ID: Final = "storageId"
_NUMBER: Final = "number"
_random: Final = random.SystemRandom()


class RegisteredStorage(NamedTuple):
    """A storage of a realm with its identity, if known."""

    realm: str
    name: str
    identity: Identity | None


async def registered_in(realm: str, snapshot: EntitySnapshot) -> list[RegisteredStorage]:
    """Return the storages of a realm."""
    found = snapshot.list(f"{StorageObject.kind}/", StorageObject)
    return [RegisteredStorage(realm, each.value.id, each.value.identity) async for _, each in found]


def identity_of(storage: Storage) -> Identity:
    """Return the identity of an open storage."""
    known = storage.identity
    return Identity(id=known.id, number=known.number, former_ids=tuple(known.former_ids))


def proposed_identity(
    realm: str,
    entity: StorageObject,
    others: Collection[RegisteredStorage],
    avoid: Collection[str] = (),
) -> Identity:
    """Return the identity that a storage gets if it is new.

    Its properties take precedence; otherwise the id is derived from its name and the number is
    random, and no other storage has either.
    """
    known = [each.identity for each in others if each.identity is not None]
    taken = {id for each in known for id in (each.id, *each.former_ids)} | set(avoid)
    numbers = {each.number for each in known}
    id, number = entity.properties.get(_ID), entity.properties.get(_NUMBER)
    if id is None:
        id = _free(_name(realm, entity.id), taken)
    while number is None or (_NUMBER not in entity.properties and number in numbers):
        number = _random.randint(0, STORAGE_NUMBER_MAX)
    check_storage_id(id, field=f"properties.{_ID}")
    return Identity(id=id, number=number)


def check_unique(realm: str, entity: StorageObject, others: Iterable[RegisteredStorage]) -> None:
    """Raise Conflict if another storage has the same id or number.

    The error does not reveal the names of other realms' storages.
    """
    assert entity.identity is not None
    for other in duplicates_of(entity.identity, others):
        name = f"the storage {other.name!r}" if other.realm == realm else "another realm's storage"
        raise Conflict(
            f"The storage {entity.id!r} has the id {entity.identity.id!r} and the number "
            f"{entity.identity.number}, but {name} has the same id or number. They must be unique: "
            "if this storage is a copy, run `naksha storage fork` on it first",
            field="properties.location",
        )


def duplicates_of(
    identity: Identity, others: Iterable[RegisteredStorage]
) -> list[RegisteredStorage]:
    """Return the storages with the same id or number."""
    return [
        each
        for each in others
        if each.identity is not None
        and (each.identity.id == identity.id or each.identity.number == identity.number)
    ]


def with_identity(entity: StorageObject, identity: Identity | None) -> StorageObject:
    """Return the storage with its identity replaced."""
    return msgspec.structs.replace(entity, identity=identity)


def _name(realm: str, name: str) -> str:
    return storage_id_from(name if realm == DEFAULT_REALM else f"{realm}-{name}")


def _free(id: str, taken: Collection[str]) -> str:
    """Return the id, with a numeric suffix if it is taken."""
    if id not in taken:
        return id
    tries = (f"-{n}" for n in itertools.count(2))
    return next(
        made
        for tail in tries
        if (made := id[: limits.STORAGE_ID_LENGTH_MAX - len(tail)] + tail) not in taken
    )

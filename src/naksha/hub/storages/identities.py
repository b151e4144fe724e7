"""Ids and numbers of the storages of a catalog: no two share one.

State ids name their storage by its id, UUIDs by its number. So a new storage takes its id from its
name in the catalog, and a random number that no other storage has. The catalog keeps both with the
configuration of the storage, so that they are known without opening it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.entities import Snapshot
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


class Registered(NamedTuple):
    """A storage of a realm, and its id and number as far as they are known."""

    realm: str
    name: str
    identity: Identity | None


async def registered_in(realm: str, snapshot: Snapshot) -> list[Registered]:
    """The storages of a realm."""
    found = snapshot.list(f"{StorageObject.kind}/", StorageObject)
    return [Registered(realm, each.value.id, each.value.identity) async for _, each in found]


def identity_of(storage: Storage) -> Identity:
    """The id and number of an open storage."""
    known = storage.identity
    return Identity(id=known.id, number=known.number, former_ids=tuple(known.former_ids))


def proposed_identity(
    realm: str, thing: StorageObject, others: Collection[Registered], avoid: Collection[str] = ()
) -> Identity:
    """The id and number for a storage in case it is new: those that its properties ask for, else
    an id made from its name and a random number, neither of which another storage has."""
    known = [each.identity for each in others if each.identity is not None]
    taken = {id for each in known for id in (each.id, *each.former_ids)} | set(avoid)
    numbers = {each.number for each in known}
    id, number = thing.properties.get(_ID), thing.properties.get(_NUMBER)
    if id is None:
        id = _free(_name(realm, thing.id), taken)
    while number is None or (_NUMBER not in thing.properties and number in numbers):
        number = _random.randint(0, STORAGE_NUMBER_MAX)
    check_storage_id(id, field=f"properties.{_ID}")
    return Identity(id=id, number=number)


def check_unique(realm: str, thing: StorageObject, others: Iterable[Registered]) -> None:
    """Conflict when another storage has the id or the number of this one. A realm does not learn
    the names of others."""
    assert thing.identity is not None
    for other in duplicates_of(thing.identity, others):
        name = f"the storage {other.name!r}" if other.realm == realm else "another realm's storage"
        raise Conflict(
            f"The storage {thing.id!r} has the id {thing.identity.id!r} and the number "
            f"{thing.identity.number}, and {name} has one of them, too. Each storage needs its "
            "own: if this one is a copy, run `naksha storage fork` on it first",
            field="properties.location",
        )


def duplicates_of(identity: Identity, others: Iterable[Registered]) -> list[Registered]:
    """The storages that have the same id or number."""
    return [
        each
        for each in others
        if each.identity is not None
        and (each.identity.id == identity.id or each.identity.number == identity.number)
    ]


def with_identity(thing: StorageObject, identity: Identity | None) -> StorageObject:
    """The storage with an id and a number."""
    return msgspec.structs.replace(thing, identity=identity)


def _name(realm: str, name: str) -> str:
    return storage_id_from(name if realm == DEFAULT_REALM else f"{realm}-{name}")


def _free(id: str, taken: Collection[str]) -> str:
    """The id, with a number behind it if it is taken."""
    if id not in taken:
        return id
    tries = (f"-{n}" for n in itertools.count(2))
    return next(
        made
        for tail in tries
        if (made := id[: limits.STORAGE_ID_LENGTH_MAX - len(tail)] + tail) not in taken
    )

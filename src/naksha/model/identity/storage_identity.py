"""Identity of a storage: its id and number, and those that it had before it was forked.

State ids begin with the id of their storage, UUIDs end with its number. A fork gives a copied
storage a new id and number. States written before the fork keep their ids, so the storage remembers
which row numbers it wrote under which identity: a former id with a greater row number is a state
that the original storage wrote after the copy.
"""

from __future__ import annotations

import msgspec

from naksha.model.errors import Conflict, VersionNotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import parse_txn
from naksha.model.identity.uuids import StateRef, Uuid


class FormerIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """Id and number that a storage had before a fork."""

    id: str
    number: int
    txn: int
    """The last transaction under this identity."""
    version: int
    """The last published version under this identity."""
    last_i: dict[str, int]
    """The last row number of each collection."""


class StorageIdentity(msgspec.Struct, frozen=True):
    """Id and number of a storage, and its former ones, oldest first."""

    id: str
    number: int
    former: tuple[FormerIdentity, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """Id and number."""
        return self.id, self.number

    @property
    def former_ids(self) -> list[str]:
        """Ids that the storage had before."""
        return [each.id for each in self.former]

    def wrote(self, reference: StateRef, collection: str) -> bool:
        """Return whether this storage assigned a state id to a state of a collection.

        For a UUID the caller must have checked the number of the collection.
        """
        first = 0
        for former in self.former:
            last = max(first - 1, former.last_i.get(collection, 0))
            if _is_named(former, reference):
                return first <= reference.i <= last
            first = last + 1
        return _is_named(self, reference) and reference.i >= first

    def number_at(self, txn: int) -> int:
        """Return the number that the storage had when it allocated a transaction number."""
        return next((each.number for each in self.former if txn <= each.txn), self.number)

    def txn_of(self, transaction: int | str) -> int:
        """Return a transaction number given as such, as decimal text or as UUID.

        Raises:
            VersionNotFound: The UUID belongs to a transaction of another storage.
        """
        if not isinstance(transaction, str) or "-" not in transaction:
            return parse_txn(transaction)
        found = Uuid.parse(transaction)
        if found.storage_number != self.number_at(found.txn):
            raise VersionNotFound(
                f"Transaction {transaction} was not written by storage {self.id!r}; look it up in "
                "the storage that wrote it"
            )
        return found.txn

    def knows(self, reference: StateRef) -> bool:
        """Return whether a state id has the current or a former id or number of the storage."""
        return _is_named(self, reference) or any(_is_named(f, reference) for f in self.former)

    def shares_versions(self, number: int, version: int) -> bool:
        """Return whether a version of the storage with `number` is also a version of this one."""
        return number == self.number or any(
            each.number == number and version <= each.version for each in self.former
        )


def parse_identity(id_: str, number: int, former: str | bytes) -> StorageIdentity:
    """Parse the identity as stored: `former` is a JSON array."""
    known = msgspec.json.decode(former, type=tuple[FormerIdentity, ...], strict=False)
    return StorageIdentity(id_, number, known)


def check_fork(identity: StorageIdentity, id_: str) -> None:
    """Refuse an id for a fork that the storage has or had before."""
    if id_ in (identity.id, *identity.former_ids):
        raise Conflict(
            f"The storage {identity.id!r} has, or had, the id {id_!r}; "
            "give the fork an id that the storage never had",
            field="id",
        )


def _is_named(identity: StorageIdentity | FormerIdentity, reference: StateRef) -> bool:
    if isinstance(reference, Guid):
        return reference.storage_id == identity.id
    return reference.storage_number == identity.number

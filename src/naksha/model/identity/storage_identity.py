"""Identity of a storage: its id, its number, and those that it had before it was forked.

State ids begin with the id of their storage, UUIDs end with its number. A fork gives a copied
storage a new id and number. States written before keep their ids, so the storage remembers under
which identity it wrote which row numbers: the same former id and a greater row number is a state
of the original, written after the copy was made.
"""

from __future__ import annotations

import msgspec

from naksha.model.errors import Conflict, VersionNotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import parse_txn
from naksha.model.identity.uuids import StateRef, Uuid


class FormerIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """An id and a number that a storage had before a fork."""

    id: str
    number: int
    txn: int
    """The last transaction of that time."""
    version: int
    """The last published version of that time."""
    last_i: dict[str, int]
    """The last row number of each collection."""


class StorageIdentity(msgspec.Struct, frozen=True):
    """The id and number of a storage, and its former ones, oldest first."""

    id: str
    number: int
    former: tuple[FormerIdentity, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """Id and number."""
        return self.id, self.number

    @property
    def former_ids(self) -> list[str]:
        """The ids that it had before."""
        return [each.id for each in self.former]

    def wrote(self, reference: StateRef, collection: str) -> bool:
        """Whether a state id is one that this storage gave to a state of a collection. For a UUID
        the caller has checked the number of the collection."""
        first = 0
        for former in self.former:
            last = max(first - 1, former.last_i.get(collection, 0))
            if _is_named(former, reference):
                return first <= reference.i <= last
            first = last + 1
        return _is_named(self, reference) and reference.i >= first

    def number_at(self, txn: int) -> int:
        """The number that the storage had when it drew a transaction."""
        return next((each.number for each in self.former if txn <= each.txn), self.number)

    def txn_of(self, transaction: int | str) -> int:
        """The number of a transaction that is given as such, as decimal text, or as UUID.

        Raises:
            VersionNotFound: The UUID is of a transaction of another storage.
        """
        if not isinstance(transaction, str) or "-" not in transaction:
            return parse_txn(transaction)
        found = Uuid.parse(transaction)
        if found.storage_number != self.number_at(found.txn):
            raise VersionNotFound(f"Transaction {transaction} is of another storage")
        return found.txn

    def knows(self, reference: StateRef) -> bool:
        """Whether a state id has the present or a former id or number."""
        return _is_named(self, reference) or any(_is_named(f, reference) for f in self.former)

    def shares_versions(self, number: int, version: int) -> bool:
        """Whether a version of the storage with a number is a version of this one."""
        return number == self.number or any(
            each.number == number and version <= each.version for each in self.former
        )


def parse_identity(id_: str, number: int, former: str | bytes) -> StorageIdentity:
    """The identity as a storage keeps it: `former` is a JSON array."""
    known = msgspec.json.decode(former, type=tuple[FormerIdentity, ...], strict=False)
    return StorageIdentity(id_, number, known)


def check_fork(identity: StorageIdentity, id_: str) -> None:
    """Refuse an id for a fork that the storage has, or had before."""
    if id_ in (identity.id, *identity.former_ids):
        raise Conflict(
            f"The storage has, or had, the id {id_!r}; a fork needs an id that it never had",
            field="id",
        )


def _is_named(identity: StorageIdentity | FormerIdentity, reference: StateRef) -> bool:
    if isinstance(reference, Guid):
        return reference.storage_id == identity.id
    return reference.storage_number == identity.number

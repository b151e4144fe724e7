"""Objects of the catalog itself: in the realm `::system::`, with ids that no generator produces.

No pointer leads to them; maintenance keeps them without limit.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import Final, TypeVar

from naksha.catalog.objects import decode, encode, type_id
from naksha.model.errors import OutcomeUnknown, StorageCorrupt, Unavailable
from naksha.model.limits import INT8_MAX
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow

SYSTEM_REALM: Final = "::system::"

ID_SPEC_ID: Final = INT8_MAX
PEER_SECRET_ID: Final = INT8_MAX - 1
"""Id of the secret that instances share."""
MAINTENANCE_ID: Final = INT8_MAX - 2
"""Id of the state of the catalog's maintenance rounds.

This and the ids above have the largest timestamp, the largest node and one of the largest
sequences; the leases of nodes have the largest timestamp and sequence 0.
"""

_ATTEMPTS_MAX: Final = 10

V = TypeVar("V")


def new_token() -> str:
    """Return a unique token for a conditional write."""
    return secrets.token_urlsafe(12)


async def store_constant(backend: CatalogBackend, id: int, value: V, created_us: int) -> V:
    """Store a constant of the whole catalog unless it exists, and return the stored value.

    The first writer decides it.
    """
    key = ObjectKey(id)
    row = ObjectRow(id, 0, 1, type_id(value), encode(value), created_us, new_token())
    for _ in range(_ATTEMPTS_MAX):
        found = (await backend.fetch(SYSTEM_REALM, [key])).get(key)
        if found is not None:
            if found.type != row.type:
                raise StorageCorrupt(
                    f"Object {id} of realm {SYSTEM_REALM!r} is of type {found.type!r}, not "
                    f"{row.type!r}; restore the catalog from a backup"
                )
            kept: V = decode(found.type, found.value)
            return kept
        # An insert that takes effect late is harmless: the first one counts, and the loop reads it.
        with contextlib.suppress(OutcomeUnknown):
            if await backend.insert(SYSTEM_REALM, row):
                return value
    raise Unavailable(f"The catalog could not confirm that its {row.type!r} is stored; retry later")

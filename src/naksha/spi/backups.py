"""Backup and restore of storages and catalogs by location, and the check of what was restored.

    facts = await back_up_storage("file:town.naksha", Path("copy"), {})
    await restore_storage("file:restored.naksha", Path("copy"), {}, facts)

A backend that has backups has `back_up(location, file, …)`, which copies one consistent state while
others write, and `restore(location, file, …)`, which writes it to an empty location.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from naksha.model.errors import NotSupported, StorageCorrupt
from naksha.model.query import Query
from naksha.model.version import HEAD
from naksha.spi.locations import CATALOGS, STORAGES, BackendGroup, redacted
from naksha.spi.storage import Storage
from naksha.spi.storage_factory import open_storage

MISMATCHES_MAX: Final = 10
_OPTIONS: Final = ("schema",)
"""Options of a location that name the place of its data."""


class StorageFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Contents of a backup of a storage, for the check of the restored storage."""

    id: str
    number: int
    last_version: int
    features: dict[str, int]
    """Number of live features by collection."""
    extensions: dict[str, str] = {}
    """Extensions of the database that the storage needs, and the schema of each."""


async def facts_of(storage: Storage) -> StorageFacts:
    """Return the facts of a storage that is not written to."""
    last = await storage.resolve(HEAD)
    counts = {one.id: await storage.count(one.id, Query()) for one in await storage.collections()}
    return StorageFacts(storage.identity.id, storage.identity.number, last.seq_number, counts)


async def back_up_storage(location: str, file: Path, options: Mapping[str, Any]) -> StorageFacts:
    """Copy a storage to a new file while others write, and return its facts."""
    backend = _backend(STORAGES, location, "back_up")
    facts: StorageFacts = await backend.back_up(location, file, **_place(options))
    return facts


async def back_up_catalog(location: str, file: Path) -> None:
    """Copy a catalog to a new file while others write."""
    await _backend(CATALOGS, location, "back_up").back_up(location, file)


async def check_empty(
    group: BackendGroup,
    location: str,
    options: Mapping[str, Any],
    facts: StorageFacts | None = None,
) -> None:
    """Check that a location can be restored to.

    Raises:
        Conflict: It is not empty.
        NotSupported: It lacks an extension that the storage of the facts needs.
    """
    backend = _backend(group, location, "check_empty")
    await backend.check_empty(location, **_place(options), **_extensions(facts))


async def restore_catalog(location: str, file: Path) -> None:
    """Write a copy of a catalog to an empty location."""
    await _backend(CATALOGS, location, "restore").restore(location, file)


async def restore_storage(
    location: str, file: Path, options: Mapping[str, Any], facts: StorageFacts
) -> None:
    """Write a copy of a storage to an empty location, and check it.

    Raises:
        Conflict: The location is not empty.
        StorageCorrupt: The restored storage differs from the facts, or breaks an invariant.
    """
    place = _place(options)
    backend = _backend(STORAGES, location, "restore")
    await backend.restore(location, file, **place, **_extensions(facts))
    async with open_storage(location, must_exist=True, **place) as storage:
        await check_restored(storage, facts)


async def check_restored(storage: Storage, facts: StorageFacts) -> None:
    """Compare a restored storage with the facts of its backup, and check its redundant data."""
    found = await facts_of(storage)
    # Transactions that were committed and not yet published are published when it is opened.
    if found.last_version < facts.last_version:
        raise _differs(storage, "last version", facts.last_version, found.last_version)
    for name in ("id", "number", "features"):
        if getattr(found, name) != getattr(facts, name):
            raise _differs(storage, name, getattr(facts, name), getattr(found, name))
    for collection in found.features:
        wrong = await storage.mismatches(collection, MISMATCHES_MAX)
        if wrong:
            raise StorageCorrupt(
                f"The restored storage {storage.id!r} is not consistent: {wrong[0].message}",
                collection_id=collection,
                feature_id=wrong[0].id,
            )


def _differs(storage: Storage, what: str, expected: Any, found: Any) -> StorageCorrupt:
    return StorageCorrupt(
        f"The restored storage {storage.id!r} differs from its backup: {what} is {found!r:.200}, "
        f"not {expected!r:.200}"
    )


def _backend(group: BackendGroup, location: str, method: str) -> Any:
    backend = group.find(location)
    if not hasattr(backend, method):
        raise NotSupported(
            f"The {group.noun} at {redacted(location)!r} cannot be backed up by Naksha; use the "
            "tools of its database",
            field=group.noun,
        )
    return backend


def _extensions(facts: StorageFacts | None) -> dict[str, Any]:
    return {"extensions": facts.extensions} if facts is not None and facts.extensions else {}


def _place(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in _OPTIONS if name in options}

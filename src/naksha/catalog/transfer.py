"""Export and import of a realm: all its pointers and objects, as a stream of bytes.

    async for chunk in export_realm(backend, "maps", clock.now_us()):
        file.write(chunk)

    realm = await import_realm(catalog, "maps", chunks)

Ids are preserved, and objects of unknown types are copied byte by byte. Other clients may write
during an export: pointers are read first, and since an object is written before a pointer leads to
it and is never changed, each pointer is exported with everything that it led to then.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, Protocol

from naksha.catalog.maintenance.realm_reader import RealmReader, batches
from naksha.catalog.maintenance.store_check import RealmCheck, check_realm
from naksha.catalog.maintenance.verification import Consistency
from naksha.catalog.object_rows import check_id
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import Realm, Realms, RealmStatus, check_realm_id
from naksha.catalog.transfer_format import (
    FORMAT,
    VERSION,
    ExportHeader,
    ObjectRecord,
    PointerRecord,
    RecordWriter,
    read_records,
)
from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument, RealmNotFound
from naksha.spi.catalog import CatalogBackend, ObjectRow, PointerRow, ScannedObject

_BATCH: Final = 100
"""Rows read or written together; each may have CATALOG_ROW_BYTES_MAX."""


class RealmImportTarget(Protocol):
    """The part of a catalog that an import needs."""

    realms: Realms

    async def realm_for_setup(self, realm: Realm) -> Persistence:
        """Return a realm that does not serve yet."""


async def export_realm(backend: CatalogBackend, realm: str, now_us: int) -> AsyncIterator[bytes]:
    """Export a whole realm, in whatever state it is."""
    check_realm_id(realm)
    writer = RecordWriter()
    yield writer.record(ExportHeader(FORMAT, VERSION, realm, now_us))
    async for each in RealmReader(backend, realm).pointers():
        yield writer.record(PointerRecord(each.name, each.target, each.created, each.previous))
    async for page in backend.scan():
        keys = [row.key for row in page if isinstance(row, ScannedObject) and row.realm == realm]
        for some in batches(keys, _BATCH):
            found = await backend.fetch(realm, some)
            # Objects deleted since the scan were garbage.
            for row in (found[key] for key in some if key in found):
                yield writer.record(
                    ObjectRecord(row.id, row.part, row.parts, row.type, row.value, row.token)
                )
    yield writer.trailer()


async def import_realm(
    catalog: RealmImportTarget,
    realm_id: str,
    chunks: AsyncIterable[bytes],
    *,
    status: RealmStatus = RealmStatus.ACTIVE,
    is_repeated: bool = False,
) -> Realm:
    """Create a realm from an export, under the same name or another one.

    It leaves the state LOADING for ACTIVE or INACTIVE only after everything was imported and
    checked.

    The realm must not exist, or must be CREATED. After a failure it remains LOADING; it can then be
    purged, or the same import can be repeated.

    Raises:
        InvalidArgument: The stream is not an export, or is damaged or incomplete.
        Conflict: The realm is in use, or the export is not consistent.
    """
    if status not in (RealmStatus.ACTIVE, RealmStatus.INACTIVE):
        raise InvalidArgument(
            f"The status of an imported realm must be ACTIVE or INACTIVE, not {status}",
            field="status",
        )
    realm = await _loading(catalog.realms, realm_id, is_repeated)
    persistence = await catalog.realm_for_setup(realm)
    pointers = await _import_objects(persistence, chunks)
    await _import_pointers(persistence.backend, realm, pointers)
    check = await check_realm(RealmReader(persistence.backend, realm.id))
    if check.consistency is not Consistency.CONSISTENT:
        raise Conflict(
            f"The imported realm {realm.id!r} is not consistent: {_first_finding(check)}; export "
            "it again and import it under a new name"
        )
    return await catalog.realms.update(realm, status)


async def _loading(realms: Realms, id: str, is_repeated: bool) -> Realm:
    try:
        realm = await realms.get(id)
    except RealmNotFound:
        realm = await realms.create(id)
    if realm.status is RealmStatus.LOADING and is_repeated:
        return await realms.fence(realm)
    if realm.status is not RealmStatus.CREATED:
        raise Conflict(
            f"The realm {id!r} is {realm.status} and cannot be imported into; import under a new"
            " name",
            field="realm",
        )
    return await realms.update(realm, RealmStatus.LOADING)


async def _import_objects(
    persistence: Persistence, chunks: AsyncIterable[bytes]
) -> list[PointerRecord]:
    """Write all objects and return the pointers.

    The pointers are created only after the whole stream was validated.
    """
    pointers: list[PointerRecord] = []
    rows: list[ObjectRow] = []
    largest = 0
    async for record in read_records(chunks):
        if isinstance(record, PointerRecord):
            pointers.append(record)
        elif isinstance(record, ObjectRecord):
            rows.append(_row(record, persistence.clock.now_us()))
            largest = max(largest, record.id)
            if len(rows) == _BATCH:
                await persistence.backend.write(persistence.realm, rows)
                rows = []
    await persistence.backend.write(persistence.realm, rows)
    if largest >= persistence.new_id():  # Otherwise the id could be generated again.
        raise InvalidArgument(
            f"Object {largest} of the export has an id from the future; correct the clock of this "
            "machine, or that of the machine that exported the realm",
            field="export",
        )
    return pointers


def _row(record: ObjectRecord, now_us: int) -> ObjectRow:
    check_id(record.id)
    if len(record.value) > limits.CATALOG_ROW_BYTES_MAX:
        raise InvalidArgument(
            f"Object {record.id} of the export has a row of {len(record.value):,} bytes; at most"
            f" {limits.CATALOG_ROW_BYTES_MAX:,} are allowed",
            field="export",
        )
    return ObjectRow(
        record.id, record.part, record.parts, record.type, record.value, now_us, record.token
    )


async def _import_pointers(
    backend: CatalogBackend, realm: Realm, records: list[PointerRecord]
) -> None:
    for some in batches(records, _BATCH):
        rows = [
            PointerRow(each.name, each.target, each.created, realm.epoch, each.previous)
            for each in some
        ]
        await backend.create_pointers(realm.id, rows)
        # An earlier attempt may have created some of them from the same stream.
        existing = await backend.fetch_pointers(realm.id, [row.name for row in rows])
        others = [row.name for row in rows if existing.get(row.name) != row]
        if others:
            raise Conflict(
                f"The realm {realm.id!r} already has pointer {others[0]!r} with another target; "
                "import under a new name"
            )


def _first_finding(check: RealmCheck) -> str:
    for pointer in check.pointers:
        for finding in pointer.findings:
            return f"pointer {pointer.pointer!r}, {finding.problem}: {finding.text}"
    return ""

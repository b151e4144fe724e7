"""Export and import of realms, and the export format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random

import msgspec
import pytest

from naksha.catalog.commit_log import CommitLog
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.maintenance import LogHorizons
from naksha.catalog.maintenance.log_horizon import read_log_horizons
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.objects import Object, UnknownValue
from naksha.catalog.realms import RealmStatus
from naksha.catalog.transfer import export_realm, import_realm
from naksha.catalog.transfer_format import (
    FORMAT,
    ExportHeader,
    ExportTrailer,
    ObjectRecord,
    PointerRecord,
    Record,
    RecordWriter,
    read_records,
)
from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument
from naksha.spi.catalog import ObjectKey, ObjectRow, PointerRow, ScannedObject
from tests.catalog.maintenance.support import GRACE, SHORT, Store, Thing

BIG = "x" * (2 * limits.CATALOG_ROW_BYTES_MAX + 1)


async def in_chunks(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


async def exported(store: Store, realm: str = "maps") -> bytes:
    now_us = store.time.clock.now_us()
    return b"".join([chunk async for chunk in export_realm(store.backend, realm, now_us)])


async def records_in(data: bytes, size: int = 10_000) -> list[Record]:
    return [record async for record in read_records(in_chunks(data, size))]


async def contents(store: Store, realm: str = "maps") -> list[PointerRow | ObjectRow]:
    """Return all rows, without the values that an import assigns."""
    pointers = [
        msgspec.structs.replace(row, epoch=0)
        for row in await store.backend.list_pointers(realm, "", "", 1_000)
    ]
    keys = [row.key for row in await store.rows(realm) if isinstance(row, ScannedObject)]
    found = await store.backend.fetch(realm, keys)
    objects = [msgspec.structs.replace(row, created_us=0) for row in found.values()]
    return [*pointers, *sorted(objects, key=lambda row: row.key)]


@pytest.fixture
async def filled(store: Store) -> Store:
    """A realm with logs, an index in stripes, a big entity, a conditional object, one of an unknown
    type, an orphan and an empty pointer."""
    random = Random(5)
    await store.realm()
    keys = [random.randbytes(150).hex() for _ in range(300)]
    await store.put({**dict.fromkeys(keys, "0"), "big": BIG})
    for number in range(30):
        await store.put({"a": str(number)})
    await store.put({"ä": "ö"}, pointer="пример/🗺")
    persistence = await store.persistence()
    await persistence.ensure_pointers(["empty"])
    await persistence.insert(persistence.new_id(), Thing("conditional"))
    strange = Object(persistence.new_id(), UnknownValue("of-the-future", b"\xc1\x00"))
    await persistence.write([strange])
    await store.write(1)
    await store.realm("neighbour")
    await store.put({"a": "not exported"}, "neighbour")
    return store


class TestRoundTrip:
    async def test_an_import_restores_everything(self, filled: Store, other: Store) -> None:
        data = await exported(filled)
        realm = await import_realm(other.catalog, "maps", in_chunks(data))
        assert realm.status is RealmStatus.ACTIVE
        assert await contents(other) == await contents(filled)
        assert await other.texts() == await filled.texts()
        assert await other.is_consistent()
        assert await records_in(await exported(other)) != []
        await other.put({"a": "goes on"})
        assert (await other.head()).value.seq == (await filled.head()).value.seq + 1
        assert await other.is_consistent()

    async def test_cursors_stay_true(self, filled: Store, other: Store) -> None:
        log = CommitLog(await filled.persistence(), "config", EntitiesCommit)
        page = await log.oldest_first(limit=7)
        await import_realm(other.catalog, "maps", in_chunks(await exported(filled)))
        moved = CommitLog(await other.persistence(), "config", EntitiesCommit)
        rest = await moved.oldest_first(page.cursor, limit=100)
        assert [commit.value.seq for commit in rest.commits] == list(range(8, 32))

    async def test_pins_and_the_beginnings_of_logs_go_along(
        self, filled: Store, other: Store
    ) -> None:
        log = CommitLog(await filled.persistence(), "config", EntitiesCommit)
        page = await log.oldest_first(limit=20)
        await LogHorizons(await filled.persistence()).pin("config", "search", page.cursor)
        filled.time.passes(GRACE + 1)
        await (await filled.maintenance(rules=[SHORT])).run()
        other.time.passes(GRACE + 1)
        await import_realm(other.catalog, "maps", in_chunks(await exported(filled)))
        state = await read_log_horizons(RealmReader(other.backend, "maps"))
        assert state == await read_log_horizons(RealmReader(filled.backend, "maps"))
        assert state.horizons["config"].seq == 20
        assert await other.is_consistent()

    async def test_it_may_get_another_name_and_be_inactive(self, filled: Store) -> None:
        data = await exported(filled)
        realm = await import_realm(
            filled.catalog, "copy", in_chunks(data), status=RealmStatus.INACTIVE
        )
        assert (realm.id, realm.status) == ("copy", RealmStatus.INACTIVE)
        assert await contents(filled, "copy") == await contents(filled)
        active = await filled.catalog.realms.update(realm, RealmStatus.ACTIVE)
        assert active.status is RealmStatus.ACTIVE
        await filled.put({"a": "only here"}, "copy")
        assert (await filled.texts())["a"] == "29"
        assert await filled.is_consistent("maps", "copy")

    async def test_an_empty_realm_is_one_too(self, store: Store, other: Store) -> None:
        await store.realm()
        realm = await import_realm(other.catalog, "maps", in_chunks(await exported(store)))
        assert realm.status is RealmStatus.ACTIVE
        assert await other.rows() == []

    async def test_imported_objects_are_not_swept(self, filled: Store, other: Store) -> None:
        data = await exported(filled)
        other.time.passes(1_000 * GRACE)
        await import_realm(other.catalog, "maps", in_chunks(data))
        maintenance = await other.maintenance(rules=[SHORT])
        run = await maintenance.run()
        types = (await maintenance.runs.report(run.id)).realms["maps"].types
        assert sum(counts.newer for counts in types.values()) > 300
        assert sum(counts.purged for counts in types.values()) == 0
        assert await other.texts() == await filled.texts()

    async def test_each_pointer_is_whole_although_others_write(
        self, filled: Store, other: Store
    ) -> None:
        before = await filled.texts()
        pages = 0

        async def commit() -> None:
            nonlocal pages
            pages += 1
            if pages <= 10:
                await filled.put({"a": f"page {pages}", f"p{pages}": "x"})

        filled.between.before_page = commit
        now_us = filled.time.clock.now_us()
        chunks = export_realm(filled.between, "maps", now_us)
        await import_realm(other.catalog, "maps", chunks)
        assert pages > 0
        assert await other.texts() == before
        assert await other.is_consistent()


class TestRefusals:
    async def test_a_realm_that_is_there_is_not_overwritten(
        self, filled: Store, other: Store
    ) -> None:
        data = await exported(filled)
        for status in (RealmStatus.ACTIVE, RealmStatus.INITIALIZING, RealmStatus.LOADING):
            await other.realm(status.lower(), status)
            with pytest.raises(Conflict, match=status):
                await import_realm(other.catalog, status.lower(), in_chunks(data))
            assert await other.rows(status.lower()) == []
        await other.realm("created", RealmStatus.CREATED)
        await import_realm(other.catalog, "created", in_chunks(data))

    async def test_an_import_ends_in_a_state_that_is_one(self, other: Store) -> None:
        with pytest.raises(InvalidArgument, match="ACTIVE or INACTIVE"):
            await import_realm(other.catalog, "maps", in_chunks(b""), status=RealmStatus.PURGED)

    async def test_the_realm_of_the_catalog_itself_stays_here(self, store: Store) -> None:
        with pytest.raises(InvalidArgument, match="realm"):
            await exported(store, "::system::")

    async def test_ids_of_the_future_are_refused(self, other: Store) -> None:
        record = ObjectRecord(limits.INT8_MAX, 0, 1, "maintained-thing", b"\x90", None)
        with pytest.raises(InvalidArgument, match="future"):
            await import_realm(other.catalog, "maps", in_chunks(stream([record])))

    async def test_an_inconsistent_import_does_not_become_active(
        self, filled: Store, other: Store
    ) -> None:
        await filled.backend.delete("maps", [ObjectKey((await filled.log())[3].id)])
        data = await exported(filled)
        with pytest.raises(Conflict, match="COMMIT_MISSING"):
            await import_realm(other.catalog, "maps", in_chunks(data))
        assert (await other.catalog.realms.get("maps")).status is RealmStatus.LOADING

    async def test_a_failed_import_can_be_repeated_or_purged(
        self, filled: Store, other: Store
    ) -> None:
        data = await exported(filled)
        with pytest.raises(InvalidArgument, match="ends"):
            await import_realm(other.catalog, "maps", in_chunks(data[:-20]))
        realm = await other.catalog.realms.get("maps")
        assert realm.status is RealmStatus.LOADING
        assert await other.backend.list_pointers("maps", "", "", 10) == []
        await (await other.maintenance()).run()
        assert len(await other.rows()) > 100
        with pytest.raises(Conflict):
            await import_realm(other.catalog, "maps", in_chunks(data))
        await import_realm(other.catalog, "maps", in_chunks(data), is_repeated=True)
        assert await contents(other) == await contents(filled)

    async def test_a_failed_import_can_be_purged(self, filled: Store, other: Store) -> None:
        data = await exported(filled)
        with pytest.raises(InvalidArgument):
            await import_realm(other.catalog, "maps", in_chunks(data[:-20]))
        realm = await other.catalog.realms.get("maps")
        await other.catalog.realms.update(realm, RealmStatus.PURGING)
        await (await other.maintenance()).run()
        assert await other.rows() == []

    async def test_a_repeated_import_must_be_the_same(self, filled: Store, other: Store) -> None:
        realm = await other.realm("maps", RealmStatus.LOADING)
        await other.backend.create_pointer("maps", PointerRow("config", b"", 7, realm.epoch))
        with pytest.raises(Conflict, match="config"):
            await import_realm(
                other.catalog, "maps", in_chunks(await exported(filled)), is_repeated=True
            )


def stream(
    records: Sequence[PointerRecord | ObjectRecord], header: ExportHeader | None = None
) -> bytes:
    writer = RecordWriter()
    parts = [writer.record(header or ExportHeader(FORMAT, 1, "maps", 5))]
    parts += [writer.record(record) for record in records]
    return b"".join([*parts, writer.trailer()])


RECORDS: list[PointerRecord | ObjectRecord] = [
    PointerRecord("main", b"\x01", 7, b"\x00" * 8),
    *(ObjectRecord(id, 0, 1, "thing", bytes([id]) * 40, None) for id in range(20)),
    ObjectRecord(99, 0, 1, "lock", b"", "token"),
]


class TestFormat:
    @pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 1_000_000])
    async def test_it_may_come_in_any_pieces(self, size: int) -> None:
        found = await records_in(stream(RECORDS), size)
        assert found[1:-1] == RECORDS
        assert isinstance(found[0], ExportHeader)
        assert isinstance(found[-1], ExportTrailer)

    def test_it_is_frozen(self) -> None:
        """Version 1 is read for ever."""
        header = ExportHeader(FORMAT, 1, "maps", 5)
        objects = [ObjectRecord(300, 1, 2, "th", b"\xff", None)]
        data = stream([PointerRecord("p", b"\x01", 7, b""), *objects], header)
        assert data.hex() == GOLDEN

    async def test_a_truncated_file_is_refused_wherever_it_ends(self) -> None:
        data = stream(RECORDS)
        for length in range(len(data)):
            with pytest.raises(InvalidArgument, match="ends"):
                await records_in(data[:length])

    async def test_a_file_with_a_flipped_bit_is_refused_wherever_it_is(self) -> None:
        data = stream(RECORDS)
        for place in range(len(data)):
            broken = bytearray(data)
            broken[place] ^= 1 << (place % 8)
            with pytest.raises(InvalidArgument):
                await records_in(bytes(broken))

    async def test_a_record_that_is_lost_doubled_or_elsewhere_is_noticed(self) -> None:
        writer = RecordWriter()
        parts = [writer.record(ExportHeader(FORMAT, 1, "maps", 5))]
        parts += [writer.record(record) for record in RECORDS]
        parts.append(writer.trailer())
        assert len(await records_in(b"".join(parts))) == len(parts)
        swapped = [*parts[:3], parts[4], parts[3], *parts[5:]]
        for wrong in (
            [*parts[:3], *parts[4:]],
            [*parts[:3], parts[2], *parts[3:]],
            swapped,
            [*parts, parts[1]],
            [*parts, *parts],
            [parts[0], *parts],
            parts[1:],
            parts[:-1],
            [],
        ):
            with pytest.raises(InvalidArgument):
                await records_in(b"".join(wrong))

    @pytest.mark.parametrize(
        ("header", "match"),
        [
            (ExportHeader(FORMAT, 2, "maps", 5), "version 2"),
            (ExportHeader("tar", 1, "maps", 5), "not an exported"),
        ],
    )
    async def test_a_file_of_another_format_is_refused(
        self, header: ExportHeader, match: str
    ) -> None:
        with pytest.raises(InvalidArgument, match=match):
            await records_in(stream(RECORDS, header))


GOLDEN = (
    "00000024e4f314a795a6686561646572b46e616b7368612d636174616c6f672d7265616c6d01a46d"
    "6170730500000011733e55d395a7706f696e746572a170c4010107c4000000001427e3848e97a66f"
    "626a656374cd012c0102a27468c401ffc00000002dd7fac1de94a7747261696c65720101c4206c43"
    "24cbfaecadbd9ca12c5da70d89bac3d653839000981f419030f420ddb24b"
)

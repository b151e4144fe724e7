"""The catalog backend on MariaDB, with InnoDB tables.

Every conditional operation is one statement with its own commit, in READ COMMITTED; `publish` is a
transaction of two statements. Names, realms and tokens are compared byte by byte. A statement that
conflicts with another transaction is retried within the timeout of the call.

Acknowledged writes are durable with `innodb_flush_log_at_trx_commit = 1`, and `sync_binlog = 1` if
there is a binary log; other settings log a warning. The backend is for one server: a replica that
takes over may lack acknowledged writes.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from functools import partial
from typing import Any, Final, Self, TypeVar

from naksha.mariadb.session import DuplicateKey, MariadbAddress, MariadbSession, TransactionConflict
from naksha.mariadb.setup import set_up
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spi.catalog import (
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
    by_key,
)
from naksha.spi.support.batches import batches, name_range
from naksha.spi.support.server_calls import CallProgress, SessionPool

R = TypeVar("R")
T = TypeVar("T")

_REALM_BYTES_MAX: Final = 512
_POINTER_BYTES_MAX: Final = 1024
"""Maximum size of the target, and of the previous targets, of a pointer."""
FETCH_MAX: Final = 100
"""Maximum number of objects fetched at once: at most 35 MB."""
_ROW_BYTES: Final = 1024
"""Estimated size of the other columns of a row in a statement."""
_NAME_BYTES: Final = 2 * (_REALM_BYTES_MAX + limits.POINTER_NAME_BYTES_MAX) + 64
"""Maximum size of a realm and a name in hexadecimal."""


class MariadbCatalog:
    """Catalog backend on a MariaDB server; open it with `MariadbCatalog.open`.

    See `naksha.spi.catalog.CatalogBackend`.
    """

    name = "mariadb"
    deletes_realms = True

    def __init__(self, server: SessionPool[MariadbSession], packet_bytes_max: int) -> None:
        self._server = server
        half = packet_bytes_max // 2
        self._bytes_max = min(half, limits.CATALOG_STATEMENT_BYTES_MAX)

    @classmethod
    async def open(
        cls,
        location: str,
        *,
        sessions_max: int = limits.CATALOG_SESSIONS_MAX,
        call_seconds_max: float = limits.CATALOG_CALL_SECONDS_MAX,
    ) -> Self:
        """Connect to an existing database; create the tables if they do not exist."""
        address = MariadbAddress(location, call_seconds_max)
        server = SessionPool(
            "MariaDB",
            address.connect,
            sessions_max=sessions_max,
            call_seconds_max=call_seconds_max,
        )
        try:
            return cls(server, await set_up(server))
        except BaseException:
            await server.close()
            raise

    async def close(self) -> None:
        await self._server.close()

    async def now_us(self) -> int:
        [row] = await self._read("now")
        return int(row[0])

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self._is_new("create_pointer", _of_pointer(realm, row))

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        values = [_of_pointer(realm, row) for row in rows]
        progress, made = CallProgress(), 0
        for some in self._pieces(values, lambda _: _ROW_BYTES + 2 * _POINTER_BYTES_MAX):
            made += await progress.step(self._execute_many("create_pointers", some))
        return made

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        keys = list(dict.fromkeys(name.encode() for name in names))
        if len(keys) == 1:
            rows = await self._read("fetch_pointer", realm.encode(), keys[0])
            return {row.name: row for row in map(_to_pointer, rows)}
        found: dict[str, PointerRow] = {}
        for some in self._pieces(keys, lambda _: _NAME_BYTES):
            wanted = json.dumps([key.hex() for key in some])
            rows = await self._read("fetch_pointers", wanted, realm.encode())
            found |= {row.name: row for row in map(_to_pointer, rows)}
        return found

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        start, end = name_range(prefix, after)
        bounds = (realm.encode(), after.encode(), start.encode(), end.encode(), limit)
        return [_to_pointer(row) for row in await self._read("list_pointers", *bounds)]

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        return await self._hits("swap_pointer", *_of_swap(realm, expected, row))

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        return await self._hits("delete_pointer", *_of_expected(realm, expected))

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        wanted = list(dict.fromkeys(keys))
        if len(wanted) == 1:
            rows = await self._read("fetch_object", realm.encode(), *wanted[0])
            return {row.key: row for row in map(_to_object, rows)}
        found: dict[ObjectKey, ObjectRow] = {}
        for some in batches(wanted, FETCH_MAX):
            rows = await self._read("fetch_objects", json.dumps(some), realm.encode())
            found |= {row.key: row for row in map(_to_object, rows)}
        return found

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        for some in self._by_size(rows):
            await self._call(partial(_write, realm=realm, rows=some))

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        progress = CallProgress()
        for some in self._pieces(sorted(set(keys)), lambda _: _ROW_BYTES):
            wanted = json.dumps(some)
            await progress.step(self._change("delete_objects", wanted, realm.encode()))

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return await self._is_new("insert_object", _of_object(realm, row))

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        return await self._hits(
            "replace_object",
            *(row.parts, bytes(row.value), row.created_us, _of_token(row.token)),
            *(realm.encode(), row.id, row.part, row.type.encode(), expected_token.encode()),
        )

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        values = (realm.encode(), *key, expected_token.encode())
        return await self._hits("delete_object_if", *values)

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        if not rows:
            return await self.swap_pointer(realm, expected, row)
        *first, last = self._by_size(rows)
        for some in first:
            await self.write(realm, some)

        async def write_and_swap(session: MariadbSession) -> bool:
            async with session.transaction():
                await _write(session, realm, last)
                # The swap comes last, because it locks the pointer for other writers.
                swap = _of_swap(realm, expected, row)
                response = await session.execute("swap_pointer", *swap, changes=True)
            return response.matched == 1

        return await self._call(write_and_swap)

    # ---- Maintenance -------------------------------------------------------------------------

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        count = limits.CATALOG_STATEMENT_ROWS_MAX
        last: tuple[Any, ...] = (b"", b"", b"")
        while rows := await self._read("scan_pointers", *last, count):
            yield [ScannedPointer(r.decode(), name.decode(), created) for r, name, created in rows]
            realm, name, _ = rows[-1]
            last = (realm, realm, name)
        last = (b"", b"", -1, -1, -1)
        while rows := await self._read("scan_objects", *last, count):
            yield [
                ScannedObject(realm.decode(), ObjectKey(id, part), kind.decode(), created_us)
                for realm, id, part, kind, created_us in rows
            ]
            realm, id, part, _, _ = rows[-1]
            last = (realm, realm, id, id, part)

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        pointers = [
            (row.realm.encode().hex(), row.name.encode().hex(), row.created)
            for row in rows
            if isinstance(row, ScannedPointer)
        ]
        objects = [
            (row.realm.encode().hex(), *row.key, row.created_us)
            for row in rows
            if isinstance(row, ScannedObject)
        ]
        progress, deleted = CallProgress(), 0
        for name, seen in (
            ("delete_scanned_pointers", sorted(set(pointers))),
            ("delete_scanned_objects", sorted(set(objects))),
        ):
            for some in self._pieces(seen, lambda _: _NAME_BYTES):
                deleted += await progress.step(self._change(name, json.dumps(some)))
        return deleted

    async def delete_realms(self, realms: Collection[str]) -> None:
        progress = CallProgress()
        count = limits.CATALOG_STATEMENT_ROWS_MAX
        for realm in realms:
            for name in ("delete_pointers_of_realm", "delete_objects_of_realm"):
                while await progress.step(self._change(name, realm.encode(), count)) == count:
                    pass

    # ---- Inside ------------------------------------------------------------------------------

    async def _call(self, run: Callable[[MariadbSession], Awaitable[R]]) -> R:
        """Run an operation; retry it when it conflicts with another transaction."""

        async def patiently(session: MariadbSession) -> R:
            delay_ms = limits.RETRY_DELAY_MS_MIN
            for _ in range(limits.RETRY_COUNT_MAX):
                try:
                    return await run(session)
                except TransactionConflict:
                    pause_ms = random.uniform(0, delay_ms)  # noqa: S311 - jitter
                    await asyncio.sleep(pause_ms / 1000)
                    delay_ms = min(2 * delay_ms, limits.RETRY_DELAY_MS_MAX)
            return await run(session)

        return await self._server.call(patiently)

    async def _read(self, name: str, *values: object) -> Sequence[tuple[Any, ...]]:
        response = await self._server.call(lambda session: session.execute(name, *values))
        return response.rows

    async def _change(self, name: str, *values: object) -> int:
        """Run a statement; return the number of rows that it changed or found already correct."""
        response = await self._call(lambda session: session.execute(name, *values, changes=True))
        return response.matched

    async def _hits(self, name: str, *values: object) -> bool:
        return await self._change(name, *values) == 1

    async def _is_new(self, name: str, values: tuple[object, ...]) -> bool:
        try:
            return await self._hits(name, *values)
        except DuplicateKey:
            return False

    async def _execute_many(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        response = await self._call(lambda session: session.execute_many(name, rows))
        return response.matched

    def _pieces(self, items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
        """Split items into batches that fit into one statement."""
        return batches(items, limits.CATALOG_STATEMENT_ROWS_MAX, self._bytes_max, size)

    def _by_size(self, rows: Sequence[ObjectRow]) -> list[list[ObjectRow]]:
        """Split rows into batches for one statement, in key order to avoid deadlocks."""
        distinct = sorted(by_key(rows).values(), key=lambda row: row.key)
        return list(self._pieces(distinct, lambda row: len(row.value) + _ROW_BYTES))


async def _write(session: MariadbSession, realm: str, rows: Sequence[ObjectRow]) -> None:
    plain = [_of_object(realm, row)[:-1] for row in rows if row.token is None]
    others = [_of_object(realm, row) for row in rows if row.token is not None]
    if plain:
        await session.execute_many("write_plain", plain)
    if others:
        await session.execute_many("write_with_token", others)


# ---- Rows as values of statements ------------------------------------------------------------


def _of_pointer(realm: str, row: PointerRow) -> tuple[object, ...]:
    name = row.name.encode()
    _check("name", name, limits.POINTER_NAME_BYTES_MAX)
    _check("realm", realm.encode(), _REALM_BYTES_MAX)
    return (realm.encode(), name, *_of_content(row))


def _of_content(row: PointerRow) -> tuple[object, ...]:
    _check("target", row.target, _POINTER_BYTES_MAX)
    _check("previous", row.previous, _POINTER_BYTES_MAX)
    return (bytes(row.target), row.created, row.epoch, bytes(row.previous))


def _of_expected(realm: str, row: PointerRow) -> tuple[object, ...]:
    return (realm.encode(), row.name.encode(), bytes(row.target), row.created, row.epoch)


def _of_swap(realm: str, expected: PointerRow, row: PointerRow) -> tuple[object, ...]:
    return (*_of_content(row), *_of_expected(realm, expected))


def _to_pointer(row: tuple[Any, ...]) -> PointerRow:
    name, target, created, epoch, previous = row
    return PointerRow(name.decode(), target, created, epoch, previous)


def _of_object(realm: str, row: ObjectRow) -> tuple[object, ...]:
    return (
        *(realm.encode(), row.id, row.part, row.parts, row.type.encode()),
        *(bytes(row.value), row.created_us, _of_token(row.token)),
    )


def _of_token(token: str | None) -> bytes | None:
    return None if token is None else token.encode()


def _to_object(row: tuple[Any, ...]) -> ObjectRow:
    id, part, parts, kind, value, created_us, token = row
    text = None if token is None else token.decode()
    return ObjectRow(id, part, parts, kind.decode(), value, created_us, text)


def _check(field: str, data: bytes, bytes_max: int) -> None:
    if len(data) > bytes_max:
        raise InvalidArgument(
            f"{field} must have at most {bytes_max} bytes, not {len(data)}", field=field
        )

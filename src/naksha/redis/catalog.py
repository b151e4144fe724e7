"""The catalog backend on Redis.

Each realm has five keys: a hash of its pointer rows and a sorted set of their names; hashes of the
heads and the values of its objects and a sorted set of their keys. Every compare-and-swap operation
is one script, so it is atomic, and Redis logs its effects as one transaction.

**Acknowledged writes are durable only with `appendonly yes` and `appendfsync always`**; with
`everysec`, the default of an append-only file, a crash of the machine loses the last second. Other
settings log a warning. A replica that takes over may lack acknowledged writes with any settings
(`WAIT` does not change that), so this backend is for one server without failover. A server that may
evict keys without a time to live is refused, and so are a cluster and a replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Self, TypeVar

from naksha.model import limits
from naksha.model.errors import StorageCorrupt
from naksha.redis import rows as layout
from naksha.redis.session import RedisAddress, RedisSession
from naksha.redis.setup import set_up
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

T = TypeVar("T")

PREFIX: Final = "naksha"
FETCH_MAX: Final = 100
"""Maximum number of objects fetched at once: at most 35 MB."""


class _RealmKeys(NamedTuple):
    """The Redis keys of a realm, each named after its content (see `_KINDS`)."""

    pointers: str
    names: str
    heads: str
    values: str
    keys: str


_KINDS: Final = ("pointers", "names", "heads", "values", "keys")
"""The parts of the Redis keys, in the order of the fields of `_RealmKeys`."""


class RedisCatalog:
    """Catalog backend on a Redis server; open it with `RedisCatalog.open`.

    See `naksha.spi.catalog.CatalogBackend`.
    """

    name = "redis"
    deletes_realms = True

    def __init__(self, server: SessionPool[RedisSession], prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._realms = f"{prefix}:realms"

    @classmethod
    async def open(
        cls,
        location: str,
        *,
        prefix: str = PREFIX,
        sessions_max: int = limits.CATALOG_SESSIONS_MAX,
        call_seconds_max: float = limits.CATALOG_CALL_SECONDS_MAX,
    ) -> Self:
        """Connect; set the format of a new catalog. All keys begin with `prefix`."""
        address = RedisAddress(location)
        server = SessionPool(
            "Redis",
            address.connect,
            sessions_max=sessions_max,
            call_seconds_max=call_seconds_max,
        )
        prefix = address.prefix or prefix
        try:
            await set_up(server, f"{prefix}:format")
        except BaseException:
            await server.close()
            raise
        return cls(server, prefix)

    async def close(self) -> None:
        await self._server.close()

    async def now_us(self) -> int:
        seconds, microseconds = await self._read("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self.create_pointers(realm, [row]) == 1

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        keys = self._keys(realm)
        progress, made = CallProgress(), 0
        for some in _pieces(rows):
            words = [word for row in some for word in (row.name, layout.of_pointer(row))]
            call = self._run(
                "create_pointers", [keys.pointers, keys.names, self._realms], realm, *words
            )
            made += await progress.step(call)
        return made

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        found: dict[str, PointerRow] = {}
        for some in _pieces(dict.fromkeys(names)):
            rows = await self._read("HMGET", self._keys(realm).pointers, *some)
            found |= {
                name: layout.to_pointer(name.encode(), row)
                for name, row in zip(some, rows, strict=True)
                if row is not None
            }
        return found

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        keys = self._keys(realm)
        start, end = name_range(prefix, after)
        lower = (b"(" if start == after else b"[") + start.encode()
        upper = b"(" + end.encode()
        found: list[PointerRow] = []
        while len(found) < limit:
            count = min(limit - len(found), limits.CATALOG_STATEMENT_ROWS_MAX)
            page = await self._page(keys.names, keys.pointers, lower, upper, count)
            found += [layout.to_pointer(name, row) for name, row in page]
            if len(page) < count:
                break
            lower = b"(" + page[-1][0]
        return found

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        return await self.publish(realm, [], expected, row)

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        keys = self._keys(realm)
        name, compared = expected.name, layout.compared(expected)
        return bool(await self._run("delete_pointer", [keys.pointers, keys.names], name, compared))

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        place = self._keys(realm)
        found: dict[ObjectKey, ObjectRow] = {}
        for some in batches(dict.fromkeys(keys), FETCH_MAX):
            wanted = [layout.of_key(key) for key in some]
            got = await self._run("fetch", [place.heads, place.values], *wanted, changes=False)
            found |= {
                key: layout.to_object(key, head, value)
                for key, head, value in zip(some, got[::2], got[1::2], strict=True)
                if head is not None
            }
        return found

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        for some in _by_size(rows):
            await self._run("write", self._object_keys(realm), realm, *_words(some))

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        place = self._keys(realm)
        progress = CallProgress()
        for some in _pieces(keys):
            wanted = (layout.of_key(key) for key in some)
            call = self._run("delete", [place.heads, place.values, place.keys], *wanted)
            await progress.step(call)

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return bool(await self._run("insert", self._object_keys(realm), realm, *_words([row])))

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        place = self._keys(realm)
        key, head, value = _words([row])
        compared = layout.of_token(expected_token) + row.type.encode()
        words = (key, compared, head, value)
        return bool(await self._run("replace", [place.heads, place.values], *words))

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        place = self._keys(realm)
        words = (layout.of_key(key), layout.of_token(expected_token))
        keys = [place.heads, place.values, place.keys]
        return bool(await self._run("delete_if", keys, *words))

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        *first, last = _by_size(rows) or [[]]
        for some in first:
            await self.write(realm, some)
        keys = [*self._object_keys(realm), self._keys(realm).pointers]
        words = (realm, row.name, layout.compared(expected), layout.of_pointer(row))
        return bool(await self._run("publish", keys, *words, *_words(last)))

    # ---- Maintenance -------------------------------------------------------------------------

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        # Use the sorted sets, because SCAN returns some rows twice while a hash grows.
        lower = b"-"
        while realms := await self._read(
            *("ZRANGEBYLEX", self._realms, lower, b"+"),
            *("LIMIT", 0, limits.CATALOG_STATEMENT_ROWS_MAX),
        ):
            lower = b"(" + realms[-1]
            for realm in realms:
                async for page in self._scan_realm(realm.decode()):
                    yield page

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        groups: dict[tuple[str, bool], list[Scanned]] = {}
        for row in rows:
            groups.setdefault((row.realm, isinstance(row, ScannedPointer)), []).append(row)
        progress, deleted = CallProgress(), 0
        for (realm, is_pointer), group in groups.items():
            place = self._keys(realm)
            kind = (
                [place.pointers, place.pointers, place.names]
                if is_pointer
                else [place.heads, place.values, place.keys]
            )
            keys = [*kind, place.names, place.keys, self._realms]
            for some in _pieces(group):
                words = chain.from_iterable(map(_as_seen, some))
                deleted += await progress.step(self._run("delete_scanned", keys, realm, *words))
        return deleted

    async def delete_realms(self, realms: Collection[str]) -> None:
        progress = CallProgress()
        for realm in realms:
            keys = [self._realms, *self._keys(realm)]
            await progress.step(self._run("delete_realm", keys, realm))

    # ---- Inside ------------------------------------------------------------------------------

    async def _scan_realm(self, realm: str) -> AsyncIterator[list[Scanned]]:
        place = self._keys(realm)
        async for page in self._pages(place.names, place.pointers):
            yield [layout.to_scanned_pointer(realm, *each) for each in page]
        async for page in self._pages(place.keys, place.heads):
            yield [layout.to_scanned_object(realm, *each) for each in page]

    async def _pages(self, order: str, rows: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield all members of a sorted set with their rows, in pages."""
        lower = b"-"
        count = limits.CATALOG_STATEMENT_ROWS_MAX
        while page := await self._page(order, rows, lower, b"+", count):
            yield page
            if len(page) < count:
                return
            lower = b"(" + page[-1][0]

    async def _page(
        self, order: str, rows: str, lower: bytes, upper: bytes, count: int
    ) -> list[tuple[bytes, bytes]]:
        words = (lower, upper, count)
        found = await self._run("page", [order, rows], *words, changes=False)
        if None in found:
            raise StorageCorrupt(f"Redis key {order} has members that are missing in {rows}")
        return list(zip(found[::2], found[1::2], strict=True))

    async def _run(
        self, script: str, keys: list[str], *words: str | bytes | int, changes: bool = True
    ) -> Any:
        return await self._server.call(
            lambda session: session.run(script, keys, *words, changes=changes)
        )

    async def _read(self, *words: str | bytes | int) -> Any:
        return await self._server.call(lambda session: session.execute(*words))

    def _keys(self, realm: str) -> _RealmKeys:
        return _RealmKeys(*(f"{self._prefix}:{kind}:{realm}" for kind in _KINDS))

    def _object_keys(self, realm: str) -> list[str]:
        place = self._keys(realm)
        return [place.heads, place.values, place.keys, self._realms]


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    return batches(items, limits.CATALOG_STATEMENT_ROWS_MAX)


def _by_size(rows: Sequence[ObjectRow]) -> list[list[ObjectRow]]:
    """Split rows into batches that do not block Redis for long."""
    return list(
        batches(
            by_key(rows).values(),
            count_max=limits.CATALOG_STATEMENT_ROWS_MAX,
            bytes_max=limits.CATALOG_STATEMENT_BYTES_MAX,
            size=lambda row: len(row.value),
        )
    )


def _words(rows: Sequence[ObjectRow]) -> list[bytes]:
    """Return key, head and value of each row, as arguments of a script."""
    return [
        word
        for row in rows
        for word in (layout.of_key(row.key), layout.of_head(row), bytes(row.value))
    ]


def _as_seen(row: Scanned) -> tuple[bytes, bytes]:
    """Return the key of a scanned row and the prefix that its data has while it is unchanged."""
    if isinstance(row, ScannedObject):
        return layout.of_key(row.key), layout.of_number(row.created_us)
    return row.name.encode(), layout.of_number(row.created)

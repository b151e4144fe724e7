"""The catalog suite on Redis, and tests specific to it."""

import logging
from collections.abc import Iterator

import pytest

from naksha.model.errors import InvalidArgument, NotSupported, StorageCorrupt, Unavailable
from naksha.redis import RedisCatalog
from naksha.spi.catalog import CatalogBackend
from naksha.testing.catalog.suite import *  # noqa: F403
from naksha.testing.catalog.suite import OpenCatalog
from naksha.testing.catalog.suite_support import (
    fresh_realm,
    get,
    get_pointer,
    moved,
    pointer,
    scanned,
    thing,
)
from naksha.testing.servers.redis_server import RedisServer
from tests.catalog.backends.lost_servers import *  # noqa: F403
from tests.catalog.backends.lost_servers import Connect

pytestmark = pytest.mark.redis


@pytest.fixture(scope="class")
def open_catalog(redis_locations: Iterator[str]) -> OpenCatalog:
    location = next(redis_locations)
    return lambda: RedisCatalog.open(location)


@pytest.fixture(scope="module")
def private_server() -> Iterator[RedisServer]:
    """A server that these tests may stop, kill and set."""
    with RedisServer(tcp=True) as server:
        yield server


@pytest.fixture
def connect(private_server: RedisServer) -> Connect:
    async def open_with(call_seconds_max: float) -> CatalogBackend:
        location = private_server.location()
        return await RedisCatalog.open(location, call_seconds_max=call_seconds_max)

    return open_with


async def test_all_forms_of_a_location_lead_to_the_same(private_server: RedisServer) -> None:
    path = private_server.socket_path
    realm, row = fresh_realm(), pointer("main")
    locations = [
        private_server.location(3, tcp=True),
        private_server.location(3),
        f"unix://{path}?db=3",
        f"redis+unix://{path}?db=3&prefix=naksha",
    ]
    for n, location in enumerate(locations):
        backend = await RedisCatalog.open(location)
        assert await backend.create_pointer(realm, row) is (n == 0)
        await backend.close()
    other = await RedisCatalog.open(private_server.location(4))
    assert await get_pointer(other, realm, "main") is None
    await other.close()


@pytest.mark.parametrize(
    "location",
    ["http://localhost", "redis", "redis://localhost:x/0", "redis://h/0?no_such_option=1", ""],
)
async def test_another_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidArgument):
        await RedisCatalog.open(location)


async def test_prefixes_are_apart(redis_server: RedisServer) -> None:
    one = await RedisCatalog.open(redis_server.location(5), prefix="one")
    other = await RedisCatalog.open(redis_server.location(5), prefix="other")
    realm, row = fresh_realm(), pointer("main")
    assert await one.create_pointer(realm, row)
    assert await other.create_pointer(realm, row)
    await one.delete_realms([realm])
    assert await get_pointer(other, realm, "main") == row
    keys = redis_server.execute("KEYS", "*", database=5).split()
    assert all(key.startswith(("one:", "other:")) for key in keys)
    for backend in (one, other):
        await backend.close()


async def test_an_empty_realm_leaves_nothing(redis_server: RedisServer) -> None:
    backend = await RedisCatalog.open(redis_server.location(6))
    realm = fresh_realm()
    await backend.create_pointer(realm, pointer("main"))
    await backend.write(realm, [thing(1), thing(2, token="t")])
    assert await backend.delete_scanned(await scanned(backend, realm)) == 3
    assert redis_server.execute("KEYS", "*", database=6) == "naksha:format"
    await backend.close()


async def test_a_newer_format_is_refused(redis_server: RedisServer) -> None:
    location = redis_server.location(7)
    await (await RedisCatalog.open(location)).close()
    assert redis_server.execute("GET", "naksha:format", database=7) == "1"
    redis_server.execute("SET", "naksha:format", "2", database=7)
    with pytest.raises(NotSupported, match="newer Naksha"):
        await RedisCatalog.open(location)
    redis_server.execute("SET", "naksha:format", "else", database=7)
    with pytest.raises(StorageCorrupt):
        await RedisCatalog.open(location)


class TestSettings:
    """Required settings of a server, tested on one that can be reconfigured."""

    @pytest.fixture(autouse=True)
    def as_it_was(self, private_server: RedisServer) -> Iterator[None]:
        yield
        for name, value in (
            ("maxmemory-policy", "noeviction"),
            ("maxmemory", "0"),
            ("appendfsync", "always"),
        ):
            private_server.execute("CONFIG", "SET", name, value)

    @pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
    async def test_a_server_that_evicts_is_refused(
        self, private_server: RedisServer, policy: str
    ) -> None:
        private_server.execute("CONFIG", "SET", "maxmemory-policy", policy)
        with pytest.raises(NotSupported, match="noeviction"):
            await RedisCatalog.open(private_server.location())

    async def test_keys_that_never_expire_are_safe_from_the_other_policies(
        self, private_server: RedisServer
    ) -> None:
        private_server.execute("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        await (await RedisCatalog.open(private_server.location())).close()

    async def test_a_full_server_is_unavailable_and_changes_nothing(
        self, private_server: RedisServer
    ) -> None:
        backend = await RedisCatalog.open(private_server.location())
        realm, row = fresh_realm(), pointer("main")
        assert await backend.create_pointer(realm, row)
        private_server.execute("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="used memory"):
            await backend.publish(realm, [thing(1)], row, moved(row, b"there"))
        with pytest.raises(Unavailable, match="used memory"):
            await backend.create_pointer(realm, pointer("other"))
        private_server.execute("CONFIG", "SET", "maxmemory", "0")
        assert await get_pointer(backend, realm, "main") == row
        assert await get_pointer(backend, realm, "other") is None
        assert await get(backend, realm, 1) is None
        await backend.close()

    async def test_a_server_that_forgets_is_warned_of(
        self, private_server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            await (await RedisCatalog.open(private_server.location())).close()
            assert not caplog.records
            private_server.execute("CONFIG", "SET", "appendfsync", "everysec")
            await (await RedisCatalog.open(private_server.location())).close()
        assert "appendfsync is everysec" in caplog.text

    async def test_a_replica_is_refused(self, private_server: RedisServer) -> None:
        private_server.execute("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(NotSupported, match="replica"):
                await RedisCatalog.open(private_server.location())
        finally:
            private_server.execute("REPLICAOF", "NO", "ONE")

    async def test_scripts_that_were_forgotten_are_sent_again(
        self, private_server: RedisServer
    ) -> None:
        backend = await RedisCatalog.open(private_server.location())
        realm = fresh_realm()
        assert await backend.create_pointer(realm, pointer("one"))
        private_server.execute("SCRIPT", "FLUSH")
        assert await backend.create_pointer(realm, pointer("two"))
        await backend.close()

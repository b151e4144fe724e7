"""The catalog suite on MariaDB, and tests specific to it."""

import asyncio
import logging
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncmy
import pytest

from naksha.mariadb import MariadbCatalog
from naksha.model.errors import InvalidArgument, NotSupported, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectRow
from naksha.testing.catalog.suite import *  # noqa: F403
from naksha.testing.catalog.suite import OpenCatalog
from naksha.testing.catalog.suite_support import (
    fresh_realm,
    get_pointer,
    holds,
    moved,
    pointer,
    thing,
)
from naksha.testing.servers.mariadb_server import MariadbServer
from tests.catalog.backends.lost_servers import *  # noqa: F403
from tests.catalog.backends.lost_servers import Connect

pytestmark = pytest.mark.mariadb

DATABASE = "lost"


@pytest.fixture(scope="class")
def open_catalog(mariadb_locations: Iterator[str]) -> OpenCatalog:
    location = next(mariadb_locations)
    return lambda: MariadbCatalog.open(location)


@pytest.fixture(scope="module")
def private_server() -> Iterator[MariadbServer]:
    """A server that these tests may stop, kill and set."""
    with MariadbServer(tcp=True) as server:
        server.create_database(DATABASE)
        yield server


@pytest.fixture
def connect(private_server: MariadbServer) -> Connect:
    async def open_with(call_seconds_max: float) -> CatalogBackend:
        location = private_server.location(DATABASE)
        return await MariadbCatalog.open(location, call_seconds_max=call_seconds_max)

    return open_with


async def test_socket_and_port_lead_to_the_same(private_server: MariadbServer) -> None:
    realm, row = fresh_realm(), pointer("main")
    for n, tcp in enumerate((True, False)):
        backend = await MariadbCatalog.open(private_server.location(DATABASE, tcp=tcp))
        assert await backend.create_pointer(realm, row) is (n == 0)
        await backend.close()


@pytest.mark.parametrize(
    "location",
    [
        "mysql://root@localhost/db",
        "mariadb://root@localhost",
        "mariadb://localhost/db",
        "mariadb://root@localhost/db?no_such_option=1",
    ],
)
async def test_another_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidArgument, match="mariadb://user"):
        await MariadbCatalog.open(location)


async def test_a_wrong_user_or_database_is_unavailable(mariadb_server: MariadbServer) -> None:
    for location in (
        mariadb_server.location("no_such_database"),
        mariadb_server.location("mysql").replace("root@", "nobody-known:secret@"),
    ):
        with pytest.raises(Unavailable) as caught:
            await MariadbCatalog.open(location)
        assert "secret" not in str(caught.value)


async def test_many_open_it_at_once_the_first_time(mariadb_locations: Iterator[str]) -> None:
    location = next(mariadb_locations)
    backends = await asyncio.gather(*(MariadbCatalog.open(location) for _ in range(10)))
    realm, row = fresh_realm(), pointer("main")
    made = await asyncio.gather(*(each.create_pointer(realm, row) for each in backends))
    assert sorted(made) == [False] * 9 + [True]
    for backend in backends:
        await backend.close()


async def test_a_newer_format_is_refused(
    mariadb_server: MariadbServer, mariadb_locations: Iterator[str]
) -> None:
    location = next(mariadb_locations)
    await (await MariadbCatalog.open(location)).close()
    database = urlsplit(location).path.removeprefix("/")
    assert mariadb_server.execute(f"SELECT version FROM {database}.naksha_format") == "1"
    mariadb_server.execute(f"UPDATE {database}.naksha_format SET version = 2")
    with pytest.raises(NotSupported, match="newer Naksha"):
        await MariadbCatalog.open(location)


async def test_oversized_values_are_refused_and_not_truncated(
    mariadb_locations: Iterator[str],
) -> None:
    backend = await MariadbCatalog.open(next(mariadb_locations))
    realm = fresh_realm()
    for row in (
        pointer("x" * 513),
        pointer("ok", b"t" * 1025),
        pointer("ok", previous=b"p" * 1025),
    ):
        with pytest.raises(InvalidArgument):
            await backend.create_pointer(realm, row)
        with pytest.raises(InvalidArgument):
            await backend.create_pointers(realm, [pointer("fits"), row])
    with pytest.raises(InvalidArgument):
        await backend.write(realm, [thing(1, kind="t" * 33)])
    assert await backend.list_pointers(realm, "", "", 10) == []
    await backend.close()


class TestOtherTransactions:
    """Another program holds a lock."""

    async def test_a_lock_that_is_not_given_in_time_is_unavailable(
        self, mariadb_locations: Iterator[str]
    ) -> None:
        location = next(mariadb_locations)
        backend = await MariadbCatalog.open(location, call_seconds_max=3)
        realm, row = fresh_realm(), pointer("main")
        assert await backend.create_pointer(realm, row)
        other = await _direct(location)
        async with other.cursor() as cursor:
            await other.begin()
            await cursor.execute("SELECT * FROM naksha_pointer FOR UPDATE")
            with pytest.raises(Unavailable, match="Lock wait timeout"):
                await backend.swap_pointer(realm, row, moved(row, b"there"))
            with pytest.raises(Unavailable, match="Lock wait timeout"):
                await backend.publish(realm, [thing(1)], row, moved(row, b"there"))
            # A reader waits for no lock.
            assert await get_pointer(backend, realm, "main") == row
            await other.rollback()
        assert await backend.fetch(realm, [thing(1).key]) == {}
        assert await backend.swap_pointer(realm, row, moved(row, b"there"))
        other.close()
        await backend.close()

    async def test_a_deadlock_is_tried_again(self, mariadb_locations: Iterator[str]) -> None:
        location = next(mariadb_locations)
        backend = await MariadbCatalog.open(location)
        realm = fresh_realm()
        rows = [thing(n, b"old") for n in range(2)]
        await backend.write(realm, [*rows, *(thing(id) for id in range(10, 60))])
        other = await _direct(location)
        async with other.cursor() as cursor:
            await other.begin()
            take = "UPDATE naksha_object SET value = 'x' WHERE realm = %s AND id = %s AND part = 0"
            for id in (*range(10, 60), 1):
                await cursor.execute(take, (realm.encode(), id))
            new = [thing(n, b"new") for n in range(2)]
            writing = asyncio.create_task(backend.write(realm, new))
            await asyncio.sleep(0.2)  # it has the first row and waits for the second
            assert not writing.done()
            # InnoDB undoes the one who has changed less, which is the catalog.
            await cursor.execute(take, (realm.encode(), 0))
            await asyncio.sleep(0.1)
            assert not writing.done()
            await other.rollback()
            await writing
        await holds(backend, realm, new)
        other.close()
        await backend.close()


class TestPackets:
    """A server that takes no more than the least in one statement."""

    @pytest.fixture(autouse=True)
    def small(self, private_server: MariadbServer) -> Iterator[None]:
        private_server.start()
        private_server.execute("SET GLOBAL max_allowed_packet = 1048576")
        yield
        private_server.execute("SET GLOBAL max_allowed_packet = 16777216")

    async def test_batches_are_cut_to_what_it_takes(self, connect: Connect) -> None:
        backend = await connect(5.0)
        realm, row = fresh_realm(), pointer("main")
        assert await backend.create_pointer(realm, row)
        rows: list[ObjectRow] = [thing(n, bytes([n]) * 350_000) for n in range(10)]
        await backend.write(realm, rows)
        await holds(backend, realm, rows)
        names = [f"{n:0512}" for n in range(3000)]
        assert await backend.create_pointers(realm, [pointer(name) for name in names]) == 3000
        assert len(await backend.fetch_pointers(realm, names)) == 3000
        assert await backend.publish(realm, rows, row, moved(row, b"there"))
        await backend.close()

    async def test_a_server_with_a_smaller_packet_limit_is_refused(
        self, private_server: MariadbServer, connect: Connect
    ) -> None:
        private_server.execute("SET GLOBAL max_allowed_packet = 524288")
        with pytest.raises(NotSupported, match="max_allowed_packet"):
            await connect(5.0)


async def test_a_server_that_forgets_is_warned_of(
    private_server: MariadbServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await (await connect(5.0)).close()
        assert not caplog.records
        private_server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        await (await connect(5.0)).close()
        private_server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert "innodb_flush_log_at_trx_commit = 1" in caplog.text


async def _direct(location: str) -> asyncmy.Connection:
    """A connection of another program to the same database."""
    parts = urlsplit(location)
    connection = asyncmy.Connection(
        user=parts.username,
        database=parts.path.removeprefix("/"),
        unix_socket=parts.query.removeprefix("unix_socket="),
    )
    await connection.connect()
    return connection


class TestTls:
    @pytest.fixture
    def authority(self, private_server: MariadbServer) -> Iterator[Path]:
        """The file of who has signed the server's certificate: the server itself."""
        key, certificate = (private_server.directory / name for name in ("key.pem", "cert.pem"))
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
                *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        key.chmod(0o644)
        before = dict(private_server.settings)
        private_server.settings |= {"ssl-key": str(key), "ssl-cert": str(certificate)}
        private_server.settings |= {"require-secure-transport": "ON"}
        private_server.restart()
        yield certificate
        private_server.settings = before
        private_server.restart()

    async def test_the_server_must_present_a_valid_certificate(
        self, private_server: MariadbServer, authority: Path
    ) -> None:
        plain = private_server.location(DATABASE, tcp=True)
        backend = await MariadbCatalog.open(f"{plain}?ssl_ca={authority}")
        realm, row = fresh_realm(), pointer("main")
        assert await backend.create_pointer(realm, row)
        assert await get_pointer(backend, realm, "main") == row
        await backend.close()
        with pytest.raises(Unavailable):
            await MariadbCatalog.open(plain)
        stranger = ssl.get_default_verify_paths().cafile
        if stranger is not None:
            with pytest.raises(Unavailable, match="certificate"):
                await MariadbCatalog.open(f"{plain}?ssl_ca={stranger}")

    async def test_a_file_that_is_none_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="ssl_ca"):
            await MariadbCatalog.open("mariadb://root@localhost/db?ssl_ca=no-such-file")

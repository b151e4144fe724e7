"""One connection to MariaDB: prepared statements, one transaction at a time, and sorted errors.

The driver is asyncmy: see `docs/decisions/0062-drivers-of-the-catalog.md`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from asyncmy import errors as driver
from asyncmy.connection import Connection, PreparedStatement
from asyncmy.constants import CLIENT, CR, ER

from naksha.mariadb.sql import statement
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError, StorageCorrupt, Unavailable
from naksha.spi.locations import CATALOGS

_CLIENT_ERRORS: Final = range(2000, 3000)
"""Raised by the driver itself: the connection is lost."""
_LOST: Final = frozenset({ER.SERVER_SHUTDOWN, ER.NET_PACKET_TOO_LARGE, 1927, 1129, 1130})
"""Answers after which the server closes the connection; what was under way is unknown."""
_BUSY: Final = frozenset({ER.LOCK_DEADLOCK, ER.CHECKREAD})
"""Another transaction was in the way; the statement or the transaction was undone."""
_REFUSED: Final = frozenset(
    {
        *(ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.OUT_OF_RESOURCES),
        *(ER.DBACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR),
        *(ER.BAD_DB_ERROR, ER.DISK_FULL, ER.RECORD_FILE_FULL, ER.OPTION_PREVENTS_STATEMENT),
        ER.LOCK_WAIT_TIMEOUT,  # half of the time is over, so it is not tried again
        *(ER.QUERY_INTERRUPTED, 1792, 1969),  # read-only transaction, statement took too long
    }
)
"""Not now, or not to you."""


class Busy(Unavailable):
    """Another transaction was in the way; the same call may succeed at once."""


class Duplicate(NakshaError):
    """The key is taken."""


class Answer(NamedTuple):
    """What a statement gave."""

    rows: Sequence[tuple[Any, ...]]
    matched: int
    """Rows that it wrote, deleted or found to be as they should be."""


class MariadbSession:
    """See `naksha.spi.support.server_calls.Session`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._statements: dict[str, PreparedStatement] = {}
        self._is_in_transaction = False
        self.is_at_risk = False

    async def execute(self, name: str, *values: object, changes: bool = False) -> Answer:
        """Carry a named statement out, at once or in the transaction under way."""
        prepared = await self._prepared(name)
        with self._sorted(changes):
            result = await prepared.execute(values)
        return Answer(result.rows or (), result.affected_rows)

    async def execute_many(self, name: str, rows: Sequence[tuple[object, ...]]) -> Answer:
        """An INSERT of many rows: one statement, one round trip."""
        prepared = await self._prepared(name)
        with self._sorted(changes=True):
            result = await prepared.execute_bulk(rows)
        return Answer((), result.affected_rows)

    async def execute_text(self, text: str) -> None:
        """Carry a statement out that is needed once."""
        with self._sorted(changes=False):
            prepared = await self._connection.prepare(text)
            await prepared.execute()
            await prepared.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Statements that are carried out together, or not at all. Only the end is at risk: what
        was not committed when the connection breaks is undone."""
        with self._sorted(changes=False):
            await self._connection.begin()
        self._is_in_transaction = True
        try:
            yield
        except NakshaError:
            self._is_in_transaction = False
            with self._sorted(changes=False):
                await self._connection.rollback()
            raise
        self._is_in_transaction = False
        with self._sorted(changes=True):
            await self._connection.commit()

    async def is_alive(self) -> bool:
        with self._sorted(changes=False):
            await self._connection.ping(reconnect=False)
        return True

    async def close(self) -> None:
        self._connection.close()

    async def _prepared(self, name: str) -> PreparedStatement:
        if name not in self._statements:
            with self._sorted(changes=False):
                self._statements[name] = await self._connection.prepare(statement(name))
        return self._statements[name]

    @contextmanager
    def _sorted(self, changes: bool) -> Iterator[None]:
        """Say whether a change is under way, and raise our error in place of the driver's."""
        self.is_at_risk = changes and not self._is_in_transaction
        try:
            yield
        except driver.MySQLError as error:
            number = _number(error)
            if number in _LOST or number in _CLIENT_ERRORS:
                self.is_at_risk = self.is_at_risk and number != ER.NET_PACKET_TOO_LARGE
                raise ConnectionError(str(error)) from error
            self.is_at_risk = False
            raise _of(number, str(error)) from error
        self.is_at_risk = False


def _number(error: driver.MySQLError) -> int:
    """The number of an error that the server sent; else that of a lost connection."""
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) and number > 0 else CR.CR_SERVER_LOST


def _of(number: int, message: str) -> NakshaError:
    """Our error for one of the server's."""
    if number == ER.DUP_ENTRY:
        return Duplicate(message)
    if number in _BUSY:
        return Busy(f"Another transaction was in the way: {message}")
    if number in _REFUSED:
        return Unavailable(f"MariaDB refuses: {message}")
    if number == ER.DATA_TOO_LONG:
        return InvalidArgument(f"MariaDB: {message}")
    return StorageCorrupt(f"MariaDB does not understand the catalog: {message}")


def _context(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise InvalidArgument(
            f"ssl_ca: {authorities} holds no certificates of authorities: {error}",
            field=CATALOGS.noun,
        ) from error


class Address:
    """Where a server is, from a location.

    mariadb://user[:password]@host[:port]/database[?ssl_ca=/path]
    mariadb://user[:password]@/database?unix_socket=/path
    """

    def __init__(self, location: str, call_seconds_max: float) -> None:
        CATALOGS.scheme_of(location)
        parts = urlsplit(location)
        query = dict(parse_qsl(parts.query))
        database = unquote(parts.path.removeprefix("/"))
        unknown = set(query) - {"unix_socket", "ssl_ca"}
        if parts.scheme != "mariadb" or not parts.username or not database or unknown:
            raise InvalidArgument(
                "A catalog on MariaDB is written as mariadb://user:password@host:3306/database, "
                "with ?ssl_ca=/path for TLS, or with ?unix_socket=/path in place of the host"
                + (f"; unknown: {', '.join(sorted(unknown))}" if unknown else ""),
                field=CATALOGS.noun,
            )
        self._settings: dict[str, Any] = {
            "user": unquote(parts.username),
            "password": unquote(parts.password or "").encode(),
            "host": parts.hostname or "localhost",
            "port": parts.port or 0,
            "database": database,
            "unix_socket": query.get("unix_socket"),
        }
        if "ssl_ca" in query:
            self._settings["ssl"] = _context(query["ssl_ca"])
        # Given up before the caller does, so that it is known that nothing was written.
        self._lock_seconds_max = max(1, int(call_seconds_max / 2))

    async def connect(self) -> MariadbSession:
        """A new session; OSError when the server does not take it."""
        connection = Connection(
            **self._settings,
            autocommit=True,
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=limits.CATALOG_CALL_SECONDS_MAX,
            program_name="naksha",
        )
        session = MariadbSession(connection)
        try:
            with session._sorted(changes=False):
                await connection.connect()
            await session.execute("session_mode", self._lock_seconds_max)
            await session.execute("session_isolation")
        except BaseException:
            await session.close()
            raise
        return session

"""One connection to MariaDB: prepared statements, transactions, and classification of errors.

The driver is asyncmy; see `docs/decisions/0062-drivers-of-the-catalog.md`.
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
"""Error numbers that the driver itself raises: the connection is lost."""
_LOST: Final = frozenset({ER.SERVER_SHUTDOWN, ER.NET_PACKET_TOO_LARGE, 1927, 1129, 1130})
"""Errors after which the server closes the connection; the outcome of the statement is unknown."""
_BUSY: Final = frozenset({ER.LOCK_DEADLOCK, ER.CHECKREAD})
"""Conflicts with another transaction; the statement or the transaction was rolled back."""
_REFUSED: Final = frozenset(
    {
        *(ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.OUT_OF_RESOURCES),
        *(ER.DBACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR),
        *(ER.BAD_DB_ERROR, ER.DISK_FULL, ER.RECORD_FILE_FULL, ER.OPTION_PREVENTS_STATEMENT),
        ER.LOCK_WAIT_TIMEOUT,  # Half of the call's time has passed, so it is not retried.
        *(ER.QUERY_INTERRUPTED, 1792, 1969),  # Read-only transaction, statement timeout.
    }
)
"""Statements that were refused: overload, missing rights, full disk, timeouts."""


class TransactionConflict(Unavailable):
    """Conflict with another transaction; the same call may succeed when it is repeated at once."""


class DuplicateKey(NakshaError):
    """The key already exists."""


class StatementResult(NamedTuple):
    """Result of a statement."""

    rows: Sequence[tuple[Any, ...]]
    matched: int
    """Number of rows that it wrote, deleted or found already correct."""


class MariadbSession:
    """Session on a MariaDB server; see `naksha.spi.support.server_calls.ServerSession`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._statements: dict[str, PreparedStatement] = {}
        self._is_in_transaction = False
        self.is_at_risk = False

    async def execute(self, name: str, *values: object, changes: bool = False) -> StatementResult:
        """Run a named statement, with its own commit or in the open transaction."""
        prepared = await self._prepared(name)
        with self._sorted(changes):
            result = await prepared.execute(values)
        return StatementResult(result.rows or (), result.affected_rows)

    async def execute_many(self, name: str, rows: Sequence[tuple[object, ...]]) -> StatementResult:
        """Run an INSERT of many rows as one statement in one round trip."""
        prepared = await self._prepared(name)
        with self._sorted(changes=True):
            result = await prepared.execute_bulk(rows)
        return StatementResult((), result.affected_rows)

    async def execute_text(self, text: str) -> None:
        """Run a statement that is needed only once, without keeping it prepared."""
        with self._sorted(changes=False):
            prepared = await self._connection.prepare(text)
            await prepared.execute()
            await prepared.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run statements in a transaction.

        Only during the commit is the outcome at risk: when the connection breaks before it, the
        server rolls the transaction back.
        """
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
        """Track whether a change is in flight; raise a Naksha error in place of the driver's."""
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
    """Return the number of an error that the server sent, else that of a lost connection."""
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) and number > 0 else CR.CR_SERVER_LOST


def _of(number: int, message: str) -> NakshaError:
    """Return the Naksha error for an error of the server."""
    if number == ER.DUP_ENTRY:
        return DuplicateKey(message)
    if number in _BUSY:
        return TransactionConflict(
            "MariaDB rolled the transaction back because of another one; repeat the call: "
            f"{message}"
        )
    if number in _REFUSED:
        return Unavailable(
            f"MariaDB refused the statement; its operator has to correct the cause: {message}"
        )
    if number == ER.DATA_TOO_LONG:
        return InvalidArgument(f"A value is too long for MariaDB: {message}")
    return StorageCorrupt(f"Unexpected MariaDB error in the catalog: {message}")


def _context(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise InvalidArgument(
            f"ssl_ca: CA certificates could not be loaded from {authorities}: {error}",
            field=CATALOGS.noun,
        ) from error


class MariadbAddress:
    """Address of a MariaDB server, parsed from a location.

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
                "Invalid location of a MariaDB catalog: use "
                "mariadb://user:password@host:3306/database, with ?ssl_ca=/path for TLS, or with "
                "?unix_socket=/path in place of the host"
                + (f"; unknown options: {', '.join(sorted(unknown))}" if unknown else ""),
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
        # Lock waits end before the call's timeout, so that it is certain that nothing was written.
        self._lock_seconds_max = max(1, int(call_seconds_max / 2))

    async def connect(self) -> MariadbSession:
        """Open a new session.

        Raises:
            OSError: The server cannot be reached or refuses the connection.
        """
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

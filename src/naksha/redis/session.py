"""One connection to Redis: send commands, read responses, and classify errors.

Only the connection class of the client package is used. Its pool and its client retry a command
whose response was lost. A compare-and-swap must never be retried like that, because it would fail
against its own first attempt.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import exceptions
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from naksha.model.errors import InvalidArgument, NakshaError, StorageCorrupt, Unavailable
from naksha.redis.scripts import script
from naksha.spi.locations import CATALOGS

_UNIX: Final = "redis+unix"
_REFUSALS: Final = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)
"""Error codes of commands that were refused (overload, missing rights, ...) and had no effect."""


class RedisSession:
    """Session on a Redis server; see `naksha.spi.support.server_calls.ServerSession`."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.is_at_risk = False

    async def execute(self, *words: str | bytes | int, changes: bool = False) -> Any:
        """Run a command; return its response: bytes, an integer, None, or a list of these."""
        self.is_at_risk = changes
        try:
            await self._connection.send_command(*words)
            response = await self._connection.read_response(disable_decoding=True)
        except exceptions.ResponseError as error:
            self.is_at_risk = False
            raise _of(error) from error
        except (exceptions.BusyLoadingError, exceptions.AuthenticationError) as error:
            self.is_at_risk = False  # The package closes the connection, but the server responded.
            raise ConnectionError(str(error)) from error
        except exceptions.RedisError as error:
            raise ConnectionError(str(error)) from error
        self.is_at_risk = False
        return response

    async def run(
        self, name: str, keys: list[str], *words: str | bytes | int, changes: bool = True
    ) -> Any:
        """Run a script; return its result."""
        wanted = script(name)
        try:
            return await self.execute(
                "EVALSHA", wanted.digest, len(keys), *keys, *words, changes=changes
            )
        except _NoScript:  # The first call since the server was started.
            return await self.execute(
                "EVAL", wanted.text, len(keys), *keys, *words, changes=changes
            )

    async def is_alive(self) -> bool:
        return bool(await self.execute("PING") == b"PONG")

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


class _NoScript(NakshaError):
    """The server has not cached the script; nothing was executed."""


def _of(error: exceptions.ResponseError) -> NakshaError:
    """Return the Naksha error for an error response."""
    if isinstance(error, exceptions.NoScriptError):
        return _NoScript(str(error))
    # The package removes the code from the message when it has a class for it.
    known = (
        exceptions.ReadOnlyError,
        exceptions.OutOfMemoryError,
        exceptions.NoPermissionError,
        exceptions.ClusterDownError,
        exceptions.TryAgainError,
    )
    text = str(error)
    is_refusal = text.startswith(_REFUSALS) or any(f"-{code} " in text for code in _REFUSALS)
    if isinstance(error, known) or is_refusal:
        return Unavailable(
            f"Redis refused the command; its operator has to correct the cause: {error}"
        )
    return StorageCorrupt(f"Unexpected Redis error in the catalog: {error}")


class RedisAddress:
    """Address of a Redis server, parsed from a location that may contain the prefix of all keys.

    redis://[user:password@]host[:port][/db][?prefix=…]
    rediss://…                   the same with TLS
    redis+unix:///path[?db=0]    or unix:///path
    """

    def __init__(self, location: str) -> None:
        CATALOGS.scheme_of(location)
        parts = urlsplit(location)
        query = dict(parse_qsl(parts.query))
        self.prefix = query.pop("prefix", None)
        scheme = "unix" if parts.scheme == _UNIX else parts.scheme
        url = urlunsplit(parts._replace(scheme=scheme, query=urlencode(query)))
        try:
            self._settings: dict[str, Any] = dict(parse_url(url))
        except ValueError as error:
            raise InvalidArgument(
                f"The {parts.scheme}: location is not a valid Redis URL ({error}); use "
                "redis://host:6379/0, rediss://host:6379/0 or redis+unix:///path?db=0",
                field=CATALOGS.noun,
            ) from error
        self._class = self._settings.pop("connection_class", Connection)

    async def connect(self) -> RedisSession:
        """Open a new session.

        Raises:
            OSError: The server cannot be reached or refuses the connection.
        """
        try:
            connection: AbstractConnection = self._class(
                **self._settings,
                protocol=2,
                socket_timeout=None,  # The whole call has a timeout.
                retry=Retry(NoBackoff(), 0),
            )
        except TypeError as error:
            raise InvalidArgument(
                f"Unsupported option in the Redis location: {error}", field=CATALOGS.noun
            ) from error
        try:
            await connection.connect()
        except exceptions.RedisError as error:
            raise ConnectionError(str(error)) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return RedisSession(connection)

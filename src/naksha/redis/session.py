"""One connection to Redis: a command goes out, its answer comes in, and errors are sorted.

Of the client package only its connection is used. Its pool and its client repeat a command whose
answer got lost, which must never be done to a compare-and-swap: it would lose against itself.
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

UNIX: Final = "redis+unix"
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
"""How answers begin that say: not now, or not to you. Nothing was carried out."""


class RedisSession:
    """See `naksha.spi.support.server_calls.Session`."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.is_at_risk = False

    async def execute(self, *words: str | bytes | int, changes: bool = False) -> Any:
        """The answer to a command: bytes, an integer, None, or a list of such."""
        self.is_at_risk = changes
        try:
            await self._connection.send_command(*words)
            answer = await self._connection.read_response(disable_decoding=True)
        except exceptions.ResponseError as error:
            self.is_at_risk = False
            raise _of(error) from error
        except (exceptions.BusyLoadingError, exceptions.AuthenticationError) as error:
            self.is_at_risk = False  # the package closes the connection, but it is an answer
            raise ConnectionError(str(error)) from error
        except exceptions.RedisError as error:
            raise ConnectionError(str(error)) from error
        self.is_at_risk = False
        return answer

    async def run(
        self, name: str, keys: list[str], *words: str | bytes | int, changes: bool = True
    ) -> Any:
        """What a script returns."""
        wanted = script(name)
        try:
            return await self.execute(
                "EVALSHA", wanted.digest, len(keys), *keys, *words, changes=changes
            )
        except _NoScript:  # the first time since the server was started
            return await self.execute(
                "EVAL", wanted.text, len(keys), *keys, *words, changes=changes
            )

    async def is_alive(self) -> bool:
        return bool(await self.execute("PING") == b"PONG")

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


class _NoScript(NakshaError):
    """The server does not know the script; nothing was carried out."""


def _of(error: exceptions.ResponseError) -> NakshaError:
    """Our error for an answer that is an error."""
    if isinstance(error, exceptions.NoScriptError):
        return _NoScript(str(error))
    # The package takes the code away when it has a class for it.
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
        return Unavailable(f"Redis refuses: {error}")
    return StorageCorrupt(f"Redis does not understand the catalog: {error}")


class Address:
    """Where a server is, from a location; the prefix of all keys may be in it.

    redis://[user:password@]host[:port][/db][?prefix=…]
    rediss://…                   the same with TLS
    redis+unix:///path[?db=0]    or unix:///path
    """

    def __init__(self, location: str) -> None:
        CATALOGS.scheme_of(location)
        parts = urlsplit(location)
        query = dict(parse_qsl(parts.query))
        self.prefix = query.pop("prefix", None)
        scheme = "unix" if parts.scheme == UNIX else parts.scheme
        url = urlunsplit(parts._replace(scheme=scheme, query=urlencode(query)))
        try:
            self._settings: dict[str, Any] = dict(parse_url(url))
        except ValueError as error:
            raise InvalidArgument(
                f"{parts.scheme}: is no location of Redis ({error}); it is written as "
                "redis://host:6379/0, rediss://host:6379/0 or redis+unix:///path?db=0",
                field=CATALOGS.noun,
            ) from error
        self._class = self._settings.pop("connection_class", Connection)

    async def connect(self) -> RedisSession:
        """A new session; OSError when the server does not take it."""
        try:
            connection: AbstractConnection = self._class(
                **self._settings,
                protocol=2,
                socket_timeout=None,  # the whole call has a time to end
                retry=Retry(NoBackoff(), 0),
            )
        except TypeError as error:
            raise InvalidArgument(f"Redis: {error}", field=CATALOGS.noun) from error
        try:
            await connection.connect()
        except exceptions.RedisError as error:
            raise ConnectionError(str(error)) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return RedisSession(connection)

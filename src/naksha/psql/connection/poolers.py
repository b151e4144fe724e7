"""Detection of connection poolers that do not keep sessions.

Storage and catalog rely on the session of a connection: its settings, prepared statements, locks
and LISTEN. pgbouncer keeps it with `pool_mode=session` only. It does not report its mode, and
comparing server processes proves nothing, because an idle pooler assigns the same one each time. So
PostgreSQL is asked to end an idle session. Where the session is kept the client loses its
connection; otherwise the client has no server process while it is idle, and notices nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Final

import asyncpg

from naksha.model.errors import NotSupported
from naksha.psql.connection.driver import CONNECT_S, Direct
from naksha.psql.connection.errors import DRIVER_ERRORS
from naksha.psql.sql import inlined, queries
from naksha.spi.locations import redacted

_PROBE_MS: Final = 25
"""Idle time after which the server ends the session; doubled with each probe."""
_PROBE_WAITS: Final = 4
"""Multiple of the idle time that the client waits for the end, before it checks its session."""
PROBES_MAX: Final = 6
"""Inconclusive probes, because of a slow response or other clients on the same session."""


async def connect_checked(dsn: str, timeout_s: float = CONNECT_S) -> Direct:
    """Open a connection with the server's default settings, and check for poolers.

    Raises:
        NotSupported: A connection pooler is in between that does not keep sessions.
    """
    connection = await asyncpg.connect(dsn, timeout=timeout_s)
    try:
        if await _is_direct(connection, timeout_s):
            return connection
        await connection.close()  # A pool may have a single server connection.
    except BaseException:
        connection.terminate()
        raise
    if not await _keeps_sessions(dsn, timeout_s):
        raise NotSupported(
            f"The connection pooler at {redacted(dsn)} does not keep sessions, like pgbouncer with "
            "pool_mode=transaction or statement; Naksha needs session settings, prepared "
            "statements, session locks and LISTEN. Set pool_mode=session for this database, or "
            "connect to PostgreSQL directly"
        )
    return await asyncpg.connect(dsn, timeout=timeout_s)


async def _is_direct(connection: Direct, timeout_s: float) -> bool:
    """Whether the server process is the one that was reported at connect.

    A pooler reports another one, since it forwards cancel requests.
    """
    return await _finds(connection, timeout_s, "backend_is", connection.get_server_pid())


async def _keeps_sessions(dsn: str, timeout_s: float) -> bool:
    failures: list[Exception] = []
    for n in range(PROBES_MAX):
        connection = await asyncpg.connect(dsn, timeout=timeout_s)
        try:
            found = await _probe(connection, timeout_s, _PROBE_MS << n)
        except DRIVER_ERRORS as error:
            # The pooler may have assigned a session that an earlier probe is about to end.
            failures.append(error)
            continue
        finally:
            connection.terminate()
        if found is not None:
            return found
    if len(failures) == PROBES_MAX:
        raise failures[-1]
    return False


async def _probe(connection: Direct, timeout_s: float, idle_ms: int) -> bool | None:
    """Whether the idle client loses its connection together with the session.

    None when the probe is inconclusive.
    """
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    token = secrets.token_hex()
    # A pooler may have to connect for the first statement.
    await _finds(connection, timeout_s, "idle_end_is_set", token)
    begun = time.monotonic()
    await _finds(connection, timeout_s, "idle_end_set", token, str(idle_ms))
    if (time.monotonic() - begun) * 1000 >= idle_ms:
        # The session may have ended before the pooler could take it away from the client.
        return None
    with suppress(TimeoutError):
        async with asyncio.timeout(idle_ms * _PROBE_WAITS / 1000):
            await ended.wait()
            return True
    return None if await _finds(connection, timeout_s, "idle_end_is_set", token) else False


async def _finds(connection: Direct, timeout_s: float, query: str, *values: str | int) -> bool:
    """Whether a query returns a row.

    It has no parameters, so it needs no prepared statement, which a pooler might lose before use.
    """
    tag = await connection.execute(inlined(queries()[query], values), timeout=timeout_s)
    return tag.endswith(" 1")

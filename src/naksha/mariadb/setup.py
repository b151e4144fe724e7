"""What is asked of a MariaDB before it may hold a catalog: its version, settings and our tables."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Final

from naksha.mariadb.session import MariadbSession
from naksha.mariadb.sql import schema
from naksha.model import limits
from naksha.model.errors import NotSupported
from naksha.spi.locations import CATALOGS
from naksha.spi.support.server_calls import Server

FORMAT: Final = 1
"""Raised with every change of the tables that an older program would misread."""

VERSION_MIN: Final = (10, 6)
"""The first one with JSON_TABLE."""

PACKET_BYTES_MIN: Final = 1 * limits.MIB
"""A row of the largest size, what comes with it, and then some."""

_log: Final = logging.getLogger(__name__)


async def set_up(server: Server[MariadbSession]) -> int:
    """Make the tables if they are not there; the bytes that one statement may have.

    Raises NotSupported for a server or a format that is not for us.
    """
    answer = await server.call(lambda session: session.execute("variables"))
    variables = {_text(name): _text(value) for name, value in answer.rows}
    _check_server(variables)
    _warn_unless_durable(variables)
    for text in schema():
        await server.call(partial(MariadbSession.execute_text, text=text))
    await server.call(lambda session: session.execute("write_format", FORMAT))
    found = await server.call(lambda session: session.execute("read_format"))
    version = found.rows[0][0]
    if version > FORMAT:
        raise NotSupported(
            f"The catalog was written by a newer Naksha (format {version}, this one knows "
            f"{FORMAT}); update it",
            field=CATALOGS.noun,
        )
    return int(variables["max_allowed_packet"])


def _check_server(variables: dict[str, str]) -> None:
    version = re.match(r"(\d+)\.(\d+).*MariaDB", variables["version"])
    if version is None or (int(version[1]), int(version[2])) < VERSION_MIN:
        raise NotSupported(
            f"This server is {variables['version']}; a catalog needs MariaDB "
            f"{VERSION_MIN[0]}.{VERSION_MIN[1]} or later",
            field=CATALOGS.noun,
        )
    packet = int(variables["max_allowed_packet"])
    if packet < PACKET_BYTES_MIN:
        raise NotSupported(
            f"max_allowed_packet is {packet}; a catalog needs at least {PACKET_BYTES_MIN}",
            field=CATALOGS.noun,
        )
    if variables.get("wsrep_on", "OFF") == "ON":
        raise NotSupported(
            "A node of a Galera cluster may read what is older than the last acknowledged write; "
            "a catalog needs one server",
            field=CATALOGS.noun,
        )
    if variables.get("read_only", "OFF") == "ON":
        raise NotSupported("This MariaDB is read-only; name its primary", field=CATALOGS.noun)


def _warn_unless_durable(variables: dict[str, str]) -> None:
    lax = []
    if variables.get("innodb_flush_log_at_trx_commit") not in ("1", "3"):
        lax.append("innodb_flush_log_at_trx_commit")
    if variables.get("log_bin") == "ON" and variables.get("sync_binlog") != "1":
        lax.append("sync_binlog")
    if lax:
        _log.warning(
            "MariaDB may lose acknowledged writes in a crash: a catalog should have %s = 1",
            " and ".join(lax),
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

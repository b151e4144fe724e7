"""Setup of a MariaDB server for a catalog: check its version and settings, create the tables."""

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
from naksha.spi.support.server_calls import SessionPool

FORMAT: Final = 1
"""Format version; incremented with every change of the tables that older versions misread."""

VERSION_MIN: Final = (10, 6)
"""The first version with JSON_TABLE."""

_PACKET_BYTES_MIN: Final = 1 * limits.MIB
"""Enough for a row of the largest size with its other columns, and some reserve."""

_log: Final = logging.getLogger(__name__)


async def set_up(server: SessionPool[MariadbSession]) -> int:
    """Create the tables if they do not exist; return the maximum size of a statement in bytes.

    Raises:
        NotSupported: The server is not suitable, or a newer version wrote the catalog.
    """
    response = await server.call(lambda session: session.execute("variables"))
    variables = {_text(name): _text(value) for name, value in response.rows}
    _check_server(variables)
    _warn_unless_durable(variables)
    for text in schema():
        await server.call(partial(MariadbSession.execute_text, text=text))
    await server.call(lambda session: session.execute("write_format", FORMAT))
    found = await server.call(lambda session: session.execute("read_format"))
    version = found.rows[0][0]
    if version > FORMAT:
        raise NotSupported(
            f"The catalog was written by a newer Naksha (format {version}, this version supports "
            f"up to {FORMAT}); upgrade Naksha",
            field=CATALOGS.noun,
        )
    return int(variables["max_allowed_packet"])


def _check_server(variables: dict[str, str]) -> None:
    version = re.match(r"(\d+)\.(\d+).*MariaDB", variables["version"])
    if version is None or (int(version[1]), int(version[2])) < VERSION_MIN:
        raise NotSupported(
            f"The server is {variables['version']}; a catalog needs MariaDB "
            f"{VERSION_MIN[0]}.{VERSION_MIN[1]} or later",
            field=CATALOGS.noun,
        )
    packet = int(variables["max_allowed_packet"])
    if packet < _PACKET_BYTES_MIN:
        raise NotSupported(
            f"max_allowed_packet of the MariaDB server is {packet}; set it to at least "
            f"{_PACKET_BYTES_MIN}",
            field=CATALOGS.noun,
        )
    if variables.get("wsrep_on", "OFF") == "ON":
        raise NotSupported(
            "The MariaDB server is a Galera node, whose reads may miss acknowledged writes; use a "
            "single server",
            field=CATALOGS.noun,
        )
    if variables.get("read_only", "OFF") == "ON":
        raise NotSupported(
            "The MariaDB server is read-only; use the location of its primary", field=CATALOGS.noun
        )


def _warn_unless_durable(variables: dict[str, str]) -> None:
    lax = []
    if variables.get("innodb_flush_log_at_trx_commit") not in ("1", "3"):
        lax.append("innodb_flush_log_at_trx_commit")
    if variables.get("log_bin") == "ON" and variables.get("sync_binlog") != "1":
        lax.append("sync_binlog")
    if lax:
        _log.warning(
            "MariaDB may lose acknowledged writes in a crash; set %s = 1",
            " and ".join(lax),
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

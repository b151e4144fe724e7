"""Checks of a Redis server before its use for a catalog: its format, and that it keeps all keys."""

from __future__ import annotations

import logging
from typing import Final

from naksha.model.errors import NakshaError, NotSupported, StorageCorrupt
from naksha.redis.session import RedisSession
from naksha.spi.locations import CATALOGS
from naksha.spi.support.server_calls import SessionPool

FORMAT: Final = 1
"""Format version; incremented with every change of the layout that older versions misread."""

_log: Final = logging.getLogger(__name__)


async def set_up(server: SessionPool[RedisSession], key: str) -> None:
    """Check the server and the format of the catalog; set the format if there is none.

    Raises:
        NotSupported: The server is not suitable, or a newer version wrote the catalog.
    """
    info = _parsed(await server.call(lambda session: session.execute("INFO")))
    _check_server(info)
    await _warn_unless_durable(server, info)
    await _check_format(server, key)


def _check_server(info: dict[str, str]) -> None:
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        raise NotSupported(
            f"The Redis server may evict any key (maxmemory-policy {policy}); set it to noeviction",
            field=CATALOGS.noun,
        )
    if info.get("role", "master") != "master":
        raise NotSupported(
            "The Redis server is a replica; use the location of its primary", field=CATALOGS.noun
        )
    if info.get("cluster_enabled", "0") != "0":
        raise NotSupported(
            "The Redis server is part of a cluster, where scripts can use only one slot; use a "
            "single server",
            field=CATALOGS.noun,
        )


async def _warn_unless_durable(server: SessionPool[RedisSession], info: dict[str, str]) -> None:
    try:
        response = await server.call(
            lambda session: session.execute("CONFIG", "GET", "appendfsync")
        )
        appendfsync = response[1].decode() if response else "unknown"
    except NakshaError:  # Many hosted servers do not permit CONFIG.
        appendfsync = "unknown"
    has_file = info.get("aof_enabled") == "1"
    if not has_file or appendfsync != "always":
        _log.warning(
            "Redis may lose acknowledged writes in a crash: appendonly is %s, appendfsync is %s; "
            "set them to yes and always",
            "yes" if has_file else "no",
            appendfsync,
        )


async def _check_format(server: SessionPool[RedisSession], key: str) -> None:
    await server.call(lambda session: session.execute("SETNX", key, FORMAT))
    found = await server.call(lambda session: session.execute("GET", key))
    try:
        version = int(found)
    except (TypeError, ValueError):
        raise StorageCorrupt(
            f"Redis key {key} must hold the format version of a catalog, "
            f"not {found!r}; use another database or prefix"
        ) from None
    if version > FORMAT:
        raise NotSupported(
            f"The catalog was written by a newer Naksha (format {version}, this version supports "
            f"up to {FORMAT}); upgrade Naksha",
            field=CATALOGS.noun,
        )


def _parsed(answer: bytes) -> dict[str, str]:
    """Parse the response to INFO into names and values."""
    lines = (line for line in answer.decode("utf-8", "replace").splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)

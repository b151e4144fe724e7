"""What is asked of a Redis before it may hold a catalog: the format, and that it keeps its keys."""

from __future__ import annotations

import logging
from typing import Final

from naksha.model.errors import NakshaError, NotSupported, StorageCorrupt
from naksha.redis.session import RedisSession
from naksha.spi.locations import CATALOGS
from naksha.spi.support.server_calls import Server

FORMAT: Final = 1
"""Raised with every change of the layout that an older program would misread."""

_log: Final = logging.getLogger(__name__)


async def set_up(server: Server[RedisSession], key: str) -> None:
    """Raises NotSupported for a server or a format that is not for us."""
    info = _parsed(await server.call(lambda session: session.execute("INFO")))
    _check_server(info)
    await _warn_unless_durable(server, info)
    await _check_format(server, key)


def _check_server(info: dict[str, str]) -> None:
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        raise NotSupported(
            f"This Redis may evict any key (maxmemory-policy {policy}); a catalog needs noeviction",
            field=CATALOGS.noun,
        )
    if info.get("role", "master") != "master":
        raise NotSupported("This Redis is a replica; name its primary", field=CATALOGS.noun)
    if info.get("cluster_enabled", "0") != "0":
        raise NotSupported(
            "This Redis is a cluster, whose scripts see one slot only; a catalog needs one server",
            field=CATALOGS.noun,
        )


async def _warn_unless_durable(server: Server[RedisSession], info: dict[str, str]) -> None:
    try:
        answer = await server.call(lambda session: session.execute("CONFIG", "GET", "appendfsync"))
        appendfsync = answer[1].decode() if answer else "unknown"
    except NakshaError:  # many hosted servers tell nobody
        appendfsync = "unknown"
    has_file = info.get("aof_enabled") == "1"
    if not has_file or appendfsync != "always":
        _log.warning(
            "Redis may lose acknowledged writes in a crash: appendonly is %s, appendfsync is %s; "
            "a catalog should have yes and always",
            "yes" if has_file else "no",
            appendfsync,
        )


async def _check_format(server: Server[RedisSession], key: str) -> None:
    await server.call(lambda session: session.execute("SETNX", key, FORMAT))
    found = await server.call(lambda session: session.execute("GET", key))
    try:
        version = int(found)
    except (TypeError, ValueError):
        raise StorageCorrupt(f"{key} in Redis is no version of a catalog: {found!r}") from None
    if version > FORMAT:
        raise NotSupported(
            f"The catalog was written by a newer Naksha (format {version}, this one knows "
            f"{FORMAT}); update it",
            field=CATALOGS.noun,
        )


def _parsed(answer: bytes) -> dict[str, str]:
    """INFO as names and values."""
    lines = (line for line in answer.decode("utf-8", "replace").splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)

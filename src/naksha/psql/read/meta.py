"""Meta features of a collection; see `naksha.spi.meta`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from naksha.model import limits
from naksha.model.errors import LimitExceeded
from naksha.psql.connection.driver import Connection
from naksha.psql.sql import ident, queries, sql
from naksha.spi.meta import check_meta_id, encode_meta


def _text(name: str, collection: str) -> str:
    return sql(name, meta=ident(collection + "_meta"))


async def find(connection: Connection, collection: str, id: str) -> dict[str, Any] | None:
    """Return a meta feature; see `Storage.meta`."""
    text = await connection.fetchval(_text("meta_get", collection), id)
    return None if text is None else msgspec.json.decode(text)


async def find_all(connection: Connection, collection: str) -> list[dict[str, Any]]:
    """Return all meta features; see `Storage.all_meta`."""
    rows = await connection.fetch(_text("meta_all", collection), limits.META_COUNT_MAX)
    return [msgspec.json.decode(row["jsondata"]) for row in rows]


async def put(connection: Connection, collection: str, feature: Mapping[str, Any]) -> None:
    """Store a meta feature; see `Storage.put_meta`."""
    id, text = encode_meta(feature)
    if await connection.fetchval(_text("meta_is_full", collection), id, limits.META_COUNT_MAX):
        raise LimitExceeded(
            f"Collection {collection!r} already has {limits.META_COUNT_MAX} meta features, the "
            "maximum; remove one first",
            collection_id=collection,
        )
    await connection.execute(queries()["meta_put"], collection, id, text)


async def remove(connection: Connection, collection: str, id: str) -> bool:
    """Remove a meta feature; see `Storage.remove_meta`."""
    found: bool = await connection.fetchval(queries()["meta_delete"], collection, check_meta_id(id))
    return found

"""Statement that builds a vector tile: PostGIS encodes it, so nothing is parsed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import LayerTables, rows_of
from naksha.psql.sql import sql
from naksha.spi.query.plan import plan_of

_NUMBERS: Final = ("version", "createdAt", "updatedAt", "rtcts", "rtuts")
_TEXTS: Final = (
    "action",
    "author",
    "appId",
    "uuid",
    "puuid",
    "muuid",
    "txn",
    "txn_next",
    "tags",
    "crid",
    "qrid",
    "mrid",
)


def tile_statement(
    layers: Sequence[LayerTables],
    query: Query,
    tile: VectorTile,
    *,
    ordered: bool,
) -> tuple[str, list[Any]]:
    """Return the statement that selects a tile and the number of features found for it.

    Unless `ordered`, any features within the limit are used, and one more is read to detect that
    the limit was exceeded.
    """
    statement = Statement()
    within = []
    if query.spatial is None:
        query = msgspec.structs.replace(query, spatial=tile.box())
    else:
        within.append(statement.box(tile.box()))
    limit = query.limit if ordered else None
    sources, order = rows_of(statement, layers, plan_of(query), "row", *within, limit=limit)
    if query.limit is not None and not ordered:
        order = sql("cut", limit=statement.number(query.limit + 1))
    properties = (
        sql("tile_flattened")
        if tile.flattened
        else sql("tile_properties", nested=sql("tile_nested"))
    )
    flat = tile.is_flat()
    text = sql(
        "select_tile",
        sources=sources,
        order=order,
        seen=sql("tile_seen" if tile.namespace else "tile_document"),
        namespace="".join(_namespace(tile)),
        properties=properties,
        taken=statement.texts(_taken(tile)),
        shape=_shape(statement, tile, flat),
        envelope=_envelope(statement, tile, flat),
        layer=statement.text(tile.layer),
        extent=statement.value(tile.extent, "int4"),
        buffer=statement.value(tile.buffer, "int4"),
        clip="true" if tile.clip else "false",
    )
    return text, statement.values


def _namespace(tile: VectorTile) -> Iterable[str]:
    """Yield the columns of the namespace."""
    if not tile.namespace:
        return
    if not tile.flattened:
        yield sql("tile_namespace") + " "
        return
    for keys, type_ in ((_NUMBERS, "::int8"), (_TEXTS, "")):
        for key in keys:
            yield sql("tile_namespace_flat", key=key, type=type_) + " "


def _taken(tile: VectorTile) -> Iterable[str]:
    """Yield the names that a feature's own properties cannot have: names are unique."""
    yield XYZ
    if not tile.flattened:
        yield "id"
    elif tile.namespace:
        yield from (f"{XYZ}.{key}" for key in (*_NUMBERS, *_TEXTS))


def _shape(statement: Statement, tile: VectorTile, flat: bool) -> str:
    geometry = sql("tile_geometry")
    if tile.tolerance:
        tolerance = statement.value(tile.tolerance, "float8")
        geometry = sql("tile_simplified", geometry=geometry, tolerance=tolerance)
    return geometry if flat else sql("tile_shape", geometry=geometry)


def _envelope(statement: Statement, tile: VectorTile, flat: bool) -> str:
    box = tile.bounds() if flat else tile
    edges = {name: getattr(box, name) for name in ("west", "south", "east", "north")}
    return sql(
        "tile_envelope",
        **{name: statement.value(float(edge), "float8") for name, edge in edges.items()},
    )

"""Support for edits in a plain SQLite shell: a view per collection, and what SQL cannot compute.

See `schema/080_feature_view.sql`.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import shapely

from naksha.model.damage import DAMAGED, UNREADABLE, decode_feature
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.model.features import NAMESPACE
from naksha.model.geo.geometry import encode_geometries, geojson_texts
from naksha.model.geo.tile_cells import covers, merged
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import ident, queries, sql, statements_of, text_literal
from naksha.sqlite.write.states import as_json

_TREES: Final = {
    "naksha_head": "naksha_box",
    "naksha_del": "naksha_gone",
    "naksha_hst": "naksha_past",
}
_BOXES_AT_ONCE: Final = 50_000
_NOWHERE: Final = (1000.0,) * 4
"""The box of a history state without geometry: outside of the world."""


# ---- Views -----------------------------------------------------------------------------------


def add_view(connection: sqlite3.Connection, c: CollectionRow) -> None:
    """Create the view that has the collection's name, unless it exists."""
    if _has_view(connection, c):
        return
    if connection.execute(queries()["view_exists"], (c.id,)).fetchone()[0]:
        raise InvalidArgument(
            f"The file already has a table, view or index named {c.id!r}; choose another "
            "collection id, or rename it",
            field="collection",
        )
    slots = {"view": ident(c.id), "t": str(c.t), "collection": text_literal(c.id)}
    events = {event: _trigger(c, event) for event in ("insert", "update", "delete")}
    for statement in statements_of(sql("view_create", **slots, **events)):
        connection.execute(statement)


def _has_view(connection: sqlite3.Connection, c: CollectionRow) -> bool:
    """Return whether the collection has a view that `add_view` created."""
    row = connection.execute(queries()["view_is_ours"], (c.id, _trigger(c, "insert"))).fetchone()
    return bool(row[0])


def drop_view(connection: sqlite3.Connection, c: CollectionRow) -> None:
    """Drop the view of a collection, if it has one."""
    if _has_view(connection, c):
        connection.execute(sql("view_drop", view=ident(c.id)))


def _trigger(c: CollectionRow, event: str) -> str:
    return f"naksha_view_{c.t}_{event}"


# ---- What SQL cannot compute -----------------------------------------------------------------


def is_incomplete(connection: sqlite3.Connection) -> bool:
    """Return whether states wait for `complete`."""
    return bool(connection.execute(queries()["is_incomplete"]).fetchone()[0])


def complete(connection: sqlite3.Connection) -> None:
    """Compute what SQL could not, for all states with a geometry that plain SQL wrote.

    The states keep their numbers and times: no reader has seen them yet.
    """
    for table, n, id_, geometry, jsondata in connection.execute(
        queries()["incomplete_rows"]
    ).fetchall():
        _complete(connection, table, n, id_, geometry, jsondata)
    connection.execute(queries()["incomplete_forget"])


def record_cells(connection: sqlite3.Connection) -> None:
    """Record the tile cells of edits in plain SQL in their log rows, if there are such edits."""
    if not connection.execute(queries()["has_edited_boxes"]).fetchone()[0]:
        return
    found: dict[tuple[int, str], set[int]] = {}
    rows = connection.execute(queries()["edited_boxes"])
    while some := rows.fetchmany(_BOXES_AT_ONCE):
        for key, boxes in groupby(some, key=itemgetter(0, 1)):
            # A missing box becomes one of NaN.
            changed = covers(np.array([box[2:] for box in boxes], np.float64))
            found[key] = merged(found.get(key, set()) | changed)
    connection.executemany(
        queries()["edited_cells"], [(as_json(sorted(cells)), *key) for key, cells in found.items()]
    )
    connection.execute(queries()["edited_boxes_forget"])


def _complete(
    connection: sqlite3.Connection, table: str, n: int, id_: str, geometry: str, jsondata: bytes
) -> None:
    document = decode_feature(jsondata)
    xyz = document["properties"][NAMESPACE]
    wkb, text, qrid, box = None, None, None, None
    try:
        feature = {"id": id_, "geometry": msgspec.json.decode(geometry)}
        encoded = encode_geometries([feature])
    except (NakshaError, *UNREADABLE) as error:
        document[DAMAGED] = {"field": "geometry", "problem": str(error)}
    else:
        (wkb,), (qrid,) = encoded.wkb, encoded.qrid
        (text,) = geojson_texts([wkb])
        box = tuple(shapely.bounds(shapely.from_wkb(wkb)).tolist())
    xyz["qrid"], xyz["mrid"] = qrid, xyz["crid"] or qrid
    values = (wkb, text, *(box or (None,) * 4), qrid, xyz["mrid"], as_json(document), n)
    connection.execute(sql("complete_row", table=table), values)
    tree = _TREES[table]
    if box is None and table != "naksha_hst":
        connection.execute(sql("forget_box", tree=tree), (n,))
    else:
        connection.execute(sql("complete_box", tree=tree), (*(box or _NOWHERE), n))

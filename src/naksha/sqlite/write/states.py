"""Stored form of states: the document with its namespace, and geometries and boxes for columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import shapely

from naksha.model.damage import BROKEN_GEOMETRY, UNREADABLE, decode_feature
from naksha.model.features import NAMESPACE, PreparedFeatures
from naksha.model.gc_pause import uncollected
from naksha.model.json_text import with_first, with_namespace
from naksha.sqlite.write.transaction import Box

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class StoredGeometries:
    """Geometries of prepared features in their stored forms."""

    geometry: list[str | None]
    box: list[Box | None]


@uncollected
def stored_geometries_of(prepared: PreparedFeatures) -> StoredGeometries:
    """Compute the GeoJSON texts and boxes of the geometries."""
    shapes = shapely.from_wkb(np.array(prepared.wkb, dtype=object))
    edges = shapely.bounds(shapes).reshape(-1, 4).T.tolist()
    boxes: list[Box | None] = [*zip(*edges, strict=True)]
    if None in prepared.wkb:
        boxes = [None if w is None else box for w, box in zip(prepared.wkb, boxes, strict=True)]
    return StoredGeometries(shapely.to_geojson(shapes).tolist(), boxes)


class StateNamespace(msgspec.Struct, frozen=True, rename={"created_at": "createdAt"}):
    """Members of an old state's namespace that a following state uses."""

    uuid: str
    puuid: str | None
    created_at: int
    rtcts: int
    tags: list[str]
    crid: str | None
    qrid: str | None
    mrid: str | None


class _Properties(msgspec.Struct, frozen=True, rename={"xyz": NAMESPACE}):
    xyz: StateNamespace


class _Document(msgspec.Struct, frozen=True):
    properties: _Properties


_decode_xyz = msgspec.json.Decoder(_Document).decode


class OldState(NamedTuple):
    """A row of HEAD or of the deletion table."""

    id: str
    n: int
    i: int
    txn: int
    version: int
    action: str
    author: str | None
    geo: bytes | None
    jsondata: str
    west: float | None
    south: float | None
    east: float | None
    north: float | None
    readable: int
    """Whether the stored geometry text can be returned to clients."""

    @property
    def box(self) -> Box | None:
        west, south, east, north = self.west, self.south, self.east, self.north
        if west is None or south is None or east is None or north is None:
            return None
        return west, south, east, north

    def xyz(self) -> StateNamespace:
        """Decode the namespace."""
        try:
            return _decode_xyz(self.jsondata).properties.xyz
        except UNREADABLE:
            return _decode_xyz(_encode(decode_feature(self.jsondata))).properties.xyz

    def raw(self, geometry: str | None, jsondata: str | None = None) -> bytes:
        """Return the whole feature: its geometry with its stored document, or with another one."""
        return raw(geometry if self.readable else BROKEN_GEOMETRY, jsondata or self.jsondata)

    def content(self) -> dict[str, Any]:
        """Return the document without its namespace.

        The rest of a damaged document keeps its damage mark, so that writing it is a change.
        """
        content = decode_feature(self.jsondata)
        del content["properties"][NAMESPACE]
        return content


@dataclass(frozen=True, slots=True)
class TransactionStamp:
    """Values that all states of a transaction in one collection share."""

    txn: int
    ord: int
    prefix: str
    app_id: str
    app_json: str
    now_ms: int
    wall_ms: int


def namespace(
    by: TransactionStamp,
    i: int,
    action: str,
    version: int,
    author_json: str,
    puuid: str | None,
    muuid: str | None,
    created_at: int,
    rtcts: int,
    tags: Sequence[str],
    crid: str | None,
    qrid: str | None,
) -> str:
    """Build the JSON text of a state's namespace.

    Generated ids and quad keys need no escaping.
    """
    qrid_json = "null" if qrid is None else f'"{qrid}"'
    crid_json = "null" if crid is None else as_json(crid)
    return (
        f'{{"action":"{action}","version":{version},"author":{author_json},'
        f'"appId":{by.app_json},"uuid":"{by.prefix}{i}",'
        f'"puuid":{"null" if puuid is None else as_json(puuid)},'
        f'"muuid":{"null" if muuid is None else as_json(muuid)},'
        f'"txn":"{by.txn}","txn_next":"0","createdAt":{created_at},"updatedAt":{by.now_ms},'
        f'"rtcts":{rtcts},"rtuts":{by.wall_ms},"tags":{as_json(tags) if tags else "[]"},'
        f'"crid":{crid_json},"qrid":{qrid_json},'
        f'"mrid":{qrid_json if crid is None else crid_json}}}'
    )


def document(content: bytes, xyz: str) -> str:
    """Insert the namespace as the first property of the content."""
    return with_namespace(content, xyz.encode()).decode()


def document_of(content: dict[str, Any], xyz: str) -> str:
    """Insert the namespace as the first property of parsed content."""
    return document(_encode(content), xyz)


def raw(geometry: str | None, jsondata: str) -> bytes:
    """Build the whole GeoJSON feature, in the same way as the SQL statements that read."""
    return with_first(jsondata.encode(), "geometry", (geometry or "null").encode())


def as_json(value: object) -> str:
    """Encode a value as JSON text."""
    return _encode(value).decode()

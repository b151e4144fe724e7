"""States as they are kept: the document with its namespace, beside it what is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import shapely

from naksha.model.features import NAMESPACE, PreparedFeatures
from naksha.model.geometry import geojson_texts
from naksha.sqlite.transaction import Box

_encode = msgspec.json.Encoder().encode
_PLACE: Final = b'"properties":{'
_XYZ: Final = f'"{NAMESPACE}":'.encode()


@dataclass(frozen=True, slots=True)
class Shapes:
    """The geometries of prepared features, each in the forms that are kept."""

    geometry: list[str | None]
    box: list[Box | None]


def shapes_of(prepared: PreparedFeatures) -> Shapes:
    """GeoJSON texts and boxes of the geometries."""
    shapes = shapely.from_wkb(np.array(prepared.wkb, dtype=object))
    boxes = [tuple(box) for box in shapely.bounds(shapes).reshape(-1, 4).tolist()]
    return Shapes(
        geojson_texts(prepared.wkb),
        [None if wkb is None else box for wkb, box in zip(prepared.wkb, boxes, strict=True)],
    )


@dataclass(frozen=True, slots=True)
class Old:
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

    @property
    def box(self) -> Box | None:
        if self.west is None:
            return None
        return (self.west, self.south, self.east, self.north)  # type: ignore[return-value]

    def parsed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The content, without its namespace, and the namespace."""
        content = msgspec.json.decode(self.jsondata)
        return content, content["properties"].pop(NAMESPACE)


@dataclass(frozen=True, slots=True)
class Signature:
    """What all states of a transaction in one collection have in common."""

    txn: int
    ord: int
    prefix: str
    app_id: str
    app_json: str
    now_ms: int
    wall_ms: int


def namespace(
    by: Signature,
    *,
    i: int,
    action: str,
    version: int,
    author: str | None,
    puuid: str | None,
    muuid: str | None,
    created_at: int,
    rtcts: int,
    tags: Sequence[str],
    crid: str | None,
    qrid: str | None,
) -> str:
    """The text of a state's namespace. Ids of ours need no escaping."""
    quoted = {
        "puuid": _json(puuid),
        "muuid": _json(muuid),
        "author": _json(author),
        "crid": _json(crid),
        "qrid": _json(qrid),
    }
    mrid = quoted["qrid"] if crid is None else quoted["crid"]
    tag_text = _json(tags) if tags else "[]"
    return (
        f'{{"action":"{action}","version":{version},"author":{quoted["author"]},'
        f'"appId":{by.app_json},"uuid":"{by.prefix}{i}","puuid":{quoted["puuid"]},'
        f'"muuid":{quoted["muuid"]},"txn":"{by.txn}","txn_next":"0",'
        f'"createdAt":{created_at},"updatedAt":{by.now_ms},"rtcts":{rtcts},'
        f'"rtuts":{by.wall_ms},"tags":{tag_text},"crid":{quoted["crid"]},'
        f'"qrid":{quoted["qrid"]},"mrid":{mrid}}}'
    )


def document(content: bytes, xyz: str) -> str:
    """The content with its namespace as the first property."""
    if content.count(_PLACE) == 1:
        start, rest = content.split(_PLACE)
        comma = b"" if rest.startswith(b"}") else b","
        return (start + _PLACE + _XYZ + xyz.encode() + comma + rest).decode()
    parsed = msgspec.json.decode(content)
    parsed["properties"] = {NAMESPACE: msgspec.Raw(xyz.encode()), **parsed["properties"]}
    return _encode(parsed).decode()


def document_of(content: dict[str, Any], xyz: str) -> str:
    """The same for content that is parsed."""
    return document(_encode(content), xyz)


def raw(geometry: str | None, jsondata: str) -> bytes:
    """The whole GeoJSON feature; the statements that read build it in the same way."""
    return f'{{"geometry":{geometry or "null"},{jsondata[1:]}'.encode()


def _json(value: object) -> str:
    return "null" if value is None else _encode(value).decode()

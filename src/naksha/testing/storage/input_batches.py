"""Conversion of features to the columns that a storage stages (`naksha.spi.arrow.INPUT`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from naksha.model.geo.geometry import encode_geometries
from naksha.model.state import XYZ
from naksha.spi.arrow import INPUT
from naksha.spi.storage import Feature

_OWN = ("type", "id", "geometry", "properties")


def given_batch(features: Sequence[Feature]) -> pa.RecordBatch:
    """Return features as one batch, with tags and crid in columns where possible."""
    geometries = encode_geometries(features).wkb
    rows = [_row(each, wkb) for each, wkb in zip(features, geometries, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def _row(feature: Feature, wkb: bytes | None) -> dict[str, Any]:
    properties = dict(feature["properties"])
    namespace: Mapping[str, Any] = properties.get(XYZ) or {}
    row: dict[str, Any] = {"id": feature.get("id"), "geometry": wkb}
    # A null in the namespace can have a meaning; a null column only means an omitted member.
    if set(namespace) <= {"tags", "crid"} and None not in namespace.values():
        properties.pop(XYZ, None)
        row |= namespace
    row["properties"] = _text(properties)
    members = {key: value for key, value in feature.items() if key not in _OWN}
    row["members"] = _text(members) if members else None
    return row


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()

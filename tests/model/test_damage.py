"""Stored features that cannot be read, and the readable rest of them."""

import json
import math
import struct
from typing import Any

import msgspec
import pytest
import shapely

from naksha.model.damage import DAMAGED, decode_feature
from naksha.model.errors import StorageCorrupt
from naksha.model.features import is_deep
from naksha.model.geo.wkb_rules import stored_shapes
from naksha.model.limits import JSON_DEPTH_MAX
from naksha.model.state import XYZ, State

NAMESPACE = {"uuid": "s:c:2020:1:1:1", "puuid": None, "txn": "5", "action": "CREATE"}


def stored(value: bytes, geometry: bytes = b"null") -> bytes:
    namespace = json.dumps({XYZ: NAMESPACE}).encode()
    return b'{"geometry":%b,"id":"a","x":%b,"properties":%b}' % (geometry, value, namespace)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b"1e999", None),
        (b"[1,-1e999]", [1, None]),
        (b"1" * 5000, None),
        (b'{"a":1e999,"b":"1e999 [{\\"","c":-0.5e3}', {"a": None, "b": '1e999 [{"', "c": -500.0}),
        (b'"\xff"', "\N{REPLACEMENT CHARACTER}"),
        (b'"\xed\xa0\x80"', "\N{REPLACEMENT CHARACTER}" * 3),
        (b'"x\\ud800y"', "x?y"),
        (b'"\x01"', "\x01"),
    ],
)
def test_values_that_cannot_be_read_are_replaced(value: bytes, left: Any) -> None:
    feature = decode_feature(stored(value))
    assert feature["x"] == left
    assert feature["properties"][XYZ] == NAMESPACE
    assert feature[DAMAGED]["field"] == "document"
    assert feature[DAMAGED]["problem"]


def test_a_geometry_is_taken_away_as_a_whole() -> None:
    geometry = b'{"type":"LineString","coordinates":[[1,2],[1e999,3]]}'
    feature = decode_feature(stored(b"1", geometry))
    assert (feature["geometry"], feature["x"]) == (None, 1)
    assert feature[DAMAGED]["field"] == "geometry"


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_deeply_nested_values_are_cut(depth: int) -> None:
    state = State("a", stored(b"[" * depth + b"]" * depth))
    assert state.heading().uuid == NAMESPACE["uuid"]
    assert not is_deep(state.raw)
    assert state.feature["properties"][XYZ] == NAMESPACE
    assert state.feature["x"]
    assert DAMAGED in msgspec.json.decode(state.raw)


def test_readable_parts_are_unchanged() -> None:
    raw = stored(b"[" * (JSON_DEPTH_MAX + 1) + b"1e308" + b"]" * (JSON_DEPTH_MAX + 1))
    state = State("a", raw)
    assert DAMAGED not in state.feature
    assert state.heading().txn == "5"
    assert state.raw == raw


@pytest.mark.parametrize("raw", [b'{"id":"a', b"", b'{"id":1 2}', b'{"a":"\\x"}'])
def test_invalid_json_is_corrupt(raw: bytes) -> None:
    with pytest.raises(StorageCorrupt, match="not JSON"):
        decode_feature(raw)


def line(kind: int, *numbers: float) -> bytes:
    """The WKB of a line with three positions."""
    return struct.pack(f"<bII{len(numbers)}d", 1, kind, 3, *numbers)


def test_stored_geometries_that_cannot_be_read_are_none() -> None:
    good, high = shapely.Point(1, 2), shapely.LineString([(0, 0, 0), (1, 1, 1)])
    bad = [
        b"\x01\x02",
        b"",
        bytes.fromhex("010800000000000000"),  # a curve
        line(2, 0, 0, math.nan, 1, 2, 2),
        line(2, 0, 0, 1, math.inf, 2, 2),
        line(1002, 0, 0, 0, 1, 1, math.nan, 2, 2, 0),
    ]
    wkbs = [shapely.to_wkb(good), None, *bad, shapely.to_wkb(high)]
    found = stored_shapes(wkbs)
    assert found.tolist() == [good, None, *[None] * len(bad), high]
    assert len(stored_shapes([])) == 0

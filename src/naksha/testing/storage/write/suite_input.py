"""Conformance: bad input raises a typed error naming feature and field; nothing is written."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
from typing import Any

import pytest

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NakshaError
from naksha.model.query import Bbox, Intersects, Op, Query, Test, Tile
from naksha.model.state import XYZ
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    feature,
    ids_of,
    new_collection,
    point,
    with_xyz,
)


def at(*coordinates: Any) -> dict[str, Any]:
    return feature("bad", {"type": "Point", "coordinates": list(coordinates)})


def geometry(kind: Any, coordinates: Any) -> dict[str, Any]:
    return feature("bad", {"type": kind, "coordinates": coordinates})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BAD_FEATURES: dict[str, tuple[Any, str]] = {
    "longitude too large": (at(180.0000001, 0), "geometry"),
    "longitude too small": (at(-181, 0), "geometry"),
    "latitude too large": (at(0, 90.0000001), "geometry"),
    "latitude too small": (at(0, -91), "geometry"),
    "nan coordinate": (at(math.nan, 0), "geometry"),
    "infinite coordinate": (at(0, math.inf), "geometry"),
    "infinite altitude": (at(0, 0, -math.inf), "geometry"),
    "one number": (at(1), "geometry"),
    "four numbers": (at(1, 2, 3, 4), "geometry"),
    "no numbers": (at(), "geometry"),
    "text coordinates": (at("1", "2"), "geometry"),
    "boolean coordinates": (at(True, False), "geometry"),
    "null coordinates": (geometry("Point", None), "geometry"),
    "unknown type": (geometry("Circle", [0, 0]), "geometry"),
    "no type": (geometry(None, [0, 0]), "geometry"),
    "geometry is text": (feature("bad", "POINT(0 0)"), "geometry"),  # type: ignore[arg-type]
    "geometry is a feature": (feature("bad", point("inner")), "geometry"),
    "line of one": (geometry("LineString", [[0, 0]]), "geometry"),
    "empty line": (geometry("LineString", []), "geometry"),
    "open ring": (geometry("Polygon", [[[0, 0], [1, 0], [1, 1], [0, 1]]]), "geometry"),
    "short ring": (geometry("Polygon", [[[0, 0], [1, 0], [0, 0]]]), "geometry"),
    "mixed dimensions": (geometry("LineString", [[0, 0], [1, 1, 1]]), "geometry"),
    "empty collection": (feature("bad", {"type": "GeometryCollection"}), "geometry"),
    "nan property": (feature("bad", n=math.nan), "properties"),
    "infinite property": (feature("bad", deep={"n": [1, math.inf]}), "properties"),
    "NUL in text": (feature("bad", text="a\0b"), "properties"),
    "NUL in key": (feature("bad") | {"properties": {"a\0b": 1}}, "properties"),
    "lone surrogate": (feature("bad", text="\ud800"), "properties"),
    "too deep": (feature("bad", deep=nested(limits.JSON_DEPTH_MAX)), "properties"),
    "a date": (feature("bad", when=datetime.date(2023, 1, 30)), "properties"),
    "a decimal": (feature("bad", n=decimal.Decimal("1.5")), "properties"),
    "a set": (feature("bad", n={1, 2}), "properties"),
    "a number as key": (feature("bad", deep={1: 2}), "properties"),
    "properties are a list": (feature("bad") | {"properties": [1]}, "properties"),
    "namespace is a list": (feature("bad") | {"properties": {XYZ: [1]}}, "properties"),
    "tags are a text": (with_xyz(feature("bad"), tags="red"), "properties"),
    "a tag is a number": (with_xyz(feature("bad"), tags=["red", 1]), "properties"),
    "a tag has a NUL": (with_xyz(feature("bad"), tags=["@a\0"]), "properties"),
    "crid is a number": (with_xyz(feature("bad"), crid=1), "properties"),
    "crid too long": (with_xyz(feature("bad"), crid="x" * 600), "properties"),
    "uuid is a number": (with_xyz(feature("bad"), uuid=1), "properties"),
    "uuid too long": (with_xyz(feature("bad"), uuid="x" * 600), "properties"),
    "not a feature": (feature("bad") | {"type": "FeatureCollection"}, "type"),
    "no feature type": ({"id": "bad", "properties": {}}, "type"),
    "a member with NUL": (feature("bad") | {"member": "\0"}, "member"),
}
BAD_IDS: tuple[Any, ...] = ("", 1.5, True, [], {}, b"x", "a\0b", "\ud800", "x" * 513, "é" * 257)


async def unchanged(places: Handle) -> None:
    """Check that the collection is as `neighbours` left it."""
    assert ids_of(await places.live()) == ["bad", "good"]
    assert {s.xyz["version"] for s in await places.live()} == {1}
    assert await places.deleted() == []


async def neighbours(places: Handle) -> None:
    """Restore two features that every test of a class expects."""
    await places.upsert(point("good"), point("bad"))


class TestBadFeatures:
    @pytest.mark.parametrize("case", BAD_FEATURES)
    async def test_refused_with_feature_and_field_and_nothing_written(
        self, shared: Handle, case: str
    ) -> None:
        bad, field = BAD_FEATURES[case]
        await neighbours(shared)
        before = await shared.published()
        for call in (shared.create, shared.update, shared.upsert):
            with pytest.raises(InvalidArgument) as caught:
                await call(point("new"), point("good", n=2), bad)
            assert caught.value.feature_id == "bad"
            assert (caught.value.field or "").split(".")[0].split("[")[0] == field
        await unchanged(shared)
        assert await shared.published() == before

    @pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
    async def test_ids_are_texts_of_some_size(self, shared: Handle, bad: Any) -> None:
        await neighbours(shared)
        for call in (shared.create, shared.update, shared.upsert):
            with pytest.raises(InvalidArgument) as caught:
                await call(point("good", n=2), point("x") | {"id": bad})
            assert (caught.value.field or "").endswith("id")
        await unchanged(shared)

    @pytest.mark.parametrize("bad", [*BAD_IDS[:2], *BAD_IDS[5:8]], ids=repr)
    async def test_ids_to_delete_too(self, shared: Handle, bad: Any) -> None:
        """An error or RETAINED is right, because a bad id cannot exist; nothing may change."""
        await neighbours(shared)
        for call in (shared.delete, shared.purge):
            with contextlib.suppress(InvalidArgument):
                assert [outcome.action for outcome in await call(bad)] == ["RETAINED"]
        await unchanged(shared)

    async def test_an_integer_id_is_its_decimal_text(self, places: Handle) -> None:
        await places.create(point("x") | {"id": 17})
        assert (await places.get("17")).feature["id"] == "17"

    @pytest.mark.parametrize("bad", [None, 1, "text", [], b"{}"], ids=repr)
    async def test_values_other_than_objects_are_refused_by_position(
        self, places: Handle, bad: Any
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await places.create(point("x"), bad)
        assert "1" in (caught.value.field or "")
        assert await places.live() == []

    async def test_a_feature_that_is_too_large_is_refused_by_name(self, shared: Handle) -> None:
        huge = point("bad", text="x" * 100_000_000)
        await neighbours(shared)
        for call in (shared.create, shared.upsert):
            with pytest.raises(LimitExceeded) as caught:
                await call(point("new"), huge)
            assert caught.value.feature_id == "bad"
        await unchanged(shared)

    async def test_a_large_feature_works(self, places: Handle) -> None:
        text = "ü" * (limits.FEATURE_BYTES_MAX // 2 - 1_000)
        await places.create(feature("x", text=text))
        assert (await places.get("x")).feature["properties"]["text"] == text

    async def test_too_many_features_at_once(self, places: Handle) -> None:
        many = [feature("x")] * (limits.WRITE_FEATURES_MAX + 1)
        with pytest.raises(LimitExceeded):
            await places.create(*many)
        assert await places.live() == []

    async def test_after_an_error_the_storage_works_on(self, places: Handle) -> None:
        for n in range(20):
            with pytest.raises(InvalidArgument):
                await places.create(at(math.nan, 0))
            await places.create(point(f"x{n}"))
        assert len(await places.live()) == 20


class TestIdPrefix:
    async def test_cut_off_on_create_update_and_delete(self, storage: Storage) -> None:
        handle = await new_collection(storage, id_prefix="urn:x:")
        (outcome,) = await handle.create(point("urn:x:a", n=1))
        assert outcome.id == "a"
        assert (await handle.get("a")).feature["id"] == "a"
        await handle.update(point("urn:x:a", n=2))
        await handle.upsert(point("a", n=3))
        await handle.upsert(point("urn:x:a", n=4))
        assert (await handle.get("a")).xyz["version"] == 4
        (outcome,) = await handle.delete("urn:x:a")
        assert (outcome.id, outcome.action) == ("a", "DELETED")
        assert ids_of(await handle.all()) == ["a"] * 5

    async def test_with_and_without_prefix_is_the_same_feature(self, storage: Storage) -> None:
        handle = await new_collection(storage, id_prefix="urn:x:")
        await handle.create(point("urn:x:a", n=1), point("a", n=2))
        (state,) = await handle.live()
        assert state.feature["properties"]["n"] == 2

    async def test_cut_off_once(self, storage: Storage) -> None:
        handle = await new_collection(storage, id_prefix="p")
        await handle.create(point("ppp"))
        assert ids_of(await handle.live()) == ["pp"]

    async def test_nothing_may_not_be_left(self, storage: Storage) -> None:
        handle = await new_collection(storage, id_prefix="urn:x:")
        for call in (handle.create, handle.upsert):
            with pytest.raises(InvalidArgument):
                await call(point("b"), point("urn:x:"))
        assert await handle.live() == []


class TestBadCalls:
    async def test_texts_with_nul_in_messages(self, shared: Handle) -> None:
        messages: list[dict[str, Any]] = [
            {"id": "a\0", "text": "x"},
            {"id": "a", "text": "\0"},
            {"id": "a", "json": {"k": "\0"}},
            {"id": "", "text": "x"},
            {"id": "a", "json": math.nan},
        ]
        for message in messages:
            with pytest.raises(InvalidArgument):
                async with shared.storage.write(APP) as session:
                    await session.message(**message)

    async def test_messages_have_limits(self, shared: Handle) -> None:
        messages: list[dict[str, Any]] = [
            {"id": "a", "text": "x" * (limits.MESSAGE_TEXT_BYTES_MAX + 1)},
            {"id": "a", "json": "x" * limits.MESSAGE_JSON_BYTES_MAX},
            {"id": "a", "binary": b"x" * (limits.MESSAGE_BINARY_BYTES_MAX + 1)},
        ]
        for message in messages:
            with pytest.raises((LimitExceeded, InvalidArgument)):
                async with shared.storage.write(APP) as session:
                    await session.message(**message)

    async def test_uuids_of_a_delete_must_be_as_many_as_ids(self, shared: Handle) -> None:
        await neighbours(shared)
        with pytest.raises(InvalidArgument):
            await shared.delete("good", "bad", uuids=[None])
        await unchanged(shared)

    async def test_a_bad_author(self, places: Handle) -> None:
        for author in ("", "\0", "x" * 300):
            with pytest.raises(InvalidArgument):
                await places.create(point("x"), author=author)
        assert await places.live() == []

    @pytest.mark.parametrize(
        "query",
        [
            Query(cursor="nonsense"),
            Query(cursor="", limit=1),
            Query(spatial=Tile("4")),
            Query(spatial=Tile("0" * 40)),
            Query(spatial=Intersects(b"no wkb")),
            Query(spatial=Intersects(b"")),
            Query(spatial=Bbox(math.nan, 0, 1, 1)),
            Query(spatial=Bbox(0, 5, 1, -5)),
            Query(spatial=Intersects(bytes.fromhex("0101000000") + b"\0" * 16, -1.0)),
            Query(where=Test(("properties", "a"), Op.EQ, math.nan)),
        ],
    )
    async def test_bad_queries(self, shared: Handle, query: Query) -> None:
        await neighbours(shared)
        with pytest.raises(InvalidArgument):
            await shared.storage.page(shared.name, query)

    @pytest.mark.parametrize("limit", [0, -1, limits.PAGE_MAX + 1])
    def test_a_page_has_a_sensible_size(self, limit: int) -> None:
        with pytest.raises(InvalidArgument):
            Query(limit=limit)

    async def test_text_that_cannot_be_stored_is_simply_not_found(self, places: Handle) -> None:
        """Such text is refused as InvalidArgument or not found; it never crashes the storage."""
        await places.create(point("x"))
        for query in (
            Query(ids=("\0",)),
            Query(tags=(("\0",),)),
            Query(mrid_prefix="\0"),
            Query(authors=("\0",)),
            Query(where=Test(("properties", "\0"), Op.EXISTS)),
            Query(where=Test(("properties", "a"), Op.EQ, "\0")),
            Query(ids=("\ud800",)),
        ):
            with contextlib.suppress(InvalidArgument):
                assert (await places.storage.page(places.name, query)).states == []

    async def test_a_session_is_of_no_use_after_its_end(self, places: Handle) -> None:
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("x")])
        with pytest.raises((NakshaError, RuntimeError)):
            await session.create(places.name, [point("y")])
        assert ids_of(await places.live()) == ["x"]

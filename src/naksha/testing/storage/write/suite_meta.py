"""Conformance: meta features, which are stored beside a collection and have no versions."""

from __future__ import annotations

from typing import Any

import pytest

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument, LimitExceeded
from naksha.spi.partitioning import FEATURE_ID
from naksha.testing.storage.suite_support import Handle


def note(id: str, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": id, "geometry": None, "properties": properties}


class TestMeta:
    async def test_the_last_one_of_an_id_counts(self, places: Handle) -> None:
        storage, name = places.storage, places.name
        assert await storage.meta(name, "a") is None
        assert await storage.all_meta(name) == []
        for n in range(3):
            await storage.put_meta(name, note("a", n=n))
            assert await storage.meta(name, "a") == note("a", n=n)
        # The property `txn` has no meaning here.
        for txn in ("7", "3", "x", None):
            await storage.put_meta(name, note("a", txn=txn))
            assert await storage.meta(name, "a") == note("a", txn=txn)

    async def test_meta_features_are_listed_in_the_order_of_their_ids(self, places: Handle) -> None:
        storage, name = places.storage, places.name
        for id in ("b", "ü", "a:b/c", "B", "a"):
            await storage.put_meta(name, note(id, text="ü \\ \" ' 👍"))
        ids = [feature["id"] for feature in await storage.all_meta(name)]
        assert ids == ["B", "a", "a:b/c", "b", "ü"]

    async def test_meta_features_can_be_removed(self, places: Handle) -> None:
        storage, name = places.storage, places.name
        await storage.put_meta(name, note("a"))
        assert await storage.remove_meta(name, "a")
        assert not await storage.remove_meta(name, "a")
        assert await storage.all_meta(name) == []

    async def test_meta_features_are_in_no_version(self, places: Handle) -> None:
        before = await places.published()
        await places.storage.put_meta(places.name, note("a"))
        assert await places.published() == before
        assert await places.live() == []

    async def test_meta_features_of_naksha_are_read_only(self, places: Handle) -> None:
        storage, name = places.storage, places.name
        await places.create({"type": "Feature", "id": "x", "geometry": None, "properties": {}})
        await storage.partitioning(name)
        found = await storage.meta(name, FEATURE_ID)
        assert found is not None
        assert [feature["id"] for feature in await storage.all_meta(name)] == [FEATURE_ID]
        with pytest.raises(InvalidArgument, match="reserved for Naksha"):
            await storage.put_meta(name, note(FEATURE_ID))
        with pytest.raises(InvalidArgument, match="reserved for Naksha"):
            await storage.remove_meta(name, FEATURE_ID)
        assert await storage.meta(name, FEATURE_ID) == found

    @pytest.mark.parametrize("id", ["", 5, None, "x" * (limits.FEATURE_ID_BYTES_MAX + 1), "\0"])
    async def test_bad_ids_are_refused(self, places: Handle, id: Any) -> None:
        with pytest.raises(InvalidArgument, match="not a valid id"):
            await places.storage.put_meta(places.name, note("a") | {"id": id})

    async def test_there_is_a_limit_of_their_number(
        self, places: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, name = places.storage, places.name
        monkeypatch.setattr(limits, "META_COUNT_MAX", 2)
        for id in ("a", "b"):
            await storage.put_meta(name, note(id, n=1))
        with pytest.raises(LimitExceeded, match="has 2 meta features"):
            await storage.put_meta(name, note("c"))
        await storage.put_meta(name, note("b", n=2))
        assert await storage.all_meta(name) == [note("a", n=1), note("b", n=2)]

    async def test_there_is_a_limit_of_their_size(self, places: Handle) -> None:
        with pytest.raises(LimitExceeded):
            text = "x" * limits.META_BYTES_MAX
            await places.storage.put_meta(places.name, note("a", text=text))
        with pytest.raises(InvalidArgument, match=r"U\+0000"):
            await places.storage.put_meta(places.name, note("a", text="\0"))
        assert await places.storage.all_meta(places.name) == []

    async def test_a_collection_must_be_there(self, places: Handle) -> None:
        storage = places.storage
        for call in (
            storage.meta("nowhere", "a"),
            storage.all_meta("nowhere"),
            storage.put_meta("nowhere", note("a")),
            storage.remove_meta("nowhere", "a"),
        ):
            with pytest.raises(CollectionNotFound):
                await call

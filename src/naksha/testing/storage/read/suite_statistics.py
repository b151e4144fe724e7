"""Conformance: a collection's statistics match its features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, NotYetPublished
from naksha.model.query import Bbox
from naksha.model.state import XYZ, State
from naksha.model.statistics import KeyCount, Statistics
from naksha.model.version import AtSeq
from naksha.testing.models.brute_force import bounds_of, union
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.read.suite_query import Zoo
from naksha.testing.storage.suite_support import Handle, feature, point, seq, with_xyz

FIGURES = Statistics.__struct_fields__


def counted(keys: Iterable[str]) -> tuple[KeyCount, ...]:
    """Return the count of each value in the form of statistics."""
    found = sorted(Counter(keys).items(), key=lambda each: (-each[1], each[0]))
    return tuple(KeyCount(key, count) for key, count in found)


def brute_force(states: Sequence[State]) -> dict[str, Any]:
    """Compute the exact values from every state."""
    features = [state.feature for state in states]
    box = union(bounds_of(f["geometry"]) for f in features)
    return {
        "count": len(states),
        "byte_size": sum(len(state.raw) for state in states),
        "bbox": None if box is None else Bbox(*box),
        "geometry_types": tuple(sorted({f["geometry"]["type"] for f in features if f["geometry"]})),
        "properties": counted(k for f in features for k in f["properties"] if k != XYZ),
        "tags": counted(tag for state in states for tag in state.xyz["tags"]),
    }


def values(statistics: Statistics) -> dict[str, Any]:
    return {name: getattr(statistics, name).value for name in FIGURES}


def estimated(statistics: Statistics) -> set[str]:
    return {name for name in FIGURES if getattr(statistics, name).estimated}


class TestStatistics:
    @pytest.mark.parametrize("fast", [False, True])
    async def test_at_head_and_at_versions(self, zoo: Zoo, fast: bool) -> None:
        """A collection of this size is read completely, even in fast mode."""
        for at in zoo.versions:
            found = await zoo.storage.statistics(zoo.name, at, fast=fast)
            assert values(found) == brute_force(await zoo.live(at))
            assert estimated(found) == set()

    async def test_an_empty_collection(self, places: Handle) -> None:
        for fast in (False, True):
            found = await places.storage.statistics(places.name, fast=fast)
            assert values(found) == brute_force([])

    async def test_all_types_and_no_geometry(self, places: Handle) -> None:
        line = {"type": "LineString", "coordinates": [[1, 2], [3.25, -4.1]]}
        several = {"type": "GeometryCollection", "geometries": [line]}
        await places.create(point("x", 0.1, 0.2), feature("line", line), feature("c", several))
        await places.create(feature("nowhere"))
        found = await places.storage.statistics(places.name)
        assert values(found) == brute_force(await places.live())

    async def test_unusual_keys_and_tags_are_plain_text(self, places: Handle) -> None:
        texts = sorted(set(NASTY_TEXTS))
        await places.create(
            *(
                with_xyz(
                    feature(f"{n}") | {"properties": dict.fromkeys(texts[n:])},
                    tags=[f"@{text.replace(',', ';')}" for text in texts[: n + 1]],
                )
                for n in range(len(texts))
            )
        )
        found = await places.storage.statistics(places.name)
        assert values(found) == brute_force(await places.live())

    async def test_there_is_a_limit_to_keys_and_tags(self, places: Handle) -> None:
        most = limits.STATISTICS_KEYS_MAX
        await places.create(
            *(
                with_xyz(
                    feature(f"{n}")
                    | {"properties": {f"k{n * 600 + k:05}": k for k in range(600)} | {"all": 1}},
                    tags=["all", *(f"t{n * 400 + k:05}" for k in range(400))],
                )
                for n in range(3)
            )
        )
        found = await places.storage.statistics(places.name)
        wanted = brute_force(await places.live())
        assert found.properties.value == wanted["properties"][:most]
        assert found.tags.value == wanted["tags"][:most]
        assert estimated(found) == {"properties", "tags"}

    async def test_a_version_stays_and_inside_a_session(self, places: Handle) -> None:
        await places.create(point("x", 1, 1, a=1), point("y", 2, 2))
        before = await places.published()
        at_first = values(await places.storage.statistics(places.name))
        await places.delete("y")
        await places.update(point("x", 5, 5, b=1))
        assert values(await places.storage.statistics(places.name, seq(before))) == at_first
        async with places.storage.write("app") as session:
            await session.create(places.name, [point("z", 7, 7)])
            found = await session.statistics(places.name, fast=True)
            assert (found.count.value, found.bbox.value) == (2, Bbox(5, 5, 7, 7))

    async def test_statistics_of_missing_collections_are_refused(self, places: Handle) -> None:
        with pytest.raises(CollectionNotFound):
            await places.storage.statistics("nobody")
        with pytest.raises(NotYetPublished):
            await places.storage.statistics(places.name, AtSeq(10**9))


class TestFastStatistics:
    async def test_of_a_large_collection_they_look_at_a_part(
        self, places: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The test lowers the size from which a collection counts as large."""
        await places.create(
            *(
                with_xyz(
                    point(f"p{n:05}", n % 100 / 10, n % 70 / 10, all=1, text="x" * 300)
                    | ({} if n % 2 else {"momType": "T"}),
                    tags=["even" if n % 2 else "odd"],
                )
                for n in range(6000)
            )
        )
        exact = values(await places.storage.statistics(places.name))
        monkeypatch.setattr(limits, "STATISTICS_BYTES_MAX", 2_000_000)
        before = await places.published()
        await places.upsert(point("p00000", 1, 1))
        for found in (
            await places.storage.statistics(places.name, fast=True),
            await places.storage.statistics(places.name, seq(before), fast=True),
        ):
            assert estimated(found) >= set(FIGURES) - {"count"}
            assert found.count.value == pytest.approx(6000, rel=0.35)
            assert found.byte_size.value == pytest.approx(exact["byte_size"], rel=0.35)
            assert found.geometry_types.value == ("Point",)
            assert {each.key for each in found.properties.value} == {"all", "text"}
            assert {each.key for each in found.tags.value} == {"even", "odd"}
            for each in (*found.properties.value, *found.tags.value):
                wanted = 6000 if each.key in ("all", "text") else 3000
                assert each.count == pytest.approx(wanted, rel=0.4)

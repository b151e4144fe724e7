"""Differences computed by Spark, compared with those of `naksha.versioning`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from naksha.model.errors import CollectionNotFound, Conflict, InvalidArgument, LimitExceeded
from naksha.model.query import Op, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.spark.jobs.diff import Compared, Diff, diff
from naksha.spark.jobs.export import Export, export
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading.spec import Load, Loaded, Mapping
from naksha.spark.jobs.publish_directory import REPORT, OutputFormat
from naksha.spi.staging import WriteMode
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.models.json_values import same
from naksha.testing.storage.suite_support import SUITE_CHECKS_OFF
from naksha.versioning import diff as versioned_diff
from naksha.versioning.diff import DiffAction, FeatureDiff
from naksha.versioning.lines import place_of
from naksha.versioning.version_refs import MAIN_BRANCH as MAIN
from tests.spark.jobs.town import Town, point

IDS = [f"f{n}" for n in range(12)]
QUIET = [f"q{n}" for n in range(6)]
"""Features that are unchanged in all compared versions."""
SHAPES: list[dict[str, Any] | None] = [
    None,
    {"type": "Point", "coordinates": [8.0, 50.0]},
    {"type": "Point", "coordinates": [8.0, 50.0, 0.0]},
    {"type": "LineString", "coordinates": [[0.0, 0.0], [1.0, 1.5]]},
]
VALUES: list[Any] = [None, 1, 1.5, "a/b", {"x~y": 1, "z": []}, {"x~y": 2}, [1, 2], True]


def any_feature(chance: random.Random, id_: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        name: chance.choice(VALUES) for name in "ab"[: chance.choice([1, 2])]
    }
    properties[XYZ] = {"tags": chance.choice([[], ["red"], ["blue", "red"]])}
    return {
        "type": "Feature",
        "id": id_,
        "geometry": chance.choice(SHAPES),
        "properties": properties,
        "extra": chance.choice([None, {"k": 1}]),
    }


def stir(town: Town, chance: random.Random, branch: str = MAIN, steps: int = 3) -> None:
    """Some transactions that do anything, several times to the same features; what is done to some
    of them is undone at once, which leaves a state that is equal to the one before."""

    async def work(session: WriteSession) -> None:
        for _ in range(2):
            chosen = chance.sample(IDS, 4)
            await session.upsert("places", [any_feature(chance, id_) for id_ in chosen])
            await session.delete("places", chance.sample(IDS, 2))
        quiet = [any_feature(random.Random(id_), id_) for id_ in QUIET]
        some = [each for each in quiet if chance.random() < 0.4]
        for features in (quiet, [any_feature(chance, each["id"]) for each in some], some):
            await session.upsert("places", features)

    for _ in range(steps):
        town.run(work, branch)


def bare(feature: dict[str, Any]) -> dict[str, Any]:
    """A feature as its client has written it."""
    properties = dict(feature["properties"])
    properties[XYZ] = {"tags": properties[XYZ]["tags"]}
    return feature | {"properties": properties}


def found(spark: SparkSession, town: Town, **settings: Any) -> Compared:
    spec = Diff(place=town.place, collection="places", **settings)
    return diff(spark, spec, SilentProgress())


def wanted(town: Town, old: str, new: str, query: Query | None = None) -> dict[str, FeatureDiff]:
    async def read(storage: Storage) -> dict[str, FeatureDiff]:
        places = await place_of(storage, old), await place_of(storage, new)
        return {change.id: change async for change in versioned_diff(*places, "places", query)}

    return town.call(read)


def check(reported: list[dict[str, Any]], changes: dict[str, FeatureDiff]) -> None:
    """The same features, actions, places and documents."""
    assert {line["id"]: line["action"] for line in reported} == {
        id_: change.action.value for id_, change in changes.items()
    }
    for line in reported:
        change = changes[line["id"]]
        if change.action is DiffAction.UPDATED:
            assert line["paths"] == change.paths()
        else:
            assert line["paths"] == []
        for side, state in (("old", change.old), ("new", change.new)):
            assert same(line[side], None if state is None else state.feature)


def lines_of(output: Path) -> list[dict[str, Any]]:
    assert (output / "_SUCCESS").exists()
    texts = [text for part in output.glob("part-*") for text in part.read_bytes().splitlines()]
    return [msgspec.json.decode(text) for text in texts]


def rows_of(output: Path) -> list[dict[str, Any]]:
    """Rows of Parquet as the lines of JSON are."""
    reported = []
    for row in pq.read_table(output).to_pylist():
        for side in ("old", "new"):
            text, wkb = row.pop(f"{side}_feature"), row.pop(f"{side}_geometry")
            row[side] = None
            if text is not None:
                shape = None if wkb is None else shapely.to_geojson(shapely.from_wkb(wkb))
                geometry = None if shape is None else msgspec.json.decode(shape)
                row[side] = msgspec.json.decode(text) | {"geometry": geometry}
        reported.append(row)
    return reported


def test_it_is_what_versioning_finds(spark: SparkSession, town: Town, tmp_path: Path) -> None:
    chance = random.Random(7)
    stir(town, chance)
    town.branch("draft")
    stir(town, chance)
    stir(town, chance, "draft")
    some = Query(where=PropertyTest(("properties", "a"), Op.EQ, 1))
    cases: list[tuple[str, str, Query]] = [
        ("0", "HEAD", Query()),
        ("3", "6", Query()),
        ("6", "2", some),
        ("main", "draft", Query()),
        ("draft", "5", some),
        ("draft:8", "draft", Query(tags=(("blue",),))),
    ]
    for n, (old, new, query) in enumerate(cases):
        changes = wanted(town, old, new, query)
        output, format_ = tmp_path / f"diff-{n}", list(OutputFormat)[n % 2]
        report = found(
            spark, town, old=old, new=new, query=query, output=str(output), output_format=format_
        )
        check(lines_of(output) if format_ is OutputFormat.LINES else rows_of(output), changes)
        counts = dict.fromkeys(DiffAction, 0)
        for change in changes.values():
            counts[change.action] += 1
        assert (report.created, report.updated, report.deleted) == tuple(counts.values())
        assert changes, "a case that shows nothing"


# ---- Any history ---------------------------------------------------------------------------------

SOME = IDS[:3]
CHANGES = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(SOME), st.integers(0, 2**32)),
    st.tuples(st.just("delete"), st.sampled_from(SOME), st.just(0)),
    st.tuples(st.just("undo"), st.sampled_from(SOME), st.integers(0, 2**32)),
)
"""Operation on a feature, and the seed of its new content."""
HISTORIES = st.lists(st.lists(CHANGES, min_size=1, max_size=5), min_size=1, max_size=3)


def seeded(id_: str, seed: int) -> dict[str, Any]:
    return any_feature(random.Random(seed), id_)


async def done_to(session: WriteSession, how: str, id_: str, seed: int) -> None:
    if how == "delete":
        await session.delete("places", [id_])
        return
    states = session.states("places", Query(ids=(id_,)))
    before = [bare(dict(state.feature)) async for state in states]
    await session.upsert("places", [seeded(id_, seed)])
    if how == "undo":
        await session.upsert("places", before)


def begun(town: Town) -> str:
    """A version with all of them, the same ones whatever was there."""
    made = [seeded(id_, n) for n, id_ in enumerate(SOME)]
    # A new feature each time: a transaction without changes does not make a version.
    version = town.put(*made, point("other", 1, 2, n=uuid.uuid4().hex))
    return str(version.seq_number)


def check_any_history(
    spark: SparkSession, town: Town, history: list[list[tuple[str, str, int]]], folder: Path
) -> None:
    first = begun(town)

    async def work(storage: Storage) -> None:
        for changes in history:
            async with storage.write("test") as session:
                for change in changes:
                    await done_to(session, *change)
        await storage.publication()

    town.call(work)
    output = folder / "any"
    for old, new in ((first, "HEAD"), ("HEAD", first)):
        formed = {"output": str(output), "output_format": OutputFormat.LINES, "overwrite": True}
        found(spark, town, old=old, new=new, **formed)
        check(lines_of(output), wanted(town, old, new))


def check_any_file(
    spark: SparkSession, town: Town, seeds: dict[str, int | None], folder: Path
) -> None:
    """Features that are as they are (None), other ones, and those that are not given."""
    first = begun(town)
    states = town.states()
    features = [
        bare(dict(states[id_].feature)) if seed is None else seeded(id_, seed)
        for id_, seed in seeds.items()
    ]
    files, output = (written(folder / "any.geojsonl", features),), folder / "any"
    formed = {"output": str(output), "output_format": OutputFormat.LINES, "overwrite": True}
    found(spark, town, files=files, **formed)
    reported = {line["id"]: (line["action"], line["paths"]) for line in lines_of(output)}

    async def work(session: WriteSession) -> None:
        await session.upsert("places", features)
        await session.delete("places", [id_ for id_ in states if id_ not in seeds])

    town.run(work)
    changes = wanted(town, first, "HEAD")
    assert reported == {
        id_: (change.action.value, change.paths() if change.action is DiffAction.UPDATED else [])
        for id_, change in changes.items()
    }


GIVEN = st.dictionaries(st.sampled_from([*SOME, "new"]), st.integers(0, 2**32), min_size=1).flatmap(
    lambda seeds: st.sets(st.sampled_from(sorted(seeds))).map(
        lambda same: {k: None if k in same and k in SOME else v for k, v in seeds.items()}
    )
)


@given(history=HISTORIES)
@example([[("undo", "f0", 7), ("put", "f1", 8)]])
@settings(max_examples=2, derandomize=True, suppress_health_check=SUITE_CHECKS_OFF)
def test_any_history_is_compared_as_versioning_does(
    spark: SparkSession, small_town: Town, tmp_path: Path, history: list[Any]
) -> None:
    check_any_history(spark, small_town, history, tmp_path)


@pytest.mark.long
@given(history=HISTORIES)
@settings(max_examples=100, suppress_health_check=SUITE_CHECKS_OFF)
def test_many_histories_are_compared_as_versioning_does(
    spark: SparkSession, small_town: Town, tmp_path: Path, history: list[Any]
) -> None:
    check_any_history(spark, small_town, history, tmp_path)


@given(seeds=GIVEN)
@settings(max_examples=2, derandomize=True, suppress_health_check=SUITE_CHECKS_OFF)
def test_any_file_is_compared_as_versioning_does_once_it_is_loaded(
    spark: SparkSession, small_town: Town, tmp_path: Path, seeds: dict[str, int | None]
) -> None:
    check_any_file(spark, small_town, seeds, tmp_path)


@pytest.mark.long
@given(seeds=GIVEN)
@settings(max_examples=100, suppress_health_check=SUITE_CHECKS_OFF)
def test_many_files_are_compared_as_versioning_does_once_they_are_loaded(
    spark: SparkSession, small_town: Town, tmp_path: Path, seeds: dict[str, int | None]
) -> None:
    check_any_file(spark, small_town, seeds, tmp_path)


def test_changes_that_were_undone_are_not_changes(spark: SparkSession, small_town: Town) -> None:
    first = small_town.put(point("a", 1.0, 2.0, n=1), point("b", 1.0, 2.0, n=1))
    small_town.put(point("a", 1.0, 2.0, n=2), point("b", -0.0, 2.0, n=1))
    small_town.put(point("a", 1.0, 2.0, n=1), point("b", 0.0, 2.0, n=1.0))
    report = found(spark, small_town, old=str(first.seq_number))
    assert (report.created, report.updated, report.deleted) == (0, 1, 0)
    assert report.output is None


def written(path: Path, features: Sequence[dict[str, Any]]) -> str:
    path.write_bytes(b"\n".join(map(msgspec.json.encode, features)))
    return str(path)


def counts_of(report: Compared | Loaded) -> tuple[int, int, int]:
    return report.created, report.updated, report.deleted


@pytest.mark.parametrize("mode", [WriteMode.MIRROR, WriteMode.UPSERT])
def test_it_is_what_a_load_would_change(
    spark: SparkSession, town: Town, tmp_path: Path, mode: WriteMode
) -> None:
    """Features as anybody may have edited them, with ids and without, and some that are none."""
    chance = random.Random(f"{mode}")
    stir(town, chance)
    kept = [dict(state.feature) for state in town.states().values()]
    made = {each["id"]: each for each in (any_feature(chance, id_) for id_ in IDS[:6])}
    # Others write numbers in another way, members in another order, and leave our namespace out.
    same_again = msgspec.json.decode(msgspec.json.encode(kept).replace(b":1,", b":1.0,"))
    for each in chance.sample(same_again, 3):
        stripped = {k: v for k, v in reversed(each["properties"].items()) if k != XYZ}
        made.setdefault(each["id"], each | {"properties": stripped})
    features = [*made.values(), {"type": "Feature", "properties": {"n": 1}}, point("new", 1, 2)]
    broken = [point("far", 1, 95), point("f11", 1, 2) | {"properties": []}]
    files = (written(tmp_path / "edited.geojsonl", [*features, *broken]),)
    reported = found(spark, town, files=files, mode=mode)
    rejects = Path(str(reported.rejects)).read_bytes()
    spec = Load(
        place=town.place,
        collection="places",
        files=files,
        app_id="test",
        mode=mode,
        delete_rejected=mode is WriteMode.MIRROR,
    )
    done = load(spark, spec, SilentProgress())
    assert counts_of(reported) == counts_of(done)
    assert min(done.created, done.updated, done.unchanged) > 0
    assert (done.deleted > 0) == (mode is WriteMode.MIRROR)
    assert (reported.rejected, rejects) == (done.rejected, Path(str(done.rejects)).read_bytes())
    assert (reported.rejected, reported.new) == (2, None)
    # What has no id is new each time.
    files = (written(tmp_path / "again.geojsonl", [each for each in features if "id" in each]),)
    again = found(spark, town, files=files, mode=mode)
    assert counts_of(again) == (0, 0, int(mode is WriteMode.MIRROR))


def test_files_are_compared_with_a_version(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    """Differences have their paths, for GeoJSON, files of an export, and other tables."""
    town = small_town
    xyz = {XYZ: {"tags": ["red"]}}
    town.put(*(point(id_, 1.0, 2.0, n=1, deep={"a": [1]}, **xyz) for id_ in "abcde"))
    before = town.states()
    exported = Export(place=town.place, collection="places", output=str(tmp_path / "export"))
    export(spark, exported, SilentProgress())
    features = [dict(before[id_].feature) for id_ in "abcd"]
    features[0] |= {"geometry": {"type": "Point", "coordinates": [1.0, 3.0]}}
    features[1] |= {"properties": {"n": 2, "deep": {"a": [1]}, "x/y": None}, "more": [1]}
    features[2] |= {"properties": {"deep": {"a": [1.0]}, "n": 1.0, XYZ: {"tags": ["blue"]}}}
    features[3] |= {"properties": {"deep": {"a": [1.0]}, "n": 1.0}}
    features.append(point("new", 5.0, 5.0))
    files = (written(tmp_path / "edited.geojsonl", features),)
    output = tmp_path / "changes"
    report = found(spark, town, files=files, output=str(output), output_format=OutputFormat.LINES)
    reported = lines_of(output)
    assert {line["id"]: (line["action"], line["paths"]) for line in reported} == {
        "a": ("updated", ["/geometry"]),
        "b": ("updated", ["/more", "/properties/n", "/properties/x~1y"]),
        "c": ("updated", [f"/properties/{XYZ}/tags"]),
        "new": ("created", []),
        "e": ("deleted", []),
    }
    assert {line["id"]: line["new"] and line["new"]["geometry"] for line in reported} == {
        "a": features[0]["geometry"],
        **dict.fromkeys("bc", features[1]["geometry"]),
        "new": features[4]["geometry"],
        "e": None,
    }
    assert counts_of(report) == (1, 3, 1)
    assert msgspec.json.decode((output / REPORT).read_bytes(), type=Compared) == report
    town.put(point("a", 1.0, 2.0, n=7))
    assert counts_of(found(spark, town, files=(exported.output,))) == (0, 1, 0)
    first = str(report.old)
    assert counts_of(found(spark, town, old=first, files=(exported.output,))) == (0, 0, 0)
    columns = {
        "name": ["a", "b", "new"],
        "wkb": shapely.to_wkb(shapely.points([1.0, 1.0, 3.0], 2.0)).tolist(),
        "n": [7, 1, 3],
    }
    pq.write_table(pa.table(columns), tmp_path / "plain.parquet")
    plain = found(spark, town, files=(str(tmp_path / "plain.parquet"),), mapping=Mapping(id="name"))
    assert counts_of(plain) == (1, 1, 3)


def test_files_that_cannot_be_compared(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    one = point("a", 1.0, 2.0)
    files = (written(tmp_path / "a.geojsonl", [one, point("b", 1.0, 2.0), one]),)
    with pytest.raises(InvalidArgument, match="several features with the id") as error:
        found(spark, small_town, files=files)
    assert error.value.feature_id == "a"
    with pytest.raises(InvalidArgument, match="remove new and query"):
        found(spark, small_town, files=files, new="1")
    with pytest.raises(InvalidArgument, match="must be mirror or upsert, not 'create'"):
        found(spark, small_town, files=files, mode=WriteMode.CREATE)
    broken = (written(tmp_path / "c.geojsonl", [one, point("b", 1, 95), point("c", 1, 95)]),)
    with pytest.raises(LimitExceeded, match="More than 1 records"):
        found(spark, small_town, files=broken, rejects_max=1)
    spec = Diff(place=small_town.place, collection="unknown", files=broken)
    assert counts_of(diff(spark, spec, SilentProgress())) == (1, 0, 0)


def test_inconsistent_options_are_refused(
    spark: SparkSession, small_town: Town, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match="requires a version other than HEAD"):
        found(spark, small_town)
    with pytest.raises(InvalidArgument, match="limit"):
        found(spark, small_town, old="0", query=Query(limit=1))
    with pytest.raises(InvalidArgument, match="cursor or states"):
        found(spark, small_town, old="0", query=Query(states=States.ALL))
    with pytest.raises(InvalidArgument, match="must not have replaced_since"):
        found(spark, small_town, old="0", query=Query(replaced_since=1))
    with pytest.raises(Conflict, match="already exists"):
        found(spark, small_town, old="0", output=str(tmp_path))
    with pytest.raises(CollectionNotFound, match="nowhere"):
        diff(spark, Diff(place=small_town.place, collection="nowhere", old="0"), SilentProgress())

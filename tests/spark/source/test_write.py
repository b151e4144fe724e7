"""Writes of a DataFrame as features, with one transaction, on every storage."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql import functions as f

import naksha.spark
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, Conflict, FeatureExists, InvalidArgument
from naksha.model.query import Query
from naksha.spark.source.options import StorageRef
from naksha.spark.source.write import FeatureWriter
from naksha.spark.source.write_options import write_options
from naksha.spi.staging import AppliedWrite, WriteMode
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import published
from naksha.versioning import Attribution, create_branch, line_of, rebase
from tests.spark.conftest import TownMaker
from tests.spark.source.write_support import frame, fresh, held, log, numbers, options, staged
from tests.spark.towns import Town

POINT = bytes.fromhex("010100000000000000000031400000000000001c40")
IDS = st.sampled_from("abcdefgh")
WRITES = st.lists(
    st.tuples(
        st.sampled_from(WriteMode),
        st.dictionaries(IDS, st.sampled_from([None, 1, 2]), max_size=6),
    ),
    min_size=2,
    max_size=4,
)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module", params=["file", "postgresql"])
def target(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage for all tests here: each writes to collections of its own."""
    with town_maker(request.param) as made:
        yield made


def counts(applied: AppliedWrite) -> tuple[int, int, int, int]:
    return (applied.created, applied.updated, applied.deleted, applied.retained)


def model(
    known: dict[str, Any], mode: WriteMode, new: dict[str, Any]
) -> tuple[dict[str, Any], tuple[int, int, int, int]] | None:
    """Return the resulting features and counts; None if the write is rejected."""
    if mode is WriteMode.CREATE and known.keys() & new.keys():
        return None
    others = known.keys() - new.keys()
    gone = {
        WriteMode.MIRROR: others,
        WriteMode.REPLACE: {i for i in others if known[i] is not None and known[i] in new.values()},
    }.get(mode, set())
    same = sum(i in known and known[i] == n for i, n in new.items())
    created = len(new.keys() - known.keys())
    after = {i: n for i, n in {**known, **new}.items() if i not in gone}
    return after, (created, len(new) - created - same, len(gone), same)


def check_writes(
    spark: SparkSession, target: Town, writes: list[tuple[WriteMode, dict[str, Any]]]
) -> None:
    name, known = fresh(), dict[str, Any]()
    target.call(lambda s: s.run(lambda w: w.create_collection(CollectionInfo(id=name)), "test"))
    for mode, new in writes:
        key = ("properties", "n") if mode is WriteMode.REPLACE else None
        wanted = model(known, mode, new)
        table = frame(spark, new)
        if wanted is None:
            with pytest.raises(FeatureExists) as caught:
                naksha.spark.write(table, target.location, name, app_id="test", mode=mode)
            assert caught.value.feature_id in known
        else:
            done = naksha.spark.write(
                table, target.location, name, app_id="test", mode=mode, key=key
            )
            known, reported = wanted
            assert counts(done) == reported
            assert (done.txn is None) == (reported[:3] == (0, 0, 0))
        assert numbers(target, name) == known
    assert staged(target) == 0


@given(WRITES)
@settings(max_examples=2, suppress_health_check=QUIET)
def test_any_writes_match_a_model(
    spark: SparkSession, target: Town, writes: list[tuple[WriteMode, dict[str, Any]]]
) -> None:
    check_writes(spark, target, writes)


@pytest.mark.long
@given(WRITES)
@settings(max_examples=60, suppress_health_check=QUIET)
def test_many_writes_match_a_model(
    spark: SparkSession, target: Town, writes: list[tuple[WriteMode, dict[str, Any]]]
) -> None:
    check_writes(spark, target, writes)


def test_one_changeset_records_author_and_changes(spark: SparkSession, target: Town) -> None:
    name, before = fresh(), len(log(target))
    table = frame(spark, {f"f{n}": n for n in range(40)}, parts=4)
    info = CollectionInfo(id=name, max_age=9, id_prefix="p:", author="owner")
    done = naksha.spark.write(
        table, target.location, info, app_id="loader", author="ann", message="a load", job=name
    )
    assert counts(done) == (40, 0, 0, 0)
    (transaction,) = log(target)[before:]
    assert (transaction.txn, transaction.app_id, transaction.author) == (done.txn, "loader", "ann")
    texts = {s.id: s.text for s in transaction.signals if s.action == "MESSAGE"}
    assert texts == {"message": "a load", "job": name}
    made = target.call(lambda s: s.collection(name))
    assert (made.max_age, made.id_prefix, made.author) == (9, "p:", "owner")
    # The same job again does nothing, whatever it brings.
    more = frame(spark, {"other": 1})
    again = naksha.spark.write(more, target.location, name, app_id="loader", job=name)
    assert (again.repeated, again.txn, counts(again)) == (True, done.txn, counts(done))
    more.write.format("naksha").options(**options(target, name, job=name)).mode("append").save()
    assert len(log(target)) == before + 1
    assert (len(held(target, name)), staged(target)) == (40, 0)


def test_all_columns(spark: SparkSession, target: Town) -> None:
    name = fresh()
    table = spark.createDataFrame(
        [("a", bytearray(POINT), (1, None, ["x"]), '{"title":"t"}', ["red", "blue"], "c1")],
        "id string, geometry binary, properties struct<n:int, no:string, list:array<string>>, "
        "members string, tags array<string>, crid string",
    )
    naksha.spark.write(table, target.location, name, app_id="test")
    (state,) = held(target, name)
    assert state.feature["geometry"] == {"type": "Point", "coordinates": [17.0, 7.0]}
    assert state.feature["title"] == "t"
    assert {**state.feature["properties"]} == {
        "n": 1,
        "list": ["x"],
        "@ns:com:here:xyz": state.xyz,
    }
    assert (sorted(state.xyz["tags"]), state.xyz["crid"]) == (["blue", "red"], "c1")
    # What is read can be written: nothing of it has changed.
    columns = ("id", "geometry", "properties", "members", "tags", "crid")
    read = naksha.spark.features(spark, target.location, name).select(*columns)
    again = naksha.spark.write(read, target.location, name, app_id="test", mode="upsert")
    assert counts(again) == (0, 0, 0, 1)


def test_geometries_of_spark_and_ids_that_are_made_up(spark: SparkSession, target: Town) -> None:
    name = fresh()
    table = spark.range(0, 30, 1, 3).select(
        f.lit(None).cast("string").alias("id"),
        f.expr(f"st_geomfromwkb(X'{POINT.hex()}', 4326)").alias("geometry"),
    )
    done = naksha.spark.write(table, target.location, name, app_id="test")
    assert counts(done) == (30, 0, 0, 0)
    states = held(target, name)
    assert len({state.id for state in states}) == 30
    assert {tuple(s.feature["geometry"]["coordinates"]) for s in states} == {(17.0, 7.0)}
    far = spark.sql(f"SELECT 'x' AS id, st_geomfromwkb(X'{POINT.hex()}', 3857) AS geometry")
    with pytest.raises(InvalidArgument, match="3857"):
        naksha.spark.write(far, target.location, name, app_id="test")


def test_errors_name_the_feature_and_the_field(spark: SparkSession, target: Town) -> None:
    name, before = fresh(), len(log(target))
    bad = spark.createDataFrame([("good", "{}"), ("bad", "[1]")], "id string, properties string")
    # In one task: another one that is killed while it stages would leave something to be swept.
    with pytest.raises(InvalidArgument) as caught:
        naksha.spark.write(bad.coalesce(1), target.location, name, app_id="test")
    assert (caught.value.feature_id, caught.value.field) == ("bad", "properties")
    twice = frame(spark, {"x": 1}).union(frame(spark, {"x": 2}))
    with pytest.raises(InvalidArgument) as caught:
        naksha.spark.write(twice, target.location, name, app_id="test")
    assert caught.value.feature_id == "x"
    with pytest.raises(PySparkException, match="feature 'x'"):
        twice.write.format("naksha").options(**options(target, name)).mode("append").save()
    assert (len(log(target)), staged(target)) == (before, 0)
    with pytest.raises(CollectionNotFound):
        target.call(lambda s: s.collection(name))


NUMBERS = """
    SELECT 'a' AS id, named_struct('x', x, 's', 'NaN', 'deep', named_struct('l', array(y, 1D)))
        AS properties, map('m', y, 'n', 1D) AS members
    FROM VALUES (double('NaN'), double('NaN')), (1D, double('{}')) AS t (x, y) LIMIT {}
"""


def test_non_finite_numbers_are_not_written_as_texts(spark: SparkSession, target: Town) -> None:
    name = fresh()
    naksha.spark.write(spark.sql(NUMBERS.format("NaN", 1)), target.location, name, app_id="test")
    (state,) = held(target, name)
    properties = {**state.feature["properties"]}
    del properties["@ns:com:here:xyz"]
    assert properties == {"s": "NaN", "deep": {"l": [None, 1]}}
    assert ("m" in state.feature, state.feature["n"]) == (False, 1)
    infinite = spark.sql(NUMBERS.format("-Infinity", 2)).coalesce(1)
    for column, field in (("properties", "properties.deep"), ("members", "members.m")):
        with pytest.raises(InvalidArgument, match="is infinite") as caught:
            naksha.spark.write(
                infinite.select("id", column), target.location, name, app_id="test", mode="upsert"
            )
        assert (caught.value.feature_id, caught.value.field) == ("a", field)
    assert staged(target) == 0


NULLS = """
    SELECT 'a' AS id,
        named_struct('n', int(null), 'm', map('x', int(null), 'y', 1), 'l', array(int(null)),
            'deep', array(map('x', map('z', string(null)))), 'v', parse_json('{"x": null}'),
            'none', cast(null AS variant)) AS properties,
        map('b', int(null), 'c', 2) AS members
"""


def test_nulls_are_left_out_but_not_of_arrays_and_variants(
    spark: SparkSession, target: Town
) -> None:
    name = fresh()
    naksha.spark.write(spark.sql(NULLS), target.location, name, app_id="test")
    (state,) = held(target, name)
    properties = {**state.feature["properties"]}
    del properties["@ns:com:here:xyz"]
    assert properties == {"m": {"y": 1}, "l": [None], "deep": [{"x": {}}], "v": {"x": None}}
    assert ("b" in state.feature, state.feature["c"]) == (False, 2)


@pytest.mark.parametrize(
    "properties",
    ["to_variant_object(named_struct('x', {}))", "map('x', {}::variant)"],
    ids=["variant", "map"],
)
def test_numbers_that_json_has_not_are_refused_in_variants(
    spark: SparkSession, target: Town, properties: str
) -> None:
    name = fresh()
    query = f"SELECT 'a' AS id, {properties} AS properties"
    for word in ("NaN", "Infinity"):
        bad = spark.sql(query.format(f"array(float('{word}'))"))
        with pytest.raises(InvalidArgument, match="which JSON cannot represent") as caught:
            naksha.spark.write(bad, target.location, name, app_id="test")
        assert (caught.value.feature_id, caught.value.field) == ("a", "properties")
    good = spark.sql(query.format("array('NaN', '-Infinity')"))
    naksha.spark.write(good, target.location, name, app_id="test")
    (state,) = held(target, name)
    assert state.feature["properties"]["x"] == ["NaN", "-Infinity"]


def test_overwrite_is_a_mirror(spark: SparkSession, target: Town) -> None:
    name = fresh()
    naksha.spark.write(frame(spark, {"a": 1, "b": 2}), target.location, name, app_id="test")
    writer = frame(spark, {"b": 3}).write.format("naksha").options(**options(target, name))
    with pytest.raises(PySparkException, match="mirror"):
        writer.option("writeMode", "upsert").mode("overwrite").save()
    assert numbers(target, name) == {"a": 1, "b": 2}
    writer = frame(spark, {"b": 3}).write.format("naksha").options(**options(target, name))
    writer.mode("overwrite").save()
    assert numbers(target, name) == {"b": 3}


def test_a_branch_is_written_to(spark: SparkSession, target: Town) -> None:
    name = fresh()
    naksha.spark.write(frame(spark, {"a": 1}), target.location, name, app_id="test")
    target.call(lambda s: create_branch(s, f"on-{name}", Attribution("test", "ann")))
    done = naksha.spark.write(
        frame(spark, {"b": 2}),
        target.location,
        name,
        app_id="test",
        mode="mirror",
        branch=f"on-{name}",
    )
    assert counts(done) == (1, 0, 1, 0)
    assert numbers(target, name) == {"a": 1}

    async def count(storage: Storage) -> int:
        return await (await line_of(storage, f"on-{name}")).storage.count(name, Query())

    assert target.call(count) == 1


# ---- Attempts, as Spark makes them ---------------------------------------------------------------


def batches(*ids: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"id": [*ids], "properties": ["{}"] * len(ids)})


def new_writer(spark: SparkSession, target: Town, name: str) -> FeatureWriter:
    """A writer, as it comes to executors and back."""
    schema = frame(spark, {"x": 1}).schema
    made = FeatureWriter(write_options(options(target, name), overwrite=False), schema)
    back: FeatureWriter = pickle.loads(pickle.dumps(made))
    return back


def test_a_commit_that_runs_twice_does_it_once(spark: SparkSession, target: Town) -> None:
    name, before = fresh(), len(log(target))
    writer = new_writer(spark, target, name)
    messages = [writer.write(batches("a", "b")), writer.write(batches("c"))]
    messages = pickle.loads(pickle.dumps(messages))
    assert staged(target) == 2
    for _ in range(2):
        writer.commit(messages)
    assert (len(log(target)), staged(target)) == (before + 1, 0)
    assert [state.id for state in held(target, name)] == ["a", "b", "c"]


def test_only_the_attempts_that_spark_names_count(spark: SparkSession, target: Town) -> None:
    name = fresh()
    writer = new_writer(spark, target, name)
    first, second = writer.write(batches("a")), writer.write(batches("a"))
    del first  # A task ran twice, and this attempt came too late.
    writer.commit([second])
    assert [state.id for state in held(target, name)] == ["a"]
    assert staged(target) == 0


def test_tasks_without_features_stage_nothing(spark: SparkSession, target: Town) -> None:
    name = fresh()
    writer = new_writer(spark, target, name)
    messages = [writer.write(iter(())), writer.write(batches()), writer.write(batches("a"))]
    assert staged(target) == 1
    writer.commit(pickle.loads(pickle.dumps(messages)))
    assert [state.id for state in held(target, name)] == ["a"]


def test_nothing_at_all_is_written_once(spark: SparkSession, target: Town) -> None:
    name = fresh()
    naksha.spark.write(frame(spark, {"a": 1}), target.location, name, app_id="test")
    nothing = frame(spark, {"a": 1}).where("false")
    given: dict[str, Any] = {"app_id": "test", "mode": "mirror", "job": f"{name}-job"}
    assert counts(naksha.spark.write(nothing, target.location, name, **given)) == (0, 0, 1, 0)
    assert (numbers(target, name), staged(target)) == ({}, 0)
    naksha.spark.write(frame(spark, {"b": 1}), target.location, name, app_id="test")
    again = naksha.spark.write(nothing, target.location, name, **given)
    assert (again.repeated, numbers(target, name)) == (True, {"b": 1})


def test_a_committed_write_has_not_failed(
    spark: SparkSession, target: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark lost the process that had done it, before it answered."""
    name, save = fresh(), DataFrameWriter.save

    def lose(writer: DataFrameWriter, *given: Any, **named: Any) -> None:
        save(writer, *given, **named)
        raise PySparkException("the process is gone")

    monkeypatch.setattr(DataFrameWriter, "save", lose)
    done = naksha.spark.write(frame(spark, {"a": 1}), target.location, name, app_id="test")
    assert (counts(done), done.repeated) == ((1, 0, 0, 0), False)
    monkeypatch.setattr(DataFrameWriter, "save", lambda *_, **__: lose_at_once())
    with pytest.raises(PySparkException):
        naksha.spark.write(frame(spark, {"b": 1}), target.location, name, app_id="test")


def lose_at_once() -> None:
    raise PySparkException("the process is gone")


def test_a_file_that_was_replaced_is_the_storage(spark: SparkSession, tmp_path: Path) -> None:
    """Spark uses its processes again, which know the former one."""
    path = tmp_path / "town.naksha"
    town, name = Town(f"file:{path}"), fresh()
    naksha.spark.write(frame(spark, {"old": 1}), town.location, name, app_id="test")
    assert naksha.spark.features(spark, town.location, name).count() == 1
    for each in tmp_path.glob("town.naksha*"):
        each.unlink()
    with naksha.connect(town.location, app_id="test") as db:
        db.create_collection(name)
    assert naksha.spark.features(spark, town.location, name).count() == 0
    given: dict[str, Any] = {"storage": town.location, "collection": name, "appId": "test"}
    frame(spark, {"new": 2}).write.format("naksha").options(**given).mode("append").save()
    with naksha.connect(town.location, app_id="test") as db:
        assert [each["id"] for each in db.collection(name).query()] == ["new"]


def test_a_job_of_another_collection_is_refused(spark: SparkSession, target: Town) -> None:
    name, other, job = fresh(), fresh(), f"{fresh()}-job"
    table = frame(spark, {"a": 1})
    naksha.spark.write(table, target.location, name, app_id="test", job=job)
    with pytest.raises(Conflict) as caught:
        naksha.spark.write(table, target.location, other, app_id="test", job=job)
    assert caught.value.field == "job"


def test_a_job_is_known_on_a_branch_that_was_rebased(spark: SparkSession, target: Town) -> None:
    """A batch of a stream is repeated, because its driver died before it saw the result."""
    name, who = fresh(), Attribution("test", "ann")
    naksha.spark.write(frame(spark, {"a": 1}), target.location, name, app_id="test")
    target.call(lambda s: create_branch(s, f"on-{name}", who))
    reported = options(target, name, branch=f"on-{name}", job=f"{name}-0", writeMode="upsert")
    writer = FeatureWriter(write_options(reported, overwrite=False), frame(spark, {"x": 1}).schema)
    writer.commit([writer.write(batches("b"))])
    naksha.spark.write(frame(spark, {"c": 1}), target.location, name, app_id="test", mode="upsert")
    target.call(published)
    target.call(lambda s: rebase(s, f"on-{name}", who))
    before = len(log(target))
    writer.commit([writer.write(batches("b"))])
    assert (len(log(target)), staged(target)) == (before, 0)


def test_an_abort_forgets_all_attempts(spark: SparkSession, target: Town) -> None:
    writer = new_writer(spark, target, fresh())
    message = writer.write(batches("a"))
    writer.write(batches("b"))
    writer.abort([message, None])
    assert staged(target) == 0


# ---- What is refused before anything runs --------------------------------------------------------


@pytest.mark.parametrize(
    ("given_options", "field"),
    [
        ({"appId": ""}, "appId"),
        ({"collection": ""}, "collection"),
        ({"collection": "Not An Id"}, "collection"),
        ({"writeMode": "merge"}, "writeMode"),
        ({"writeMode": "replace"}, "key"),
        ({"key": "properties.n"}, "key"),
        ({"writeMode": "replace", "key": "[1]"}, "key"),
        ({"writeMode": "replace", "key": "properties"}, "key"),
        ({"history": "perhaps"}, "history"),
        ({"maxAge": "long"}, "maxAge"),
        ({"brnach": "fix"}, "brnach"),
        ({"checkpointLocation": "x"}, "checkpointLocation"),
        ({"message": "m" * (limits.MESSAGE_TEXT_BYTES_MAX + 1)}, "message"),
        ({"job": "j" * (limits.JOB_ID_BYTES_MAX + 1)}, "job"),
    ],
)
def test_contradicting_options_are_refused(given_options: dict[str, str], field: str) -> None:
    known = {"storage": "file:x.naksha", "collection": "roads", "appId": "me"}
    with pytest.raises(InvalidArgument) as caught:
        write_options({**known, **given_options}, overwrite=False)
    assert caught.value.field == field


def test_an_option_that_is_misspelt_writes_nothing(spark: SparkSession, target: Town) -> None:
    name = fresh()
    writer = frame(spark, {"a": 1}).write.format("naksha").options(**options(target, name))
    with pytest.raises(PySparkException, match="Unknown option 'brnach'"):
        writer.option("brnach", "fix").mode("append").save()
    with pytest.raises(CollectionNotFound):
        target.call(lambda s: s.collection(name))
    assert staged(target) == 0


def test_options_are_parsed() -> None:
    known = {"storage": "file:/x.naksha", "collection": "roads", "appId": "me"}
    by_spark = {"checkpointLocation": "x", "queryName": "y"}
    assert write_options({**known, **by_spark}, overwrite=False, is_stream=True).branch == "main"
    found = write_options({**known, "writeMode": "replace", "key": '["a.b","c"]'}, overwrite=False)
    assert (found.place, found.write.key) == (StorageRef("file:/x.naksha"), ("a.b", "c"))
    dotted = write_options({**known, "writeMode": "Replace", "key": "a.b"}, overwrite=False)
    assert dotted.write.key == ("a", "b")
    assert dotted.write.job != found.write.job


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("id string, colour string, size int", ["'colour'", "'size'"]),
        ("id double", ["'id'", "string or an integer"]),
        ("id string, geometry string", ["'geometry'", "WKB"]),
        ("id string, properties struct<a:int>", ["'properties'", "naksha.spark.write"]),
        ("id string, tags string", ["'tags'", "array"]),
    ],
)
def test_columns_that_are_refused(spark: SparkSession, columns: str, words: list[str]) -> None:
    schema = spark.createDataFrame([], columns).schema
    known = {"storage": "file:x.naksha", "collection": "roads", "appId": "me"}
    with pytest.raises(InvalidArgument) as caught:
        FeatureWriter(write_options(known, overwrite=False), schema)
    for word in words:
        assert word in caught.value.message

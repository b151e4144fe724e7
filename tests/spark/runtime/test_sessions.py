"""Sessions: the addresses a driver listens on, and settings made by others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import naksha.spark
from naksha.model.query import Query
from naksha.spark.runtime.sessions import LOOPBACK, REDACTION, TIME_ZONE, default_settings, in_utc
from naksha.spark.runtime.storage_cache import close
from naksha.spark.source.options import StorageRef
from tests.spark.towns import COLLECTION, Town


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "spark://127.0.0.1:7077", "spark://[::1]:1"]
)
def test_a_driver_with_local_executors_listens_on_loopback_only(master: str) -> None:
    settings = default_settings(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == LOOPBACK


@pytest.mark.parametrize("master", ["spark://one.example:7077,two.example:7077", "yarn"])
def test_executors_elsewhere_find_their_driver(master: str) -> None:
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(default_settings(master))


BERLIN = "Europe/Berlin"


@pytest.fixture
def other(spark: SparkSession) -> SparkSession:
    """Session of a user, with other settings."""
    made = spark.newSession()
    made.conf.set(TIME_ZONE, BERLIN)
    made.conf.set(REDACTION, "password|token")
    made.conf.set("spark.sql.shuffle.partitions", "3")
    return made


def test_a_session_of_others_stays_as_it_is(other: SparkSession, town: Town) -> None:
    for _ in range(2):
        naksha.spark.features(other, town.location, COLLECTION)
        naksha.spark.changes(other, town.location, COLLECTION, starting="now")
        naksha.spark.set_up(other)
    assert other.conf.get(TIME_ZONE) == BERLIN
    regex = other.conf.get(REDACTION)
    assert regex == "password|token|(?i:storage)"
    table = naksha.spark.features(other, town.location, COLLECTION)
    assert town.location not in table._jdf.queryExecution().toString()


def test_other_sessions_of_our_own_context_read_too(spark: SparkSession, town: Town) -> None:
    reader = spark.newSession().read.format("naksha")
    table = reader.options(storage=town.location, collection=COLLECTION).load()
    assert table.count() == len(town.states(Query()))
    assert town.location not in table._jdf.queryExecution().toString()


def test_a_running_session_gets_what_is_asked_for_only(spark: SparkSession) -> None:
    names = (TIME_ZONE, REDACTION, "spark.sql.shuffle.partitions")
    before = {name: spark.conf.get(name) or "" for name in names}
    assert before[TIME_ZONE] == "UTC"
    wanted = {TIME_ZONE: BERLIN, REDACTION: "token"}
    try:
        assert naksha.spark.session(settings=wanted).conf.get(TIME_ZONE) == BERLIN
        naksha.spark.session()
        assert spark.conf.get(TIME_ZONE) == BERLIN
        assert spark.conf.get(REDACTION) == "token|(?i:storage)"
        assert spark.conf.get(names[2]) == before[names[2]]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_the_time_zone_of_jobs_is_theirs(other: SparkSession) -> None:
    made = in_utc(other)
    assert (made.conf.get(TIME_ZONE), other.conf.get(TIME_ZONE)) == ("UTC", BERLIN)
    assert made.conf.get("spark.sql.shuffle.partitions") == "3"
    assert in_utc(made) is made


TIMES = """
    SELECT 'a' AS id, named_struct('at', timestamp'2020-01-02T03:04:05Z',
        'deep', array(map('x', timestamp'2020-06-02T03:04:05Z')),
        'v', timestamp'2020-01-02T03:04:05Z'::variant) AS properties
"""


def test_times_are_the_same_in_every_session(other: SparkSession, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/town.naksha"
    naksha.spark.write(other.sql(TIMES), location, "times", app_id="test")
    (row,) = naksha.spark.features(other, location, "times").collect()
    assert json.loads(row.properties) == {
        "at": "2020-01-02T03:04:05.000Z",
        "deep": [{"x": "2020-06-02T03:04:05.000Z"}],
        "v": "2020-01-02 03:04:05+00:00",
    }
    plain = "SELECT 'b' AS id, '{\"at\": \"2020-01-02T03:04:05\"}' AS properties"
    naksha.spark.write(other.sql(plain), location, "times", app_id="test")
    table = naksha.spark.features(other, location, "times", properties="at TIMESTAMP")
    (row,) = table.where("id = 'b'").selectExpr("unix_seconds(properties.at) AS at").collect()
    assert row.at == 1577934245
    close(StorageRef(location))

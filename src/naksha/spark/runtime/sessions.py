"""Spark sessions that are set up for Naksha."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
_HERE: Final = (LOOPBACK, "localhost", "::1")
NEEDED: Final = {
    # Without it Spark refuses readers that take filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What every session needs."""
REDACTION: Final = "spark.sql.redaction.options.regex"
"""Which options plans and logs do not show."""
_REDACTED_BY_SPARK: Final = "(?i)url"
_LOCATIONS: Final = "(?i:storage)"
"""Locations may have passwords in them."""
TIME_ZONE: Final = "spark.sql.session.timeZone"
UTC: Final = "UTC"
WISHED: Final = {
    # A job gives the same wherever it runs.
    TIME_ZONE: UTC,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One statement reads a part of a collection whole; parts are few and of the same size.
    "spark.sql.adaptive.enabled": "true",
}
"""What a session of our own has unless it is told otherwise."""
NEARBY: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Spark's 200 parts of a shuffle are for many machines.
    "spark.sql.shuffle.partitions": "16",
}
"""The same for one on this machine: nobody else has anything to do with it, while by itself it
listens where the network is. Executors on other machines would not find it there."""


def session(
    master: str = LOCAL, *, name: str = "naksha", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one: in this process, or on a cluster by the address of its
    master. Executors run the Python of the driver, where that is installed in the same place."""
    # Spark learns it from the environment only, and takes the first python3 of the path otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.master(master).appName(name)
    # One that is running has what somebody else wished.
    is_new = SparkContext._active_spark_context is None
    given = {**(wished(master) if is_new else {}), **(settings or {})}
    if is_new:
        # Other sessions of the same context begin with it, too.
        given |= {**NEEDED, REDACTION: _redacting(given.get(REDACTION, _REDACTED_BY_SPARK))}
    for key, value in given.items():
        builder = builder.config(key, value)
    # It gives a running one the settings that can be changed.
    return set_up(builder.getOrCreate())


def wished(master: str) -> dict[str, str]:
    """The settings of a session unless it is told otherwise."""
    is_here = master.startswith("local") or urlsplit(master).hostname in _HERE
    return {**WISHED, **(NEARBY if is_here else {})}


def set_up(spark: SparkSession) -> SparkSession:
    """Make a session fit for the format `naksha`, which it finds by itself (`pyspark_naksha`)."""
    regex = spark.conf.get(REDACTION, _REDACTED_BY_SPARK)
    for key, value in {**NEEDED, REDACTION: _redacting(regex)}.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    return spark


def _redacting(regex: str | None) -> str:
    """What is not shown, and locations besides."""
    if not regex:
        return _LOCATIONS
    return regex if _LOCATIONS in regex else f"{regex}|{_LOCATIONS}"


def in_utc(spark: SparkSession) -> SparkSession:
    """A session with the same settings, but for the time zone: where a time has none, it is UTC.
    Spark asks nobody else when it reads a time, or writes it as text."""
    if spark.conf.get(TIME_ZONE) == UTC:
        return spark
    made = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if made.conf.get(key, None) != value and made.conf.isModifiable(key):
            made.conf.set(key, value)
    made.conf.set(TIME_ZONE, UTC)
    return made

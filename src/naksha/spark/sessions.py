"""Spark sessions that are set up for Naksha."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
_HERE: Final = (LOOPBACK, "localhost", "::1")
NEEDED: Final = {
    # Without it Spark refuses readers that take filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Locations may have passwords in them; plans and logs show options.
    "spark.sql.redaction.options.regex": "(?i)url|storage",
    "spark.sql.session.timeZone": "UTC",
}
"""What every session needs."""
WISHED: Final = {
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
    for key, value in {**wished(master), **(settings or {}), **NEEDED}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()  # which gives a running one the settings that can be changed


def wished(master: str) -> dict[str, str]:
    """The settings of a session unless it is told otherwise."""
    is_here = master.startswith("local") or urlsplit(master).hostname in _HERE
    return {**WISHED, **(NEARBY if is_here else {})}


def set_up(spark: SparkSession) -> SparkSession:
    """Make a session fit for the format `naksha`, which it finds by itself (`pyspark_naksha`)."""
    for key, value in NEEDED.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark

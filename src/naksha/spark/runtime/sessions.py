"""Spark sessions configured for Naksha."""

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
_NEEDED: Final = {
    # Without it Spark rejects readers that accept filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings that every session needs."""
REDACTION: Final = "spark.sql.redaction.options.regex"
"""Setting with the regular expression of options that plans and logs must not show."""
_REDACTED_BY_SPARK: Final = "(?i)url"
_LOCATIONS: Final = "(?i:storage)"
"""Storage locations are redacted because they may contain passwords."""
TIME_ZONE: Final = "spark.sql.session.timeZone"
UTC: Final = "UTC"
_WISHED: Final = {
    # Results must not depend on the machine.
    TIME_ZONE: UTC,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One statement reads a whole split; splits are few and of the same size.
    "spark.sql.adaptive.enabled": "true",
}
"""Defaults of a session that `session` creates."""
_NEARBY: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Spark's default of 200 is meant for clusters.
    "spark.sql.shuffle.partitions": "16",
}
"""More defaults for a master on this machine: Spark listens on the loopback address only.

Executors on other machines could not connect to it there.
"""


def session(
    master: str = LOCAL, *, name: str = "naksha", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or create one, in this process or on the cluster of a master.

    Executors run the Python of the driver, which must be installed at the same path.
    """
    # Only read from the environment; the default is the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.master(master).appName(name)
    # The defaults must not replace the settings of a running session.
    is_new = SparkContext._active_spark_context is None
    session_settings = {**(default_settings(master) if is_new else {}), **(settings or {})}
    if is_new:
        # Further sessions of the same context inherit these.
        session_settings |= {
            **_NEEDED,
            REDACTION: _redacting(session_settings.get(REDACTION, _REDACTED_BY_SPARK)),
        }
    for key, value in session_settings.items():
        builder = builder.config(key, value)
    # On a running session this changes the settings that can be changed.
    return set_up(builder.getOrCreate())


def default_settings(master: str) -> dict[str, str]:
    """Return the default settings of a session with a master."""
    is_here = master.startswith("local") or urlsplit(master).hostname in _HERE
    return {**_WISHED, **(_NEARBY if is_here else {})}


def set_up(spark: SparkSession) -> SparkSession:
    """Configure a session for the format `naksha`, which Spark discovers by `pyspark_naksha`."""
    regex = spark.conf.get(REDACTION, _REDACTED_BY_SPARK)
    for key, value in {**_NEEDED, REDACTION: _redacting(regex)}.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    return spark


def _redacting(regex: str | None) -> str:
    """Extend the regular expression of redacted options by storage locations."""
    if not regex:
        return _LOCATIONS
    return regex if _LOCATIONS in regex else f"{regex}|{_LOCATIONS}"


def in_utc(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings and the time zone UTC.

    Spark uses the zone of the session to parse times without a zone and to format times.
    """
    if spark.conf.get(TIME_ZONE) == UTC:
        return spark
    made = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if made.conf.get(key, None) != value and made.conf.isModifiable(key):
            made.conf.set(key, value)
    made.conf.set(TIME_ZONE, UTC)
    return made

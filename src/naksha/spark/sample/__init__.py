"""The built-in sample: a real edit history, so that time travel has something to show."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from naksha.spark.jobs.loading.spec import Load
from naksha.spark.options import Place

COLLECTION: Final = "airports"


def sample_load(location: str) -> Load:
    """The load of the sample into a storage of its own, which must be fresh: it is dated."""
    return Load(
        place=Place(location),
        collection=COLLECTION,
        files=(str(files("naksha.spark.sample") / "airports.jsonl.bz2"),),
        app_id="naksha-sample",
        author="airportsdata",
        history=True,
    )

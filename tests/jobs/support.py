"""The sample jobs, installed as any distribution would be, for processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

import naksha
from tests.hub.remote.support import ROOT, install
from tests.jobs.sample import COUNT, LOAD, ONCE, WIPE

ENTRY_POINTS = f"""\
[naksha.jobs]
{COUNT} = tests.jobs.sample:count_job
{ONCE} = tests.jobs.sample:once_job
{LOAD} = tests.jobs.sample:load_job
{WIPE} = tests.jobs.sample:wipe_job
"""


def site(directory: Path) -> dict[str, str]:
    """The environment of a process that knows the sample jobs."""
    paths = [str(install(directory / "site", ENTRY_POINTS)), str(ROOT)]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(paths)}


def town(directory: Path, count: int = 10) -> str:
    """A storage with a collection `roads`; gives its location."""
    location = f"file:{directory}/town.naksha"
    features = [{"type": "Feature", "id": f"f{n}", "properties": {"n": n}} for n in range(count)]
    with naksha.connect(location, app_id="test") as db:
        db.create_collection("roads").create(features)
    return location

"""The sample of a new hub: loaded once by the pipeline, and served."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import naksha
from naksha.testing.hub_server import HubServer
from tests.cli.command import environment
from tests.cli.command import naksha as command

SECONDS_MAX = 600


@pytest.mark.timeout(SECONDS_MAX)
def test_a_new_hub_has_the_sample_with_its_true_versions(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path)]
    made = command("sample", *flags, seconds_max=SECONDS_MAX)
    assert made.returncode == 0, made.stderr
    assert "The space 'airports' has the sample" in made.stdout
    files = {path.name for path in tmp_path.iterdir()}
    assert {"airports.naksha", "airports.sample"} <= files
    assert not [name for name in files if ".part" in name]
    with naksha.connect(f"file:{tmp_path}/airports.naksha", app_id="test") as db:
        assert len(list(db.versions.log())) == 16
    again = command("sample", *flags)
    assert (again.returncode, again.stdout) == (0, made.stdout)
    with HubServer(tmp_path, arguments=flags) as hub:
        base = f"{hub.url}/hub/spaces/airports"
        assert httpx.get(f"{base}/count").json()["count"] == 596
        then = httpx.get(f"{base}/count", params={"versionRef": "2020-12-01T00:00"})
        assert then.json()["count"] == 600


def test_without_java_the_hub_goes_without_it(tmp_path: Path) -> None:
    alone = environment(PATH=str(tmp_path))
    alone.pop("JAVA_HOME", None)
    made = command("sample", "--data", str(tmp_path), env=alone)
    assert made.returncode != 0
    assert "needs Java 17" in made.stderr
    assert not list(tmp_path.glob("airports*"))

"""The sample jobs, installed like any distribution, and hubs that run them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

import naksha
from naksha.model.limits import SUBSCRIPTION_LEASE_SECONDS
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.servers.spark_cluster import JAVA_OPTIONS
from tests.hub.jobs.sample import COUNT, LOAD, ONCE, SLEEP, WIPE
from tests.hub.remote.support import ROOT, install

ENTRY_POINTS = f"""\
[naksha.jobs]
{COUNT} = tests.hub.jobs.sample:count_job
{ONCE} = tests.hub.jobs.sample:once_job
{LOAD} = tests.hub.jobs.sample:load_job
{WIPE} = tests.hub.jobs.sample:wipe_job
{SLEEP} = tests.hub.jobs.sample:sleep_job
"""
LEASE_SECONDS = 4
"""How long a hub has a job without saying that it lives, in tests that wait for that."""
SPARK = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.sql.shuffle.partitions": "2"}
SECONDS_MAX = 120
"""The limit for waiting; generous, because the machine may be busy."""
FINAL = frozenset({"done", "failed", "cancelled", "lost"})


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


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Until something is so."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"it took too long: {what}"
        time.sleep(0.05)


def processes_of(leader: int) -> dict[int, str]:
    """The processes of a session, whatever groups they are in, and what they run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            command = path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader and state != "Z":
            found[int(path.parent.name)] = command
    return found


def wait_until_gone(leader: int) -> None:
    """Until nothing of a session is left."""
    wait_for(lambda: processes_of(leader) == {}, f"all of {leader} ends")


class JobHub:
    """A hub that runs jobs, with a space `roads`; it may be killed, stopped and started again."""

    def __init__(
        self,
        directory: Path,
        *,
        dsn: str | None = None,
        files: Path | None = None,
        lease_seconds: float = SUBSCRIPTION_LEASE_SECONDS,
        master: str = "local[1]",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.files = (files or directory / "files").absolute()
        (self.files / "default").mkdir(parents=True, exist_ok=True)
        arguments = ["--data", str(directory), "--job-files", str(self.files)]
        arguments += ["--subscription-seconds", str(lease_seconds)]
        arguments += ["--job-master", master]
        arguments += ["--job-settings", json.dumps({**SPARK, **(settings or {})})]
        self.server = HubServer(
            directory, storage=dsn, catalog=dsn, arguments=arguments, environment=site(directory)
        )
        self.server.start()
        self.client = httpx.Client(base_url=f"{self.server.url}/hub", timeout=SECONDS_MAX)

    def make_space(self) -> None:
        """Once."""
        self.client.post("/spaces", json={"id": "roads"}).raise_for_status()

    def close(self) -> None:
        """It must end well."""
        self.client.close()
        if self.server.process.poll() is None:
            assert self.server.stop() == 0

    def submit(self, job: str, **spec: Any) -> str:
        """A job about the space; gives its id."""
        body = {"job": job, "spaceId": "roads", "spec": spec}
        answer = self.client.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def status(self, id: str) -> dict[str, Any]:
        """How it goes."""
        found: dict[str, Any] = self.client.get(f"/jobs/{id}").raise_for_status().json()["status"]
        return found

    def log(self, id: str, after: int = 0) -> list[str]:
        """The lines of its log."""
        answer = self.client.get(f"/jobs/{id}/log", params={"after": after}).raise_for_status()
        return [line["text"] for line in answer.json()["lines"]]

    def ended(self, id: str) -> dict[str, Any]:
        """How it went, once it has ended."""
        wait_for(lambda: self.status(id)["state"] in FINAL, f"{id} ends")
        return self.status(id)

    def in_phase(self, id: str, phase: str, attempt: int = 1) -> int:
        """The process of a job, once that is in a phase."""

        def is_there() -> bool:
            status = self.status(id)
            assert status["state"] not in FINAL, (status, self.log(id))
            return (status.get("phase"), status["attempt"]) == (phase, attempt)

        wait_for(is_there, f"{id} is at {phase}")
        return self.process(id)

    def said(self, id: str, text: str) -> None:
        """Wait until a job has said something."""
        wait_for(lambda: text in self.log(id), f"{id} says {text}")

    def process(self, id: str) -> int:
        """The process that a job says it has, the last one."""
        told = [text.split()[1] for text in self.log(id) if text.startswith("process ")]
        return int(told[-1])

    def go_on(self, *names: str) -> None:
        """Let a job go on that waits for a file."""
        for name in names:
            (self.files / "default" / name).touch()

    def ids(self) -> set[str]:
        """The features of the space."""
        answer = self.client.get("/spaces/roads/iterate", params={"limit": 10_000})
        if answer.status_code == 404:
            return set()
        return {feature["id"] for feature in answer.raise_for_status().json()["features"]}

    def writes(self) -> list[int]:
        """How many features each transaction has made that made some."""
        found = self.client.get("/spaces/roads/changesets").raise_for_status().json()["versions"]
        counts = [len(each["inserted"]["features"]) for each in found.values()]
        return [count for count in counts if count]

"""Jobs in their own processes, submitted to hubs that are real processes."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from naksha.model import limits
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.jobs.sample import CANCELLED, COUNT, LOAD, NOTE, ONCE, SLEEP
from tests.hub.jobs.support import (
    LEASE_SECONDS,
    SECONDS_MAX,
    JobHub,
    processes_of,
    wait_for,
    wait_until_gone,
)

JAVA = "org.apache.spark"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobHub]:
    """A hub for tests that do not harm it."""
    hub = JobHub(tmp_path_factory.mktemp("hub"))
    hub.make_space()
    yield hub
    hub.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[JobHub]:
    """A hub that may be killed."""
    hub = JobHub(tmp_path / "hub", lease_seconds=LEASE_SECONDS)
    hub.make_space()
    yield hub
    hub.close()


def lines(path: Path, count: int, prefix: str = "n") -> Path:
    """A file of features, the second one of which is none."""
    features = [
        {
            "type": "Feature",
            "id": f"{prefix}{n}",
            "geometry": {"type": "Point", "coordinates": [n / 1_000, 1]},
            "properties": {"n": n},
        }
        for n in range(count)
    ]
    texts = [json.dumps(feature) for feature in features]
    texts.insert(1, '{"type": "Feature", "geometry": {"type": "Point"}}')
    path.write_text("\n".join(texts))
    return path


# ---- How it goes ---------------------------------------------------------------------------------


def test_a_job_runs_in_its_own_process_and_reports_progress(shared: JobHub) -> None:
    count = len(shared.ids())
    id = shared.submit(COUNT, until="go-1", steps=7, output="counts.txt")
    wait_for(lambda: shared.status(id).get("done") == 7, "it tells how far it is")
    process = shared.process(id)
    assert process != shared.server.process.pid
    assert process in processes_of(process)
    status = shared.status(id)
    assert (status["state"], status["phase"], status["total"]) == ("running", "counting", 8)
    assert "endedAt" not in status
    said = shared.log(id)
    assert said[0].startswith("submitted by ")
    assert said[1:] == [
        f"started by the instance {status['instance']}",
        f"process {process}",
        "counting",
    ]
    shared.go_on("go-1")
    status = shared.ended(id)
    assert (status["state"], status["report"]["features"]) == ("done", count)
    assert (status["report"]["pid"], status["done"], status["attempt"]) == (process, 8, 1)
    assert status["startedAt"] <= status["endedAt"]
    assert (shared.files / "default" / "counts.txt").read_text() == str(count)
    assert shared.log(id, after=len(said)) == ["done"]
    assert processes_of(process) == {}
    shared.client.delete(f"/jobs/{id}").raise_for_status()
    assert shared.client.get(f"/jobs/{id}").status_code == 404


@pytest.mark.timeout(SECONDS_MAX * 2)
def test_files_are_loaded_by_spark(shared: JobHub) -> None:
    lines(shared.files / "default" / "roads.geojsonl", 50)
    id = shared.submit("load", files=["roads.geojsonl"], message="from a file")
    status = shared.ended(id)
    assert status["state"] == "done", (status, shared.server.log())
    report = status["report"]
    assert (report["records"], report["created"], report["rejected"]) == (51, 50, 1)
    assert {f"n{n}" for n in range(50)} <= shared.ids()
    (rejected,) = Path(report["rejects"]).read_text().splitlines()
    assert json.loads(rejected)["line"] == 2
    said = shared.log(id)
    for words in ("starting Spark", "read and check", "write", "done"):
        assert words in said
    assert any("1 records were rejected" in text for text in said)


def test_a_long_report_is_kept_as_far_as_there_is_room(shared: JobHub) -> None:
    count = limits.JOB_REPORT_BYTES_MAX // len(NOTE)
    status = shared.ended(shared.submit(COUNT, notes=count))
    report = status["report"]
    assert status["state"] == "done"
    assert report["job_id"]
    assert len(report["notes"]) + report["truncated"]["notes"] == count
    assert 0 < report["truncated"]["notes"] < count // 10


def test_an_unexpected_failure_is_reported(shared: JobHub) -> None:
    """The output on stderr goes to the log of the server, not to the client."""
    id = shared.submit(COUNT, fails="crash")
    status = shared.ended(id)
    assert (status["state"], status["error"]["code"]) == ("failed", "naksha")
    assert "failed unexpectedly" in status["error"]["message"]
    assert status["error"]["message"] in shared.log(id)[-1]
    assert "secret" not in str(shared.log(id))
    for words in ("a secret that only the operator reads", "an unforeseen failure"):
        assert words in shared.server.log()


def test_naksha_errors_are_reported_unchanged(shared: JobHub) -> None:
    body = {"job": COUNT, "storageId": "default", "collection": "nowhere"}
    id = shared.client.post("/jobs", json=body).raise_for_status().json()["id"]
    status = shared.ended(id)
    assert status["state"] == "failed"
    assert status["error"]["code"] == "collection_not_found"
    assert "nowhere" in status["error"]["message"]


# ---- How it ends before it is done ---------------------------------------------------------------


def test_a_job_whose_process_is_killed_has_failed(shared: JobHub) -> None:
    id = shared.submit(COUNT, until="never", has_child=True)
    wait_for(lambda: shared.status(id).get("done") == 3, "it waits")
    process = shared.process(id)
    assert len(processes_of(process)) == 2
    os.kill(process, signal.SIGKILL)
    status = shared.ended(id)
    assert status["state"] == "failed"
    assert "SIGKILL" in status["error"]["message"]
    wait_until_gone(process)


def test_a_cancelled_job_ends_with_all_that_it_has_started(shared: JobHub) -> None:
    before, writes = shared.ids(), shared.writes()
    id = shared.submit(LOAD, source="never", steps=4, has_child=True)
    process = shared.in_phase(id, "staged")
    answer = shared.client.post(f"/jobs/{id}/cancel").raise_for_status().json()
    assert (answer["status"]["state"], answer["status"]["cancelledBy"]) == ("running", "anonymous")
    assert shared.ended(id)["state"] == "cancelled"
    assert shared.log(id)[-1] == "cancelled: The job was cancelled"
    wait_until_gone(process)
    assert (shared.ids(), shared.writes()) == (before, writes)


def test_a_written_job_cannot_be_cancelled(shared: JobHub) -> None:
    """The outcome is reported correctly, whatever was requested."""
    id = shared.submit(LOAD, source="go-1", until="go-2", steps=4, is_deaf=True)
    process = shared.in_phase(id, "written")
    shared.client.post(f"/jobs/{id}/cancel").raise_for_status()
    wait_for((shared.files / "default" / f"go-2.{CANCELLED}").exists, "the job is asked to cancel")
    shared.go_on("go-2")
    status = shared.ended(id)
    assert (status["state"], status["report"]["features"]) == ("done", 4)
    assert processes_of(process) == {}


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX * 2)
def test_a_cancel_ends_java_and_its_workers(shared: JobHub) -> None:
    id = shared.submit(SLEEP)
    process = shared.in_phase(id, "sleeping")

    def is_busy() -> bool:
        commands = " ".join(processes_of(process).values())
        return JAVA in commands and "pyspark.daemon" in commands

    wait_for(is_busy, "Spark has started a worker")
    shared.client.post(f"/jobs/{id}/cancel").raise_for_status()
    assert shared.ended(id)["state"] == "cancelled"
    assert "did not end" not in shared.log(id)[-1]
    wait_until_gone(process)


# ---- When its hub dies, sleeps or is stopped -----------------------------------------------------


@pytest.mark.timeout(SECONDS_MAX * 2)
def test_a_job_is_done_once_however_often_its_hub_is_killed(own: JobHub) -> None:
    """First before it has written, then after that."""
    id = own.submit(LOAD, source="go-1", until="go-2", steps=4, has_child=True)
    for attempt, phase in ((1, "staged"), (2, "written")):
        process = own.in_phase(id, phase, attempt)
        own.server.kill()
        wait_until_gone(process)
        own.go_on(f"go-{attempt}")
        own.server.start()
    status = own.ended(id)
    assert (status["state"], status["attempt"]) == ("done", 2), (status, own.log(id))
    assert status["report"]["repeated"]
    assert own.ids() == {"m0", "m1", "m2", "m3"}
    assert own.writes() == [4]
    assert sum("is gone; the job starts again" in text for text in own.log(id)) == 1


@pytest.mark.long
def test_a_hub_that_is_stopped_gives_its_jobs_back(own: JobHub) -> None:
    """While it lives it has them for as long as they take."""
    id = own.submit(LOAD, source="go-1", steps=4, has_child=True)
    process = own.in_phase(id, "staged")
    time.sleep(LEASE_SECONDS + 1)
    assert own.process(id) == process
    assert process in processes_of(process)
    assert own.server.stop() == 0
    assert processes_of(process) == {}
    own.go_on("go-1")
    own.server.start()
    status = own.ended(id)
    assert (status["state"], status["attempt"]) == ("done", 1)
    assert "the instance was stopped" in own.log(id)
    assert own.writes() == [4]


# ---- Several hubs --------------------------------------------------------------------------------


def a_hub(directory: Path, name: str, dsn: str) -> JobHub:
    """One of several, which share the files of jobs."""
    files = directory / "files"
    return JobHub(directory / name, dsn=dsn, files=files, lease_seconds=LEASE_SECONDS)


@pytest.fixture
def pair(tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[list[JobHub]]:
    """Two hubs of one catalog."""
    with database_factory.fresh() as dsn:
        hubs = [a_hub(tmp_path, name, dsn) for name in "ab"]
        hubs[0].make_space()
        yield hubs
        for hub in hubs:
            hub.close()


def split(hubs: list[JobHub], id: str) -> tuple[JobHub, JobHub]:
    """The hub that has a job, and the other one."""
    process = hubs[0].process(id)
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    (holder,) = [hub for hub in hubs if hub.server.process.pid == parent]
    (other,) = [hub for hub in hubs if hub is not holder]
    return holder, other


@pytest.mark.timeout(SECONDS_MAX * 2)
def test_a_paused_hub_is_fenced_after_a_takeover(pair: list[JobHub]) -> None:
    id = pair[0].submit(LOAD, source="go-1", steps=4)
    process = pair[0].in_phase(id, "staged")
    holder, other = split(pair, id)
    os.kill(holder.server.process.pid, signal.SIGSTOP)
    try:
        other.in_phase(id, "staged", attempt=2)
        assert processes_of(process) == {}
        other.go_on("go-1")
        status, said = other.ended(id), other.log(id)
    finally:
        os.kill(holder.server.process.pid, signal.SIGCONT)
    assert (status["state"], status["report"]["features"]) == ("done", 4)
    lost = re.compile(rf"Job default/{id} stopped on this instance: the lease expired")
    wait_for(lambda: bool(lost.search(holder.server.log())), "it notices")
    for hub in pair:
        assert (hub.status(id), hub.log(id)) == (status, said)
        assert hub.writes() == [4]


# ---- For longer ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_job_that_does_not_listen_is_ended(shared: JobHub) -> None:
    before = shared.writes()
    id = shared.submit(LOAD, source="never", steps=4, is_deaf=True, has_child=True)
    process = shared.in_phase(id, "staged")
    shared.client.post(f"/jobs/{id}/cancel").raise_for_status()
    assert shared.ended(id)["state"] == "cancelled"
    assert "did not end" in shared.log(id)[-1]
    assert processes_of(process) == {}
    assert shared.writes() == before


@pytest.mark.long
def test_a_job_that_must_not_be_repeated_is_lost_with_its_hub(own: JobHub) -> None:
    id = own.submit(ONCE, until="never")
    wait_for(lambda: own.status(id).get("done") == 3, "it waits")
    own.server.kill()
    own.server.start()
    status = own.ended(id)
    assert (status["state"], status["attempt"], status["error"]["code"]) == ("lost", 1, "lost")


@pytest.mark.long
def test_a_job_does_not_outlive_the_time_that_its_hub_has_it(own: JobHub) -> None:
    """A paused hub cannot know whether another instance has restarted the job."""
    id = own.submit(LOAD, source="go-1", steps=4, has_child=True)
    process = own.in_phase(id, "staged")
    os.kill(own.server.process.pid, signal.SIGSTOP)
    try:
        wait_until_gone(process)
        own.go_on("go-1")
    finally:
        os.kill(own.server.process.pid, signal.SIGCONT)
    status = own.ended(id)
    assert (status["state"], status["attempt"]) == ("done", 2)
    assert own.writes() == [4]


@pytest.mark.long
@pytest.mark.parametrize("storage", ["file", "psql"])
def test_a_load_that_is_cancelled_at_any_time_is_whole_or_nothing(
    storage: str, tmp_path: Path, database_factory: DatabaseFactory
) -> None:
    count, chance = 5_000, random.Random(storage)
    ended, written = [], Counter[int]()
    with database_factory.fresh() as dsn:
        hub = JobHub(tmp_path / "hub", dsn=dsn if storage == "psql" else None)
        hub.make_space()
        lines(hub.files / "default" / "roads.geojsonl", count)
        for number in range(8):
            mapping = {"constants": {"number": number}}
            id = hub.submit("load", files=["roads.geojsonl"], mapping=mapping)
            phase = chance.choice(["starting Spark", "read and check", "write"])
            hub.said(id, phase)
            time.sleep(chance.uniform(0, 0.2 if phase == "write" else 2))
            process = int(re.findall(r"runs as process (\d+)", hub.server.log())[-1])
            hub.client.post(f"/jobs/{id}/cancel").raise_for_status()
            state = hub.ended(id)["state"]
            ended.append((phase, state))
            assert "did not end" not in hub.log(id)[-1], ended
            wait_until_gone(process)
            if state == "done":
                written = Counter({number: count})
            assert numbers(hub) == written, ended
        hub.close()
    assert "cancelled" in {state for _, state in ended}


def numbers(hub: JobHub) -> Counter[int]:
    """How many features have which number."""
    answer = hub.client.get("/spaces/roads/iterate", params={"limit": 10_000})
    features = answer.raise_for_status().json()["features"]
    return Counter(feature["properties"]["number"] for feature in features)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_jobs_are_done_once_whatever_happens_to_their_hubs(
    tmp_path: Path, database_factory: DatabaseFactory
) -> None:
    """Three hubs, of which one after the other is killed, paused or stopped, with a real load."""
    chance = random.Random(8)
    with database_factory.fresh() as dsn:
        hubs = [a_hub(tmp_path, name, dsn) for name in "abc"]
        hubs[0].make_space()
        names = [f"{n}.geojsonl" for n in range(6)]
        for n, name in enumerate(names):
            lines(hubs[0].files / "default" / name, 500, f"j{n}-")
        ids = [hubs[0].submit("load", files=[name]) for name in names]
        for _ in range(12):
            hub = chance.choice(hubs)
            _disturb(hub, chance)
            time.sleep(chance.uniform(0, 4))
        ended = [hubs[0].ended(id) for id in ids]
        made = [status["report"]["created"] for status in ended if status["state"] == "done"]
        lost = [status for status in ended if status["state"] == "lost"]
        assert len(made) + len(lost) == len(ids), ended
        assert all(count == 500 for count in made)
        writes = hubs[0].writes()
        assert set(writes) == {500}
        assert len(writes) == len(made)  # what is lost was not written
        for hub in hubs:
            hub.close()


def _disturb(hub: JobHub, chance: random.Random) -> None:
    kind = chance.choice(["kill", "pause", "stop"])
    if kind == "pause":
        os.kill(hub.server.process.pid, signal.SIGSTOP)
        time.sleep(chance.uniform(1, LEASE_SECONDS + 5))
        os.kill(hub.server.process.pid, signal.SIGCONT)
        return
    if kind == "kill":
        hub.server.kill()
    else:
        assert hub.server.stop() == 0
    time.sleep(chance.uniform(0, 2))
    hub.server.start()

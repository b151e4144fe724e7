"""`naksha job`: progress for people and for programs, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
from typer.testing import CliRunner

import naksha
from naksha.cli.main import app
from naksha.model import limits
from tests.cli.command import NAKSHA, environment
from tests.cli.command import naksha as command
from tests.hub.jobs.sample import CANCELLED, COUNT, LOAD, NOTE, WIPE
from tests.hub.jobs.support import SECONDS_MAX, processes_of, site, town, wait_for, wait_until_gone


class Town(NamedTuple):
    """A storage with a collection `roads` of ten features, and who knows the sample jobs."""

    location: str
    directory: Path
    env: dict[str, str]

    def arguments(self, job: str, *more: str) -> list[str]:
        """The arguments of the command."""
        return ["job", job, "--storage", self.location, "--collection", "roads", *more]

    def run(self, job: str, *more: str) -> subprocess.CompletedProcess[str]:
        """A job to its end."""
        return command(*self.arguments(job, *more), env=self.env, seconds_max=SECONDS_MAX)

    @contextmanager
    def running(self, job: str, *more: str) -> Iterator[subprocess.Popen[str]]:
        """One that runs."""
        running = subprocess.Popen(
            [NAKSHA, *self.arguments(job, *more)],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield running
        finally:
            running.kill()
            running.communicate()

    def features(self) -> int:
        """How many there are."""
        with naksha.connect(self.location, app_id="test") as db:
            return sum(1 for _ in db["roads"].query())


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(**site(tmp_path_factory.mktemp("site")))


@pytest.fixture
def roads(tmp_path: Path, env: dict[str, str]) -> Town:
    return Town(town(tmp_path), tmp_path, env)


def process_of(running: subprocess.Popen[str]) -> int:
    """The process of a job that tells it on stderr."""
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("process "):
            return int(line.split()[1])
    raise AssertionError("it did not begin")


# ---- What is shown -------------------------------------------------------------------------------


def test_in_a_pipe_phases_are_lines_and_the_report_comes_last(roads: Town) -> None:
    ended = roads.run(COUNT, "--steps", "4", "--output", str(roads.directory / "n.txt"))
    assert ended.returncode == 0, ended.stderr
    said = ended.stderr.splitlines()
    assert re.fullmatch(r"process \d+", said[0])
    assert said[1:] == ["counting"]
    assert ended.stdout.splitlines()[0] == "features: 10"
    assert 'by: ["naksha", null]' in ended.stdout
    assert (roads.directory / "n.txt").read_text() == "10"


def test_for_programs_every_event_is_a_line_of_json(roads: Town) -> None:
    ended = roads.run(COUNT, "--json", "--author", "ann")
    assert (ended.returncode, ended.stderr) == (0, "")
    events: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    phase = {"event": "phase", "name": "counting"}
    assert (events[0]["event"], events[1:3]) == ("said", [phase | {"total": n} for n in (None, 4)])
    assert events[-1]["event"] == "done"
    report = events[-1]["report"]
    assert (report["features"], report["by"]) == (10, ["naksha", "ann"])
    assert len(report["job_id"]) == 32


def test_at_a_terminal_there_is_a_bar_for_each_phase(roads: Town) -> None:
    ours, its = pty.openpty()
    arguments = roads.arguments(LOAD, "--source", str(roads.directory), "--steps", "3")
    with subprocess.Popen(
        [NAKSHA, *arguments],
        env={**roads.env, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
    ) as running:
        os.close(its)
        shown = b""
        while part := _read(ours):
            shown += part
        said, _ = running.communicate(timeout=SECONDS_MAX)
    os.close(ours)
    assert running.returncode == 0, shown
    last = shown.decode().rsplit("\x1b[2K", 3)
    for phase in ("staging", "staged", "written"):
        assert re.search(rf"✓\S* {phase} .*━+", shown.decode()), last
    assert "features: 3\n" in said
    assert roads.features() == 13


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


# ---- How it ends ---------------------------------------------------------------------------------


def test_ctrl_c_cancels_it(roads: Town) -> None:
    with roads.running(LOAD, "--source", str(roads.directory / "never"), "--has-child") as running:
        process = process_of(running)
        wait_for(lambda: len(processes_of(process)) == 2, "it has started another one")
        running.send_signal(signal.SIGINT)
        said, told = running.communicate(timeout=SECONDS_MAX)
    assert (running.returncode, said) == (130, "")
    assert told.endswith("Interrupted.\n")
    assert "Traceback" not in told
    wait_until_gone(process)
    assert roads.features() == 10


@pytest.mark.long
def test_sigterm_cancels_it_with_the_code_of_that(roads: Town) -> None:
    with roads.running(COUNT, "--until", str(roads.directory / "never"), "--json") as running:
        assert running.stdout is not None
        process = int(json.loads(running.stdout.readline())["text"].split()[1])
        running.terminate()
        said, told = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 10
    assert json.loads(said.splitlines()[-1])["code"] == "cancelled"
    assert json.loads(told)["error"]["code"] == "cancelled"
    assert processes_of(process) == {}


def test_a_completed_write_is_reported_despite_a_cancellation(roads: Town) -> None:
    gate = roads.directory / "gate"
    told = ["--source", str(roads.directory), "--until", str(gate), "--is-deaf"]
    with roads.running(LOAD, *told) as running:
        assert running.stderr is not None
        assert "written\n" in iter(running.stderr.readline, "")
        running.send_signal(signal.SIGINT)
        wait_for(gate.with_name(f"gate.{CANCELLED}").exists, "it was cancelled")
        gate.touch()
        said, _ = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 0
    assert "features: 3\n" in said
    assert roads.features() == 13


def test_a_job_that_is_cancelled_after_it_has_written_is_done(roads: Town) -> None:
    """Its own report is lost; the report is rebuilt from what the storage has recorded."""
    told = ["--source", str(roads.directory), "--until", str(roads.directory / "never"), "--json"]
    with roads.running(LOAD, *told) as running:
        assert running.stdout is not None
        phase = '{"event":"phase","name":"written","total":null}\n'
        assert phase in iter(running.stdout.readline, "")
        running.terminate()
        said, _ = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 0
    report = json.loads(said.splitlines()[-1])["report"]
    assert (report["created"], report["updated"], report["deleted"]) == (3, 0, 0)
    assert roads.features() == 13


def test_an_irreversible_step_runs_to_its_end(roads: Town) -> None:
    """The signal goes to the command or to its process."""
    gate = roads.directory / "gate"
    with roads.running(WIPE, "--until", str(gate)) as running:
        process = process_of(running)
        assert running.stderr is not None
        assert "counting\n" in iter(running.stderr.readline, "")
        running.terminate()
        os.kill(process, signal.SIGTERM)
        time.sleep(1)  # it would have ended by then
        gate.touch()
        said, _ = running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 0
    assert "features: 10\n" in said


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX * 2)
@pytest.mark.parametrize("is_written", [False, True])
def test_a_killed_job_leaves_nothing_staged_and_reports_the_outcome(
    roads: Town, is_written: bool
) -> None:
    source = roads.directory if is_written else roads.directory / "never"
    told = ["--source", str(source), "--until", str(roads.directory / "never"), "--is-deaf"]
    with roads.running(LOAD, *told, "--json") as running:
        assert running.stdout is not None
        phase = "written" if is_written else "staged"
        wanted = f'{{"event":"phase","name":"{phase}","total":null}}\n'
        assert wanted in iter(running.stdout.readline, "")
        assert len([*roads.directory.rglob("*.stage")]) == (0 if is_written else 1)
        running.terminate()
        said, _ = running.communicate(timeout=SECONDS_MAX)
    end = json.loads(said.splitlines()[-1])
    assert running.returncode == (0 if is_written else 10), end
    assert end["event"] == ("done" if is_written else "failed")
    assert roads.features() == (13 if is_written else 10)
    assert [*roads.directory.rglob("*.stage")] == []


@pytest.mark.long
def test_a_cancellation_ends_the_statements_of_the_storage(
    tmp_path: Path, env: dict[str, str], database: str
) -> None:
    """A write that waits for a lock, like any slow write, ends at once."""
    with naksha.connect(database, app_id="test") as db:
        db.create_collection("roads")
    roads = Town(database, tmp_path, env)
    told = ["--source", str(tmp_path), "--json"]
    with asyncio.Runner() as runner:
        other = runner.run(asyncpg.connect(database))
        runner.run(other.execute("BEGIN; LOCK naksha.naksha_kept IN EXCLUSIVE MODE"))
        with roads.running(LOAD, *told) as running:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            wait_for(lambda: runner.run(other.fetchval(waits)) > 0, "it waits for us")
            running.terminate()
            said, _ = running.communicate(timeout=SECONDS_MAX)
        runner.run(other.execute("ROLLBACK"))
        left = runner.run(other.fetchval("SELECT count(*) FROM naksha.naksha_staged"))
        runner.run(other.close())
    end = json.loads(said.splitlines()[-1])
    assert (running.returncode, end["code"]) == (10, "cancelled"), end
    assert "did not end" not in end["message"]
    assert (left, roads.features()) == (0, 0)


def test_a_job_with_too_many_messages_still_completes(roads: Town) -> None:
    count = limits.JOB_LINE_BYTES_MAX // len(NOTE)
    ended = roads.run(COUNT, "--json", "--notes", str(count))
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads(ended.stdout.splitlines()[-1])["report"]
    assert report["features"] == 10
    # As much as there is room for, and the rest is counted.
    assert len(report["notes"]) + report["truncated"]["notes"] == count
    assert 0 < report["truncated"]["notes"] < count // 10


def test_a_crash_is_reported_after_the_last_messages(roads: Town) -> None:
    ended = roads.run(COUNT, "--fails", "die")
    assert (ended.returncode, ended.stdout) == (1, "")
    said = ended.stderr.splitlines()
    assert "a secret that only the operator reads" in said
    assert said[-1] == "naksha: The process of the job ended with exit code 3 without a result"


def test_errors_are_json_for_programs(roads: Town) -> None:
    ended = roads.run(COUNT, "--collection", "nowhere", "--json")
    error = json.loads(ended.stderr)["error"]
    assert (ended.returncode, error["code"]) == (4, "collection_not_found")
    assert "nowhere" in error["message"]


def failed_by(ended: subprocess.CompletedProcess[str]) -> tuple[str, str | None]:
    """The code and the field by which a job has failed, for programs."""
    last = json.loads(ended.stdout.splitlines()[-1])
    return last["code"], last.get("field")


def test_a_reading_job_creates_no_storage(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "empty.naksha").touch()
    for name in ("typo.naksha", "empty.naksha"):
        before = sorted(tmp_path.iterdir())
        ended = Town(f"file:{tmp_path}/{name}", tmp_path, env).run(COUNT, "--json")
        assert (ended.returncode, failed_by(ended)) == (4, ("not_found", "storage"))
        assert str(tmp_path / name) in ended.stderr
        assert sorted(tmp_path.iterdir()) == before
    # Who writes may make it.
    new = Town(f"file:{tmp_path}/new.naksha", tmp_path, env)
    assert new.run(LOAD, "--source", str(tmp_path)).returncode == 0
    assert new.features() == 3


@pytest.mark.long
def test_a_reading_job_installs_no_schema(
    tmp_path: Path, env: dict[str, str], database: str
) -> None:
    with asyncio.Runner() as runner:
        other = runner.run(asyncpg.connect(database))
        ended = Town(database, tmp_path, env).run(COUNT, "--json", "--schema", "Nowhere")
        schemas = runner.run(other.fetch("SELECT nspname FROM pg_namespace"))
        runner.run(other.close())
    assert failed_by(ended) == ("not_found", "storage")
    assert "'Nowhere'" in ended.stderr
    assert not {"Nowhere", "nowhere", "naksha"} & {row[0] for row in schemas}


# ---- What is wrong, and what there is, is known before anything runs -----------------------------

ABOUT = ["--storage", "file:town.naksha", "--collection", "roads"]


@pytest.mark.parametrize(
    ("job", "told", "words"),
    [
        (
            "export",
            [*ABOUT, "--output", "x", "--storage", "oracle:" + "//here"],
            "the installed schemes are file",
        ),
        ("export", [*ABOUT, "--output", "x", "--spark", "cores"], "NAME=VALUE"),
        ("export", ABOUT, "--output"),
        ("load", [*ABOUT, "--files", "x", "--mode", "sometimes"], "sometimes"),
        ("nothing", ABOUT, "nothing"),
    ],
)
def test_an_error_is_a_sentence_with_a_remedy(job: str, told: list[str], words: str) -> None:
    ended = CliRunner().invoke(app, ["job", job, *told])
    assert ended.exit_code == 2, ended.output
    assert words in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_help_names_the_jobs_and_their_fields() -> None:
    told = CliRunner().invoke(app, ["job", "--help"])
    for name in ("load", "export", "diff", "partition", "archive"):
        assert name in told.stdout
    told = CliRunner().invoke(app, ["job", "load", "--help"])
    for flag in ("--storage", "--files", "--rejects-max", "--history", "--master", "--json"):
        assert flag in told.stdout


# ---- For longer ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_job_ends_with_a_command_that_is_killed(roads: Town) -> None:
    with roads.running(COUNT, "--until", str(roads.directory / "never"), "--has-child") as running:
        process = process_of(running)
        wait_for(lambda: len(processes_of(process)) == 2, "it has started another one")
        running.kill()
        wait_until_gone(process)


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX * 2)
def test_rejected_records_are_reported(tmp_path: Path, env: dict[str, str]) -> None:
    good = {"type": "Feature", "id": "a", "geometry": {"type": "Point", "coordinates": [8, 50]}}
    bad = {"type": "Feature", "id": "b", "geometry": {"type": "Point", "coordinates": ["x"]}}
    source = tmp_path / "roads.geojsonl"
    source.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    told = Town(f"file:{tmp_path}/town.naksha", tmp_path, env)
    ended = told.run("load", "--files", str(source))
    assert ended.returncode == 0, ended.stderr
    rejects = tmp_path / "roads.geojsonl.rejects.jsonl"
    assert f"1 records were rejected, with their reasons in {rejects}" in ended.stderr
    assert "rejected: 1\n" in ended.stdout
    (line,) = rejects.read_text().splitlines()
    assert (json.loads(line)["line"], json.loads(line)["id"]) == (2, "b")
    assert told.features() == 1

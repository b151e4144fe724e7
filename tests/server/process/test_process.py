"""The server as a process: start, output, and several processes as one."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from naksha.model import limits
from naksha.server.process.heartbeat import Heartbeat, WorkerWatch
from naksha.server.process.lock_file import lock_files
from naksha.server.process.main import greeting
from naksha.server.process.settings import ServerSettings
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.cli.command import NAKSHA, environment, naksha
from tests.docs.blocks import ROOT, examples
from tests.server.raw_connection import wait_until

GUIDE = ROOT / "docs" / "operations.md"


# ---- What keeps it from starting -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "--keys"),
        (["--keys", "secret:/nowhere"], 2, "/nowhere"),
        (["--host", "192.0.2.1", "--keys", "secret:x"], 69, "192.0.2.1"),
        (["--realm-storage", "postgresql://127.0.0.1:1/maps"], 69, "running"),
        (["--data", "/proc/naksha"], 2, "/proc/naksha"),
        (["--prot", "1"], 2, "--prot"),
    ],
)
def test_start_errors_are_explained(
    tmp_path: Path, flags: list[str], code: int, words: str
) -> None:
    ended = naksha("serve", "--port", "0", *flags, cwd=tmp_path)
    assert ended.returncode == code, ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken(hub_on_files: HubServer, tmp_path: Path) -> None:
    ended = naksha("serve", "--port", str(hub_on_files.port), cwd=tmp_path)
    assert ended.returncode == 69
    assert "--port" in ended.stderr
    assert "Check that the server is running" not in ended.stderr
    module = [sys.executable, "-m", "naksha.server", "--port", str(hub_on_files.port)]
    same = subprocess.run(module, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (same.returncode, same.stderr.splitlines()[0]) == (69, ended.stderr.splitlines()[0])


def test_files_are_for_one_server(tmp_path: Path) -> None:
    first = started(tmp_path, "--data", "here")
    try:
        url = url_of(first)
        ended = naksha("serve", "--data", "here", "--port", "0", cwd=tmp_path)
        assert ended.returncode == 69
        hub = f"The hub at {url.removesuffix('/hub')} (process {first.pid})"
        for words in (hub, str(tmp_path / "here"), "--data", "--realm-storage"):
            assert words in " ".join(ended.stderr.split())
        assert "Check that the server is running" not in ended.stderr
        assert httpx.get(f"{url}/health-status").is_success
    finally:
        first.kill()
        first.communicate()
    serve_once(tmp_path, "here", put="first")  # nothing is left of one that was killed


def test_shared_files_are_locked(tmp_path: Path) -> None:
    def locked(**given: Any) -> list[str]:
        paths = lock_files(ServerSettings(data=str(tmp_path / "data"), **given))
        return [str(path.relative_to(tmp_path)) for path in paths]

    assert locked() == ["data/hub.catalog.lock", "data/.lock"]
    assert locked(realm_storage="postgresql:///maps") == []
    assert locked(catalog="postgresql:///maps") == ["data/.lock"]
    catalog, storage = f"file:{tmp_path}/a.catalog", f"file:{tmp_path}/a-{{realm}}/b.naksha"
    assert locked(catalog=catalog, realm_storage=storage) == ["a.catalog.lock", "a-.lock"]


# ---- What it says --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub_on_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with HubServer(tmp_path_factory.mktemp("hub"), forked=False) as server:
        yield server


def test_the_printed_example_works(hub_on_files: HubServer) -> None:
    lines = re.findall(r"^  (curl .*)$", hub_on_files.log(), re.MULTILINE)
    assert len(lines) == 4
    answer = ""
    for line in lines:
        tried = subprocess.run(
            ["bash", "-c", f"{line} --fail-with-body --silent"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert tried.returncode == 0, f"{line}\n{tried.stdout}"
        answer = tried.stdout
    assert '"name":"Frankfurt"' in answer


def test_the_banner_explains_tokens() -> None:
    keys = ("jwks:there", "secret:here")
    said = greeting(ServerSettings(keys=keys), 8080)
    assert "  TOKEN=$(naksha token my-app --key secret:here)\n" in said
    assert "TOKEN" not in greeting(ServerSettings(keys=keys, anonymous=True), 8080)
    assert "TOKEN=" not in greeting(ServerSettings(keys=keys[:1]), 8080)


def test_by_default_all_is_in_one_directory_that_can_be_moved(tmp_path: Path) -> None:
    serve_once(tmp_path, "a", put="first")
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    assert {path.name for path in (tmp_path / "a").iterdir()} >= {"hub.catalog", "default.naksha"}
    (tmp_path / "a").rename(tmp_path / "b")
    serve_once(tmp_path, "b", get="first")
    assert not (tmp_path / "a").exists()


def started(directory: Path, *flags: str) -> subprocess.Popen[str]:
    """A server that was started in a directory."""
    command = [NAKSHA, "serve", *flags, "--port", "0", "--log-format", "text"]
    return subprocess.Popen(
        command, cwd=directory, env=environment(), stdout=subprocess.PIPE, text=True
    )


def url_of(server: subprocess.Popen[str]) -> str:
    """The URL of the server, once it serves."""
    assert server.stdout is not None
    said = next(line for line in server.stdout if "serves" in line)
    return said.split()[-1]


def serve_once(directory: Path, data: str, *, put: str = "", get: str = "") -> None:
    """A server on a data directory, for one feature."""
    with started(directory, "--data", data) as server:
        try:
            url = url_of(server)
            if put:
                httpx.post(f"{url}/spaces", json={"id": put}).raise_for_status()
                feature = '{"type":"Feature","id":"f","geometry":null,"properties":{}}'
                httpx.put(f"{url}/spaces/{put}/features", content=feature).raise_for_status()
            if get:
                assert httpx.get(f"{url}/spaces/{get}/features/f").json()["id"] == "f"
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0


def test_the_guide_explains_tokens_and_realms(tmp_path: Path) -> None:
    _, commands, _ = examples(GUIDE, "sh")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands.code],
        cwd=tmp_path,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^[\w-]+\.[\w-]+\.[\w-]+$", done.stdout, re.MULTILINE)) == 3
    listed = naksha("realm", "list", cwd=tmp_path)
    assert listed.stdout == "customers\tACTIVE\ndefault\tACTIVE\n"


# ---- Several workers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(
    database_factory: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubServer]:
    directory = tmp_path_factory.mktemp("hub")
    arguments = ["--workers", "2", "--log-format", "json", "--worker-seconds", "6"]
    with (
        database_factory.fresh() as dsn,
        HubServer(directory, storage=dsn, catalog=dsn, arguments=arguments) as server,
    ):
        yield server


def worker_ids(server: HubServer) -> set[int]:
    """The processes below the server's own that serve."""
    id = server.process.pid
    children = Path(f"/proc/{id}/task/{id}/children").read_text().split()
    return {int(child) for child in children if is_worker(child)}


def is_worker(id: str) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{id}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False


def served_by(server: HubServer) -> set[int]:
    """The ids of the processes that have answered so far."""
    return {int(pid) for pid in re.findall(r'"pid":(\d+)[^\n]*"route"', server.log())}


def ask(server: HubServer, path: str) -> httpx.Response:
    """A request on a connection of its own, so that any worker may answer it."""
    return httpx.get(f"{server.url}{path}", timeout=30)


def test_all_workers_see_a_change_soon(workers: HubServer) -> None:
    """After the interval at which they look for changes, which is a second."""
    assert limits.CONFIG_SECONDS_MAX <= 1

    def has_every_worker_answered() -> bool:
        ask(workers, "/hub/spaces/unknown")
        return len(served_by(workers)) == 2

    wait_until(has_every_worker_answered, 30)
    for n in range(3):
        httpx.post(f"{workers.url}/hub/spaces", json={"id": f"s{n}"}).raise_for_status()

        def do_all_see_it(path: str = f"/hub/spaces/s{n}") -> bool:
            return all(ask(workers, path).is_success for _ in range(10))

        wait_until(do_all_see_it, 60)


def test_metrics_are_those_of_all_workers(workers: HubServer) -> None:
    def count() -> float:
        text = ask(workers, "/metrics").text
        route = 'route="/hub/spaces",status="200"'
        found = re.search(rf'naksha_requests_total{{method="GET",{route}}} (\S+)', text)
        return float(found[1]) if found is not None else 0.0

    before = count()
    for _ in range(20):
        ask(workers, "/hub/spaces")
    assert count() == before + 20


def test_a_worker_that_dies_is_started_again(workers: HubServer) -> None:
    wait_until(lambda: len(worker_ids(workers)) == 2)
    old = worker_ids(workers)
    os.kill(min(old), signal.SIGKILL)
    wait_until_replaced(workers, old)
    assert "starting another one" in workers.log()


def test_a_worker_that_hangs_is_replaced(workers: HubServer) -> None:
    wait_until(lambda: len(worker_ids(workers)) == 2)
    old = worker_ids(workers)
    os.kill(max(old), signal.SIGSTOP)  # it is there, and answers nobody
    try:
        wait_until_replaced(workers, old)
    finally:
        with suppress(ProcessLookupError):  # do not leave it stopped
            os.kill(max(old), signal.SIGCONT)
    assert max(old) not in worker_ids(workers)
    assert min(old) in worker_ids(workers)
    assert f"Worker {max(old)} has sent no heartbeat" in workers.log()
    assert f"Worker {min(old)} has sent no heartbeat" not in workers.log()


def wait_until_replaced(server: HubServer, old: set[int]) -> None:
    """Until another worker serves in the place of one of these."""

    def does_another_serve() -> bool:
        ask(server, "/hub/spaces")
        return len((served_by(server) & worker_ids(server)) - old) == 1

    wait_until(lambda: bool(worker_ids(server) - old), 60)
    wait_until(does_another_serve, 60)


def test_time_in_which_the_supervisor_was_stopped_too_does_not_count() -> None:
    watch = WorkerWatch(Heartbeat(multiprocessing.get_context("spawn")), 8.0)
    watch.heartbeat.beat()
    assert not watch.look(1.0)
    assert not watch.look(3600.0)
    assert not any(watch.look(1.0) for _ in range(6))
    assert watch.look(1.0)


def test_all_workers_end_with_the_server(database_factory: DatabaseFactory, tmp_path: Path) -> None:
    arguments = ["--workers", "3"]
    with (
        database_factory.fresh() as dsn,
        HubServer(tmp_path, storage=dsn, catalog=dsn, arguments=arguments) as server,
    ):
        wait_until(lambda: len(worker_ids(server)) == 3)
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def test_workers_do_not_outlive_a_server_that_is_killed(
    database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    arguments = ["--workers", "2"]
    with database_factory.fresh() as dsn:
        server = HubServer(tmp_path, storage=dsn, catalog=dsn, arguments=arguments)
        server.start()
        wait_until(lambda: len(worker_ids(server)) == 2)
        ids = [str(id) for id in worker_ids(server)]
        server.kill()
        wait_until(lambda: not any(is_worker(id) for id in ids), 30)


def test_workers_that_cannot_start_end_the_server(tmp_path: Path) -> None:
    flags = ["--workers", "2", "--realm-storage", "postgresql://127.0.0.1:1/maps", "--port", "0"]
    ended = naksha("serve", *flags, cwd=tmp_path)
    assert ended.returncode == 69
    assert "first worker did not start" in ended.stderr

"""The throw-away Redis and MariaDB: they start anywhere, obey, and never outlive their owner."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from naksha.testing.servers import _watchdog
from naksha.testing.servers._private_server import (
    PrivateServer,
    ServerError,
    ServerNotFoundError,
    find_program,
)
from naksha.testing.servers.mariadb_server import MariadbServer
from naksha.testing.servers.redis_server import RedisServer
from tests.testing.test_postgres import is_alive

KINDS: list[type[RedisServer] | type[MariadbServer]] = [RedisServer, MariadbServer]
MARKS = {RedisServer: pytest.mark.redis, MariadbServer: pytest.mark.mariadb}
EACH = [pytest.param(kind, marks=MARKS[kind], id=kind.kind) for kind in KINDS]

OWNER = """
import sys
from naksha.testing.servers.{module} import {name}

server = {name}()
server.start()
print(server.directory, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=EACH)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | MariadbServer]:
    kind: type[RedisServer] | type[MariadbServer] = request.param
    with kind(tcp=True) as server:
        yield server


def note(server: PrivateServer, text: str) -> None:
    """Have the server keep a text."""
    if isinstance(server, RedisServer):
        server.execute("SET", "note", text)
        return
    assert isinstance(server, MariadbServer)
    server.execute(
        f"CREATE OR REPLACE TABLE mysql.note (t TEXT) ENGINE = InnoDB AS SELECT '{text}' AS t"
    )


def noted(server: PrivateServer) -> str:
    if isinstance(server, RedisServer):
        return server.execute("GET", "note")
    assert isinstance(server, MariadbServer)
    return server.execute("SELECT t FROM mysql.note")


def test_writes_survive_a_crash_and_a_restart(
    server: RedisServer | MariadbServer,
) -> None:
    port = server.port
    note(server, "before the crash")
    server.kill()
    assert not server.running
    server.start()
    assert noted(server) == "before the crash"
    note(server, "before the restart")
    server.restart()
    assert noted(server) == "before the restart"
    assert server.port == port


def test_a_paused_server_answers_when_it_goes_on(server: RedisServer | MariadbServer) -> None:
    note(server, "here")
    server.pause()
    assert server.running
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(noted, server)
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.3)
        server.resume()
        assert answer.result(timeout=30) == "here"


def test_a_refused_command_is_an_error(server: RedisServer | MariadbServer) -> None:
    with pytest.raises(ServerError):
        server.execute("NONSENSE")


@pytest.mark.parametrize("kind", EACH)
def test_a_server_without_tcp_has_no_port(kind: type[RedisServer] | type[MariadbServer]) -> None:
    server = kind()
    with pytest.raises(ServerError, match="tcp=True"):
        if isinstance(server, RedisServer):
            server.location(tcp=True)
        else:
            server.location("test", tcp=True)


@pytest.mark.parametrize("kind", EACH)
def test_a_server_that_fails_to_start_reports_why(
    kind: type[RedisServer] | type[MariadbServer],
) -> None:
    server = kind({"no-such-setting": "1"})
    with pytest.raises(ServerError, match="no-such-setting"):
        server.start()
    assert not server.directory.exists()


@pytest.mark.parametrize(
    ("kind", "number", "paused"),
    [
        pytest.param(RedisServer, signal.SIGKILL, False, marks=pytest.mark.redis),
        pytest.param(RedisServer, signal.SIGINT, False, marks=pytest.mark.redis),
        pytest.param(RedisServer, signal.SIGKILL, True, marks=pytest.mark.redis),
        pytest.param(MariadbServer, signal.SIGKILL, True, marks=pytest.mark.mariadb),
    ],
)
def test_nothing_is_left_when_the_owner_dies(
    kind: type[RedisServer] | type[MariadbServer], number: signal.Signals, paused: bool
) -> None:
    module = kind.__module__.rpartition(".")[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(module=module, name=kind.__name__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        pid = _watchdog.server_of(directory / "data")
        assert pid is not None
        if paused:
            subprocess.run(["kill", "-STOP", str(pid)], check=True)
        owner.send_signal(number)
        owner.wait()
    assert _watchdog.wait_until(lambda: not directory.exists(), 20)
    # It was killed before; a process with much memory takes a moment to be gone.
    assert _watchdog.wait_until(lambda: not is_alive(pid), 20)


def test_an_absent_program_is_named() -> None:
    with pytest.raises(ServerNotFoundError, match="apt-get install some-package"):
        find_program("no-such-program", "some-package")

"""Failures of the command: one sentence with a remedy and an exit code, never a traceback."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from naksha.testing.servers.postgres import PostgresCluster
from tests.cli.command import NAKSHA, environment, naksha

SECRET = "s3cret"


def failure(location: str | None) -> tuple[int, str]:
    """The exit code and the sentence; nothing else is printed, and no secret ever."""
    arguments = ["demo"] if location is None else ["demo", "--storage", location]
    result = naksha(*arguments)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert 1 <= len(lines) <= 2, result.stderr
    assert lines[0].startswith("naksha: ")
    assert SECRET not in result.stderr
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (
            "oracle:" + "//here/maps",
            "Unknown storage scheme 'oracle'; the installed schemes are file, postgres",
        ),
        (f"ann:{SECRET}@here/maps", "has no scheme"),
        ("", "has no scheme"),
        (f"postgresql://ann:{SECRET}@here:port/maps", "is not a valid location"),
        (f"postgresql://ann:{SECRET}/x@here/maps", "is not a valid location"),
        (f"postgresql://ann:{SECRET}@[here/maps", "is not a valid location"),
    ],
)
def test_a_wrong_location_is_a_wrong_argument(location: str, words: str) -> None:
    code, said = failure(location)
    assert code == 2
    assert words in said


def test_a_server_that_is_down_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        code, said = failure(f"postgresql://ann:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/maps")
    assert code == 69
    assert "cannot be reached" in said
    assert "Check that the server is running" in said


def test_an_unknown_host_is_unavailable() -> None:
    code, said = failure("postgresql://nowhere.invalid/maps")
    assert code == 69
    assert "cannot be reached" in said


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("/postgres?", "/absent?", 'database "absent" does not exist'),
        ("//postgres@", "//stranger@", 'role "stranger" does not exist'),
    ],
)
def test_a_server_that_refuses_is_unavailable(
    postgres_cluster: PostgresCluster, old: str, new: str, words: str
) -> None:
    dsn = postgres_cluster.dsn()
    assert old in dsn
    code, said = failure(dsn.replace(old, new))
    assert code == 69
    assert words in said


@pytest.fixture
def without_postgis(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """A database without PostGIS, and a user who may not create it."""
    postgres_cluster.execute("CREATE ROLE modest LOGIN")
    postgres_cluster.execute("CREATE DATABASE plain OWNER modest TEMPLATE template0")
    yield postgres_cluster.dsn("plain").replace("//postgres@", "//modest@")
    postgres_cluster.drop_database("plain")
    postgres_cluster.execute("DROP ROLE modest")


def test_a_database_without_postgis_reports_how_to_install_it(without_postgis: str) -> None:
    code, said = failure(without_postgis)
    assert code == 3
    assert "PostGIS is not installed in the database" in said
    assert "CREATE EXTENSION postgis" in said


def test_errors_are_json_on_request() -> None:
    result = naksha("demo", "--json", "--storage", "oracle:" + "//here")
    assert result.returncode == 2
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "invalid_argument"
    assert "oracle" in error["message"]


def test_ctrl_c_ends_it_with_its_own_code() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        location = f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/maps"
        running = subprocess.Popen(
            [NAKSHA, "demo", "--storage", location],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        connection.close()
    assert (running.returncode, said) == (130, "Interrupted.\n")

"""The throw-away cluster: it starts anywhere, obeys, and never outlives its owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from naksha.testing.fixtures import TEMPLATE, DatabaseFactory
from naksha.testing.servers import _watchdog
from naksha.testing.servers._postgres_install import PostgresNotFoundError, find_install
from naksha.testing.servers.postgres import PostgresCluster, PostgresClusterError

OWNER = """
import sys
from naksha.testing.servers.postgres import PostgresCluster

cluster = PostgresCluster({"fsync": False})
cluster.start()
print(cluster.directory, flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    """A server that these tests may stop and restart."""
    with PostgresCluster({"fsync": False, "work_mem": "5MB"}, tcp=True) as cluster:
        yield cluster


@pytest.mark.postgres
async def test_it_takes_connections_on_socket_and_port(cluster: PostgresCluster) -> None:
    for dsn in (cluster.dsn(), cluster.dsn(tcp=True)):
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SHOW work_mem") == "5MB"
        await connection.close()


@pytest.mark.postgres
def test_settings_count_from_the_next_start_and_the_dsn_stays(cluster: PostgresCluster) -> None:
    before = cluster.dsn(tcp=True)
    cluster.settings["cluster_name"] = "it's mine"
    cluster.restart()
    assert cluster.execute("SHOW cluster_name; SHOW fsync") == "it's mine\noff"
    assert cluster.dsn(tcp=True) == before


@pytest.mark.postgres
def test_committed_data_survive_a_kill(cluster: PostgresCluster) -> None:
    cluster.execute("CREATE TABLE kept (); INSERT INTO kept DEFAULT VALUES")
    cluster.kill()
    assert not cluster.running
    cluster.start()
    assert cluster.execute("SELECT count(*) FROM kept") == "1"
    assert "automatic recovery" in cluster.log()


@pytest.mark.postgres
def test_administration_goes_on_after_a_broken_connection(cluster: PostgresCluster) -> None:
    cluster.create_database("before")
    cluster.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'psql' AND pid <> pg_backend_pid()"
    )
    with pytest.raises(PostgresClusterError, match="terminating connection"):
        cluster.create_database("lost")
    assert cluster.create_database("after") == cluster.dsn("after")


@pytest.mark.postgres
def test_errors_contain_the_output_of_the_server(cluster: PostgresCluster) -> None:
    with pytest.raises(PostgresClusterError, match='relation "absent" does not exist'):
        cluster.execute("SELECT * FROM absent")
    with pytest.raises(PostgresClusterError, match='template database "absent" does not exist'):
        cluster.create_database("copy", template="absent")
    cluster.drop_database("copy")
    cluster.create_database("od\"d na'me")
    assert cluster.execute("SELECT current_database()", "od\"d na'me") == "od\"d na'me"


@pytest.mark.postgres
def test_a_wrong_setting_fails_with_the_log_and_leaves_nothing() -> None:
    cluster = PostgresCluster({"work_mem": "much"})
    with pytest.raises(PostgresClusterError, match='invalid value for parameter "work_mem"'):
        cluster.start()
    assert not cluster.directory.exists()
    assert not cluster.running


@pytest.mark.postgres
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_owner_dies(number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        server = _watchdog.server_of(directory / "data")
        assert server is not None
        owner.send_signal(number)
        owner.wait()
    assert _watchdog.wait_until(lambda: not directory.exists(), 20)
    assert not is_alive(server)


def test_a_stale_pid_file_names_no_process(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    assert _watchdog.server_of(tmp_path) is None


def test_an_absent_extension_is_named() -> None:
    with pytest.raises(PostgresNotFoundError, match="with the extension of_dreams"):
        find_install("of_dreams")


async def test_a_fresh_database_has_postgis_and_nothing_else(database: str) -> None:
    connection = await asyncpg.connect(database)
    assert await connection.fetchval("SELECT ST_AsText(ST_MakePoint(1, 2))") == "POINT(1 2)"
    assert await connection.fetchval("SELECT count(*) FROM pg_stat_user_tables") == 1
    await connection.execute("CREATE TABLE mine ()")
    await connection.close()


async def test_databases_are_apart_and_end_with_open_sessions(
    postgres_cluster: PostgresCluster, database_factory: DatabaseFactory
) -> None:
    with database_factory.fresh() as first, database_factory.fresh() as second:
        assert first != second
        connection = await asyncpg.connect(first)
        assert not connection.is_closed()
    # Others may have some for longer; these two are gone.
    names = {urlsplit(dsn).path[1:] for dsn in (first, second)}
    left = postgres_cluster.execute("SELECT datname FROM pg_database").split("\n")
    assert "postgres" in left
    assert not names & {*left}
    connection.terminate()


def test_the_template_is_closed(postgres_cluster: PostgresCluster, database: str) -> None:
    assert database
    with pytest.raises(PostgresClusterError, match="not currently accepting connections"):
        postgres_cluster.execute("SELECT 1", TEMPLATE)

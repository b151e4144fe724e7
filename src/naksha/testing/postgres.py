"""A private, throw-away PostgreSQL cluster, made from the programs that the machine has.

    with PostgresCluster(settings={"fsync": False}) as cluster:
        cluster.create_database("mine")
        connect(cluster.dsn("mine"))

It lives in a short temporary directory with its Unix socket, listens on no network unless asked,
works for root too, and is gone when the block ends or when the owning process dies in any way
(`naksha.testing._watchdog`). Administration goes through `psql`, so that this package needs no
driver; no process is ever looked up by name.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self
from urllib.parse import quote

from naksha.testing import _watchdog
from naksha.testing._postgres_install import PostgresInstall, find_install, server_user
from naksha.testing._private_server import free_port, short_directory

Setting = str | int | float | bool
StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "postgres"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
START_TRIES_MAX = 5
LOG_TAIL_CHARACTERS = 4000

_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class PostgresClusterError(RuntimeError):
    """The cluster did not do what it was told; the message holds what the server said."""


class PostgresCluster:
    """A PostgreSQL server with a data directory of its own.

    With `standby_of` it is a streaming replica of another cluster, which must be running when it is
    made.

    Attributes:
        settings: The server's settings beyond its defaults; a change counts from the next start.
        directory: Everything of this cluster, its socket and log included.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        tcp: bool = False,
        install: PostgresInstall | None = None,
        initdb_arguments: Sequence[str] = ("--locale=C.UTF-8",),
        standby_of: "PostgresCluster | None" = None,
    ) -> None:
        self.settings: dict[str, Setting] = dict(settings or {})
        self.install = install or find_install()
        self._primary = standby_of
        if standby_of is not None:
            # Some of them must be at least what the primary has.
            self.settings = standby_of.settings | self.settings
        self.directory = Path()
        self.port = 5432
        self._tcp = tcp
        self._initdb_arguments = tuple(initdb_arguments)
        self._user = server_user()
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._admin: _AdminSession | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- life ------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._is_alive()

    def start(self) -> None:
        """Start the server and wait until it takes connections; the first time, make its data."""
        if self._is_alive():
            return
        is_new = self._watchdog is None
        if is_new:
            self._create()
        said = ""
        for _ in range(START_TRIES_MAX):
            if is_new and self._tcp:
                self.port = free_port()  # and it stays, so that a DSN outlives a restart
            self._write_settings()
            self._launch()
            if _watchdog.wait_until(self._has_answered, START_SECONDS_MAX) and self._is_alive():
                return
            said = self.log()
            self.stop("immediate")
            # Another process may have taken the free port; everything else fails for good.
            if "Address already in use" not in said:
                break
            self._log_path.unlink()
        if is_new:
            self.close()
        raise PostgresClusterError(f"the server did not start:\n{said}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end; the data stay."""
        self._close_admin()
        server, self._server = self._server, None
        if server is None:
            return
        # A process that has ended by itself gets no signal.
        server.send_signal(_STOP_SIGNALS[mode])
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise PostgresClusterError(f"the server did not stop ({mode}):\n{self.log()}") from None

    def kill(self) -> None:
        """Stop without writing anything back, as a crash does; the next start recovers."""
        self.stop("immediate")

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start, with the `settings` of now."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove everything of it."""
        try:
            self.stop("immediate")
        finally:
            watchdog, self._watchdog = self._watchdog, None
            if watchdog is not None and watchdog.stdin is not None:
                watchdog.stdin.close()
                watchdog.wait()

    def log(self) -> str:
        """The end of the server's log."""
        with contextlib.suppress(FileNotFoundError):
            return self._log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        return ""

    # ---- databases -------------------------------------------------------------------------------

    def dsn(self, database: str = "postgres", *, tcp: bool = False) -> str:
        """How to connect as the superuser: a URI for libpq, ADBC and asyncpg alike."""
        if tcp:
            if not self._tcp:
                raise PostgresClusterError("this cluster was made without tcp=True")
            return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        host = quote(str(self.directory), safe="")
        name = quote(database, safe="")
        return f"postgresql://{SUPERUSER}@/{name}?host={host}&port={self.port}"

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL through `psql`, each statement by itself; the rows come back as plain text.

        Raises:
            PostgresClusterError: With the server's own message.
        """
        result = subprocess.run(
            [*self._psql_command(database), "-v", "ON_ERROR_STOP=1"],
            input=sql,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise PostgresClusterError(result.stderr.strip())
        return result.stdout.rstrip("\n")

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, empty or as a copy of `template`, and return its DSN."""
        source = f" TEMPLATE {quote_identifier(template)}" if template else ""
        self._administrate(f"CREATE DATABASE {quote_identifier(name)}{source}")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, and end the sessions in it."""
        self._administrate(f"DROP DATABASE IF EXISTS {quote_identifier(name)} WITH (FORCE)")

    # ---- inside ----------------------------------------------------------------------------------

    def _is_alive(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _create(self) -> None:
        """Make the directory, the watchdog over it, and a new data directory in it."""
        self.directory = short_directory("pg")
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        self._watchdog = _watchdog.watch(self.directory)
        with self._log_path.open("wb") as log:
            made = self._spawn(self._data_command(), log).wait()
        if made != 0:
            said = self.log()
            self.close()
            raise PostgresClusterError(f"the data directory was not made:\n{said}")
        if self._primary is not None:
            return
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'naksha.conf'\n")

    def _data_command(self) -> list[str]:
        """What makes the data directory: anew, or as a copy that follows the primary."""
        if self._primary is not None:
            return [
                *(self.install.program("pg_basebackup"), "--pgdata", str(self._data), "--no-sync"),
                *("--dbname", self._primary.dsn(), "--write-recovery-conf", "--checkpoint=fast"),
            ]
        return [
            *(self.install.program("initdb"), "--pgdata", str(self._data), "--no-sync"),
            *("--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8"),
            *self._initdb_arguments,
        ]

    def _launch(self) -> None:
        command = [self.install.program("postgres"), "-D", str(self._data)]
        with self._log_path.open("ab") as log:
            self._server = self._spawn(command, log)

    def _spawn(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Run a server program: never as root, out of reach of the terminal's Ctrl-C."""
        owner = self._user
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            env=_environment(),
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            start_new_session=True,
        )

    def _write_settings(self) -> None:
        settings = {
            **self.settings,
            "port": self.port,
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "unix_socket_directories": str(self.directory),
        }
        lines = [f"{name} = {_quote_setting(value)}\n" for name, value in settings.items()]
        path = self._data / "naksha.conf"
        path.write_text("".join(lines))
        path.chmod(0o644)

    def _has_answered(self) -> bool:
        """Ready, as the pid file's eighth line says it to pg_ctl; or dead already."""
        if not self._is_alive():
            return True
        with contextlib.suppress(FileNotFoundError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            return len(lines) > 7 and lines[7].strip() in ("ready", "standby")
        return False

    def _psql_command(self, database: str) -> list[str]:
        return [self.install.program("psql"), "-XqAt", "-d", self.dsn(database)]

    def _administrate(self, statement: str) -> None:
        if self._admin is not None and not self._admin.is_alive():
            self._close_admin()
        if self._admin is None:
            self._admin = _AdminSession(self._psql_command("postgres"))
        try:
            self._admin.execute(statement)
        except PostgresClusterError as error:
            if self._admin.is_alive():
                raise
            # It lost its server: only the log knows which process died, and how.
            raise PostgresClusterError(f"{error}\n{self.log()}") from error

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


class _AdminSession:
    """One `psql` kept open, because a new one for each database costs more than the database."""

    def __init__(self, command: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._psql = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def is_alive(self) -> bool:
        """Whether psql still runs; it ends when its connection breaks."""
        return self._psql.poll() is None

    def execute(self, statement: str) -> None:
        """Run one statement that returns no rows; whatever psql prints is an error."""
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        with self._lock:
            self._psql.stdin.write(f"{statement};\n\\echo :ERROR :SQLSTATE\n")
            said = []
            for line in self._psql.stdout:
                if line.startswith(("false ", "true ")):
                    break
                said.append(line)
            else:
                self._psql.wait()
                line = "true"
        if line.startswith("true"):
            raise PostgresClusterError("".join(said).strip() or "psql ended unexpectedly")

    def close(self) -> None:
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._psql.stdin.close()
        self._psql.wait()
        self._psql.stdout.close()


def quote_identifier(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _quote_setting(value: Setting) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _environment() -> dict[str, str]:
    """Ours without libpq's variables, which would lead the programs to another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C.UTF-8", "PSQLRC": os.devnull}

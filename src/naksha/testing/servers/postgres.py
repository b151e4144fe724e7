"""A private, throw-away PostgreSQL cluster, run from the programs installed on this machine.

    with PostgresCluster(settings={"fsync": False}) as cluster:
        cluster.create_database("mine")
        connect(cluster.dsn("mine"))

It lives in a short temporary directory with its Unix socket, listens on no network unless asked,
works for root too, and is removed when the block ends or when the owning process dies in any way
(`naksha.testing.servers._watchdog`). Administration uses `psql`, so that this package needs no
driver; processes are never looked up by name.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import quote

from naksha.testing.servers._postgres_install import PostgresInstall, find_install
from naksha.testing.servers._private_server import PrivateServer, ServerError

Setting = str | int | float | bool
StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "postgres"
PORT_OF_THE_SOCKET = 5432
"""Part of the socket's name when the server listens on no network."""

_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class PostgresClusterError(ServerError):
    """The cluster failed to start, stop or run a command; the message holds its output."""


class PostgresCluster(PrivateServer):
    """A PostgreSQL server with its own data directory.

    With `standby_of` it is a streaming replica of another cluster, which must be running when this
    one is created.

    Attributes:
        settings: Server settings beyond the defaults; a change takes effect at the next start.
    """

    kind = "pg"
    users = ("postgres", "nobody")
    failure = PostgresClusterError

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        tcp: bool = False,
        install: PostgresInstall | None = None,
        initdb_arguments: Sequence[str] = ("--locale=C.UTF-8",),
        standby_of: "PostgresCluster | None" = None,
    ) -> None:
        super().__init__(tcp=tcp)
        self.settings: dict[str, Setting] = dict(settings or {})
        self.install = install or find_install()
        self._primary = standby_of
        if standby_of is not None:
            # Some settings of a standby must not be lower than those of the primary.
            self.settings = standby_of.settings | self.settings
        self.port = PORT_OF_THE_SOCKET
        self._initdb_arguments = tuple(initdb_arguments)
        self._admin: _AdminSession | None = None

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end; the data stay."""
        self._close_admin()
        self._end(_STOP_SIGNALS[mode])

    def kill(self) -> None:
        """Stop without writing buffers back, as a crash would; the next start recovers."""
        self.stop("immediate")

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start the server with the current `settings`."""
        self.stop(mode)
        self.start()

    # ---- databases -------------------------------------------------------------------------------

    def dsn(self, database: str = "postgres", *, tcp: bool = False) -> str:
        """Return a URI for libpq, ADBC and asyncpg that connects as the superuser."""
        if tcp:
            if not self._tcp:
                raise PostgresClusterError(
                    "this PostgreSQL cluster has no TCP port; create it with tcp=True"
                )
            return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        host = quote(str(self.directory), safe="")
        name = quote(database, safe="")
        return f"postgresql://{SUPERUSER}@/{name}?host={host}&port={self.port}"

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL through `psql`, each statement on its own; return the rows as plain text.

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
        # FILE_COPY takes a third of the time of a copy through the WAL.
        source = f" TEMPLATE {quote_identifier(template)} STRATEGY FILE_COPY" if template else ""
        self._administrate(f"CREATE DATABASE {quote_identifier(name)}{source}")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and end its sessions."""
        self._administrate(f"DROP DATABASE IF EXISTS {quote_identifier(name)} WITH (FORCE)")

    # ---- inside ----------------------------------------------------------------------------------

    def _make_data(self) -> None:
        if self._spawn(self._data_command()).wait() != 0:
            raise PostgresClusterError(f"initdb or pg_basebackup failed:\n{self.log()}")
        if self._primary is not None:
            return
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'naksha.conf'\n")

    def _data_command(self) -> list[str]:
        """Return the command that creates the data directory: new, or a copy of the primary."""
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

    def _command(self) -> list[str]:
        return [self.install.program("postgres"), "-D", str(self._data)]

    def _environment(self) -> dict[str, str]:
        return _environment()

    def _launch(self) -> None:
        self._write_settings()
        self._server = self._spawn(self._command())  # PostgreSQL writes its pid file itself

    def _write_settings(self) -> None:
        settings = {
            **self.settings,
            "port": self.port or PORT_OF_THE_SOCKET,
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "unix_socket_directories": str(self.directory),
        }
        lines = [f"{name} = {_quote_setting(value)}\n" for name, value in settings.items()]
        path = self._data / "naksha.conf"
        path.write_text("".join(lines))
        path.chmod(0o644)

    def _is_ready(self) -> bool:
        """Return whether the pid file's eighth line, which pg_ctl reads too, says ready."""
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
            # The session lost its server: only the server's log says which process died, and how.
            raise PostgresClusterError(f"{error}\n{self.log()}") from error

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


class _AdminSession:
    """A `psql` kept open, because starting one for each database costs more than the database."""

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
        """Return whether psql still runs; it ends when its connection breaks."""
        return self._psql.poll() is None

    def execute(self, statement: str) -> None:
        """Run one statement that returns no rows; any output of psql is an error."""
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
            raise PostgresClusterError(
                "".join(said).strip() or "psql ended unexpectedly, without a message"
            )

    def close(self) -> None:
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._psql.stdin.close()
        self._psql.wait()
        self._psql.stdout.close()


def quote_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _quote_setting(value: Setting) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _environment() -> dict[str, str]:
    """Return our environment without libpq's variables, which would select another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C.UTF-8", "PSQLRC": os.devnull}

"""A private, throw-away MariaDB server, run from the programs installed on this machine.

    with MariadbServer() as server:
        server.create_database("mine")
        connect(server.location("mine"))

Every acknowledged transaction is on disk by default, as on a server out of the box.
Administration uses the program `mariadb`, so that this package needs no driver. See
`naksha.testing.servers._private_server` for its location and lifetime.
"""

import socket
import subprocess
from collections.abc import Mapping
from urllib.parse import quote

from naksha.testing.servers._private_server import GreetingServer, ServerError, find_program

Setting = str | int

SUPERUSER = "root"
PROTOCOL_VERSION = 10

# As little memory and as few files as a test needs; durability stays on.
SMALL: Mapping[str, Setting] = {
    "innodb-flush-log-at-trx-commit": 1,
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "48M",
    "max-connections": 200,
    "performance-schema": "OFF",
}


class MariadbServer(GreetingServer):
    """A MariaDB server with its own data directory.

    Attributes:
        settings: Options of mariadbd beyond the defaults; a change takes effect at the next start.
    """

    kind = "maria"
    users = ("mysql", "nobody")

    def __init__(self, settings: Mapping[str, Setting] | None = None, *, tcp: bool = False) -> None:
        super().__init__(tcp=tcp)
        self.settings: dict[str, Setting] = {**SMALL, **(settings or {})}
        self._program = find_program("mariadbd", "mariadb-server-core")

    def location(self, database: str, *, tcp: bool = False) -> str:
        """Return the location of a database, for the superuser."""
        name = quote(database, safe="")
        if not tcp:
            path = quote(str(self.socket_path), safe="/")
            return f"mariadb://{SUPERUSER}@/{name}?unix_socket={path}"
        if self.port is None:
            raise ServerError(
                "this MariaDB server has no TCP port; create it with tcp=True and start it"
            )
        return f"mariadb://{SUPERUSER}@127.0.0.1:{self.port}/{name}"

    def execute(self, sql: str) -> str:
        """Run SQL through the program `mariadb`; return the rows as plain text."""
        done = subprocess.run(
            [
                *(find_program("mariadb", "mariadb-client-core"), "--no-defaults", "-BN"),
                *(f"--user={SUPERUSER}", f"--socket={self.socket_path}"),
            ],
            input=sql,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(done.stderr.strip())
        return done.stdout.rstrip("\n")

    def create_database(self, name: str) -> str:
        """Create a database and return its location."""
        self.execute(f"CREATE DATABASE {quote_identifier(name)}")
        return self.location(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists."""
        self.execute(f"DROP DATABASE IF EXISTS {quote_identifier(name)}")

    def _make_data(self) -> None:
        program = find_program("mariadb-install-db", "mariadb-server-core")
        done = self._spawn(
            [
                *(program, "--no-defaults", f"--datadir={self._data}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", "--skip-name-resolve"),
                # There is no data to protect yet, so initialization need not sync.
                *("--innodb-flush-method=nosync", "--sync-frm=0", *self._options()),
            ]
        ).wait()
        if done != 0:
            raise ServerError(f"mariadb-install-db failed; its log ends with:\n{self.log()}")

    def _command(self) -> list[str]:
        network = (
            ["--skip-networking"]
            if self.port is None
            else [f"--port={self.port}", "--bind-address=127.0.0.1"]
        )
        return [
            *(self._program, "--no-defaults", f"--datadir={self._data}"),
            *(f"--socket={self.socket_path}", f"--pid-file={self.directory / 'mariadbd.pid'}"),
            *self._options(),
            *network,
        ]

    def _options(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self.settings.items()]

    def _greets(self, connection: socket.socket) -> bool:
        """Return whether the first packet is a greeting and not an error of a starting server."""
        packet = connection.recv(64)
        return len(packet) > 4 and packet[4] == PROTOCOL_VERSION


def quote_identifier(name: str) -> str:
    """Quote a name as a MariaDB identifier."""
    return "`" + name.replace("`", "``") + "`"

"""A private, throw-away pgbouncer in front of a PostgreSQL cluster of the tests.

    with PgbouncerServer(cluster, {"pool_mode": "transaction"}) as pooler:
        connect(pooler.dsn("mine"))

See `naksha.testing.servers._private_server` for its location and lifetime.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from naksha.testing.servers._private_server import GreetingServer, find_program
from naksha.testing.servers.postgres import SUPERUSER, PostgresCluster

Setting = str | int

PORT_OF_THE_SOCKET = 6432
"""Part of the socket's name; pgbouncer listens on no network."""
_SSL_REQUEST = bytes((0, 0, 0, 8, 4, 210, 22, 47))


class PgbouncerServer(GreetingServer):
    """A connection pooler that admits every client as the superuser of the cluster.

    With `proxy_port` it reaches the cluster through a proxy on the loopback.

    Attributes:
        settings: Lines of pgbouncer.ini beyond the defaults, effective from the next start.
    """

    kind = "pgbouncer"
    users = PostgresCluster.users
    """The directory with the cluster's socket is closed to other users."""

    def __init__(
        self,
        cluster: PostgresCluster,
        settings: Mapping[str, Setting] | None = None,
        *,
        proxy_port: int | None = None,
    ) -> None:
        super().__init__()
        self.settings: dict[str, Setting] = dict(settings or {})
        self._server_address = (
            f"host={cluster.directory} port={cluster.port}"
            if proxy_port is None
            else f"host=127.0.0.1 port={proxy_port}"
        )
        self._program = find_program("pgbouncer", "pgbouncer")

    def dsn(self, database: str = "postgres") -> str:
        """Return a URI for libpq, ADBC and asyncpg that connects through the pooler."""
        host = quote(str(self.directory), safe="")
        name = quote(database, safe="")
        return f"postgresql://{SUPERUSER}@/{name}?host={host}&port={PORT_OF_THE_SOCKET}"

    @property
    def socket_path(self) -> Path:
        return self.directory / f".s.PGSQL.{PORT_OF_THE_SOCKET}"

    @property
    def _configuration(self) -> Path:
        return self._data / "pgbouncer.ini"

    def _make_data(self) -> None:
        """Do nothing: pgbouncer has no data."""

    def _launch(self) -> None:
        settings = {
            **self.settings,
            "auth_type": "any",
            "listen_port": PORT_OF_THE_SOCKET,
            "unix_socket_dir": self.directory,
        }
        lines = [
            "[databases]",
            f"* = {self._server_address} user={SUPERUSER}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        self._configuration.write_text("\n".join(lines) + "\n")
        self._configuration.chmod(0o644)
        super()._launch()

    def _command(self) -> list[str]:
        return [self._program, str(self._configuration)]

    def _greets(self, connection: socket.socket) -> bool:
        connection.sendall(_SSL_REQUEST)
        return connection.recv(1) in (b"N", b"S")

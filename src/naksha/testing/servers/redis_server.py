"""A private, throw-away Redis server, run from the program installed on this machine.

    with RedisServer() as server:
        connect(server.location())

Every acknowledged write is on disk by default (`appendfsync always`). See
`naksha.testing.servers._private_server` for its location and lifetime.
"""

import socket
import subprocess
from collections.abc import Mapping

from naksha.testing.servers._private_server import GreetingServer, ServerError, find_program

Setting = str | int

DATABASES = 16

DURABLE: Mapping[str, Setting] = {"appendonly": "yes", "appendfsync": "always", "save": ""}


class RedisServer(GreetingServer):
    """A Redis server with its own data directory.

    Attributes:
        settings: Lines of redis.conf beyond the defaults; a change takes effect at the next start.
    """

    kind = "redis"
    users = ("redis", "nobody")

    def __init__(self, settings: Mapping[str, Setting] | None = None, *, tcp: bool = False) -> None:
        super().__init__(tcp=tcp)
        self.settings: dict[str, Setting] = {**DURABLE, **(settings or {})}
        self._program = find_program("redis-server", "redis-server")

    def location(self, database: int = 0, *, tcp: bool = False) -> str:
        """Return the location of one of the numbered databases."""
        if not tcp:
            return f"redis+unix://{self.socket_path}?db={database}"
        if self.port is None:
            raise ServerError(
                "this Redis server has no TCP port; create it with tcp=True and start it"
            )
        return f"redis://127.0.0.1:{self.port}/{database}"

    def execute(self, *arguments: str, database: int = 0) -> str:
        """Run one command through `redis-cli`; return its output as plain text."""
        done = subprocess.run(
            [
                *(find_program("redis-cli", "redis-tools"), "-s", str(self.socket_path)),
                *("-n", str(database), "-e", *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(done.stdout + done.stderr)
        return done.stdout.rstrip("\n")

    def flush(self, database: int = 0) -> None:
        """Empty one database."""
        self.execute("FLUSHDB", "SYNC", database=database)

    def _make_data(self) -> None:
        """Do nothing: Redis creates its files itself."""

    def _command(self) -> list[str]:
        settings = {
            **self.settings,
            "dir": str(self._data),
            "unixsocket": str(self.socket_path),
            "unixsocketperm": 700,
            "port": self.port or 0,
            "bind": "127.0.0.1",
            "databases": DATABASES,
            "daemonize": "no",
        }
        options = (("--" + name, str(value)) for name, value in settings.items())
        return [self._program, *(word for option in options for word in option)]

    def _greets(self, connection: socket.socket) -> bool:
        """Return whether Redis has loaded its data; until then it responds with an error."""
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")

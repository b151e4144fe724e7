"""Run a command with a throw-away PostgreSQL beside it.

    python -m naksha.testing.with_postgres naksha demo

The command finds the location of a new database with PostGIS in the environment variable
`NAKSHA_STORAGE`, and a hub in `NAKSHA_REALM_STORAGE`. When it ends, the server is removed and its
exit code is returned; Ctrl-C and SIGTERM reach the command first.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from naksha.testing.servers._private_server import ServerNotFoundError
from naksha.testing.servers.postgres import PostgresCluster, PostgresClusterError

VARIABLE = "NAKSHA_STORAGE"
VARIABLES = (VARIABLE, "NAKSHA_REALM_STORAGE")
DATABASE = "naksha"
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 69
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128

_HANDLED = (signal.SIGINT, signal.SIGTERM)


def run(command: Sequence[str]) -> int:
    """Run the command and return its exit code, or 128 + n if signal n ended it."""
    with PostgresCluster() as cluster:
        location = cluster.create_database(DATABASE)
        cluster.execute("CREATE EXTENSION postgis", DATABASE)
        path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{cluster.install.bindir}"
        environment = os.environ | dict.fromkeys(VARIABLES, location) | {"PATH": path}
        # A handler and not SIG_IGN, because the command would inherit SIG_IGN.
        child: subprocess.Popen[bytes] | None = None

        def forward(number: int, _: FrameType | None) -> None:
            # The terminal sends Ctrl-C to the command as well; SIGTERM reaches only this process.
            if child is not None and number == signal.SIGTERM:
                child.send_signal(number)

        before = {number: signal.signal(number, forward) for number in _HANDLED}
        try:
            child = subprocess.Popen(command, env=environment)
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else EXIT_SIGNAL - code


def main(arguments: Sequence[str]) -> int:
    """Run the program; report a failure in one sentence."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command or (command[0].startswith("-") and command == [*arguments]):
        return _fail("usage: python -m naksha.testing.with_postgres COMMAND …", EXIT_USAGE)
    try:
        return run(command)
    except KeyboardInterrupt:
        return EXIT_SIGNAL + signal.SIGINT
    except FileNotFoundError as error:
        return _fail(f"with_postgres: {error.strerror}: {error.filename}", EXIT_NOT_FOUND)
    except (PostgresClusterError, ServerNotFoundError) as error:
        return _fail(f"with_postgres: {error}", EXIT_UNAVAILABLE)


def _fail(words: str, code: int) -> int:
    sys.stderr.write(f"{words}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Start the hub server: read the settings, bind the socket, run the workers."""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

from naksha.model.errors import InvalidArgument, NakshaError, Unavailable
from naksha.model.status_codes import EXIT_INTERRUPTED, status_codes_of
from naksha.server.process.lock_file import files_locked
from naksha.server.process.logs import set_up_logs
from naksha.server.process.settings import ServerSettings
from naksha.server.process.settings_sources import read_settings
from naksha.spi.extras import missing_extra
from naksha.spi.locations import redacted

_METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"
_BACKLOG: Final = 2048


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m naksha.server` and return the exit code."""
    try:
        serve(sys.argv[1:] if arguments is None else arguments, program="python -m naksha.server")
    except ImportError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        return _failed(missing)
    except NakshaError as error:
        return _failed(error)
    except KeyboardInterrupt:  # before the server was ready
        return EXIT_INTERRUPTED
    return 0


def _failed(error: NakshaError) -> int:
    sys.stderr.write(f"naksha: {error}\n")
    return status_codes_of(error).exit_code


def serve(arguments: Sequence[str], *, program: str) -> None:
    """Serve until stopped by a signal.

    Raises:
        NakshaError: A setting is invalid, or what it refers to cannot be used.
    """
    # Modules loaded now live until the end; collecting among them takes a fifth of the start-up
    # time. A worker turns the garbage collector on again when it serves.
    gc.disable()
    settings = read_settings(arguments, os.environ, program=program)
    set_up_logs(settings)
    make_data_directory(settings)
    with files_locked(settings) as locks, _listening(settings) as listening:
        port = listening.getsockname()[1]
        locks.announce(_url(settings, port))

        def on_ready() -> None:
            sys.stdout.write(greeting(settings, port))
            sys.stdout.flush()

        if settings.workers == 1:
            from naksha.server.process.worker import run_worker  # noqa: PLC0415 - see below

            run_worker(settings, listening, on_ready)
            return
        with tempfile.TemporaryDirectory(prefix="naksha-metrics-") as directory:
            # Every worker reads it when it imports the metrics.
            os.environ[_METRICS] = directory
            from naksha.server.process.supervisor import Supervisor  # noqa: PLC0415

            gc.freeze()
            gc.enable()
            Supervisor(settings, listening).run(on_ready)


def greeting(settings: ServerSettings, port: int) -> str:
    """Return the start-up message: addresses, and commands to try."""
    url = _url(settings, port)
    needs_token = bool(settings.keys) and not settings.anonymous
    token = ' -H "Authorization: Bearer $TOKEN"' if needs_token else ""
    minting = _minting(settings) if needs_token else ""
    feature = (
        '{"type":"Feature","id":"first","geometry":{"type":"Point","coordinates":[8.68,50.11]},'
        '"properties":{"name":"Frankfurt"}}'
    )
    return f"""
Naksha serves {url}/hub
{_places(settings)}

Try, in another terminal:
{minting}  curl {url}/hub/health-status
  curl{token} -X POST {url}/hub/spaces -d '{{"id":"places","title":"Places"}}'
  curl{token} -X PUT {url}/hub/spaces/places/features -d '{feature}'
  curl{token} "{url}/hub/spaces/places/search?p.name=Frankfurt"

{url}/openapi.json describes the API. Ctrl-C stops it.

The map is at {url}/
"""


def _url(settings: ServerSettings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"


def _minting(settings: ServerSettings) -> str:
    """Return the command that mints a token, if one of the keys can certainly sign one."""
    key = next((key for key in settings.keys if key.startswith("secret:")), None)
    return "" if key is None else f"  TOKEN=$(naksha token my-app --key {key})\n"


def _places(settings: ServerSettings) -> str:
    if not settings.realm_storage and not settings.catalog:
        return f"  with all data in {settings.data_directory}"
    storage = settings.storage_location if settings.realm_storage else str(settings.data_directory)
    return f"  features in {redacted(storage)}\n  catalog in  {redacted(settings.catalog_location)}"


def make_data_directory(settings: ServerSettings) -> None:
    """Create the data directory, readable by its owner only."""
    if settings.realm_storage and settings.catalog:
        return
    try:
        settings.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(
            f"Data directory {settings.data!r} cannot be created: {error.strerror}", field="data"
        ) from error


def _listening(settings: ServerSettings) -> socket.socket:
    """Bind the listening socket, which every worker inherits.

    Raises:
        Unavailable: Another program uses the port.
        InvalidArgument: The address is not one of this machine, or requires more privileges.
    """
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, number, _, address = found[0]
        made = socket.socket(family, kind, number)
    except OSError as error:
        raise InvalidArgument(
            f"Cannot listen on host {settings.host!r}: {error.strerror}", field="host"
        ) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise _not_bound(settings, error) from error
    return made


def _not_bound(settings: ServerSettings, error: OSError) -> NakshaError:
    where = f"{settings.host}:{settings.port}"
    if isinstance(error, PermissionError):
        return InvalidArgument(
            f"Cannot listen on {where}: permission denied; choose a port from 1024 on with --port",
            field="port",
        )
    return Unavailable(
        f"Cannot listen on {where}: {error.strerror}. If another program uses the port, stop it, "
        "or choose another port with --port",
        field="port",
    )

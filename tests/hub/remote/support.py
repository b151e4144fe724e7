"""Third-party handlers, really installed: a distribution with an entry point, and a process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from naksha.hub.pipeline import handler_registry
from naksha.testing.servers._private_server import free_port

ROOT = Path(__file__).resolve().parents[3]
ENTRY_POINTS = """\
[naksha.handlers]
tests:choose = tests.hub.remote.sample:choose
tests:gone = tests.hub.remote.nowhere:Gone
"""


def install(directory: Path, entry_points: str = ENTRY_POINTS) -> Path:
    """A distribution in a directory, as pip leaves it behind; to be put on the path."""
    info = directory / "acme_handlers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-handlers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return directory


def forget_handlers() -> None:
    """Forget the installed handlers: some were added or removed."""
    handler_registry._known.cache_clear()
    handler_registry.handler_class.cache_clear()


@contextmanager
def hosted(
    handler: str, *, environment: Mapping[str, str] | None = None, path: str = str(ROOT)
) -> Iterator[str]:
    """A process that hosts a handler; gives its URL."""
    port = free_port()
    command = [sys.executable, "-m", "naksha.hub.remote", handler, "--port", str(port)]
    paths = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths, **(environment or {})}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        assert process.wait(20) == 0


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            assert httpx.get(url).json() == {"status": "OK"}
            return
        except httpx.TransportError:
            assert process.poll() is None, "the host did not start"
            assert time.monotonic() < deadline, "the host does not answer"
            time.sleep(0.05)

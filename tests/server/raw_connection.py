"""Raw bytes on a connection, as a misbehaving client sends them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection to a server on this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        yield connection


def get_line(port: int, path: str, *fields: str) -> bytes:
    """The head of a plain request."""
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *fields, "", ""]
    return "\r\n".join(lines).encode()


def rest(connection: socket.socket) -> bytes:
    """All that still comes; a connection that was cut ends as well."""
    found = bytearray()
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return bytes(found)


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Until a function says yes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)

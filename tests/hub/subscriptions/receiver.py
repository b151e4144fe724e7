"""A web server that receives deliveries, as a subscriber would run it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

SECRET = "0123456789abcdef0123456789abcdef"


class Delivery(NamedTuple):
    """A post that came."""

    subscription: str
    life: int
    term: int
    version: int
    part: int
    body: bytes
    signature: str

    @property
    def changes(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


class Receiver:
    """Keeps what comes, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.taken: list[Delivery] = []
        self.refused = 0
        self.asked = 0
        """Deliveries that came, answered or not."""
        self.answers: Callable[[Delivery], int] = lambda _: 200
        """Response status of a delivery; only deliveries with a status below 300 are recorded."""
        self._line = threading.Condition()

    def versions(self) -> list[int]:
        """The versions that came, in order."""
        with self._line:
            return [one.version for one in self.taken]

    def wait(self, enough: "Callable[[Receiver], bool]", seconds: float = 30) -> None:
        """Until something is true of it."""
        with self._line:
            assert self._line.wait_for(lambda: enough(self), seconds), self.taken[-3:]

    def take(self, delivery: Delivery) -> int:
        """Keep a delivery, if it is to be kept."""
        with self._line:
            self.asked += 1
            self._line.notify_all()
        status = self.answers(delivery)
        with self._line:
            if status < 300:
                self.taken.append(delivery)
            else:
                self.refused += 1
            self._line.notify_all()
        return status


@contextmanager
def a_receiver(port: int = 0) -> Iterator[Receiver]:
    """One that listens on loopback."""

    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name, life, term, version, part = self.headers["Naksha-Delivery"].split()
            signature = self.headers.get("Naksha-Signature", "")
            numbers = (int(life), int(term), int(version), int(part))
            status = receiver.take(Delivery(name, *numbers, body, signature))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/changes")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        # They are kept open by who posts, and would be answered still.
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

"""Delivery of changes to a file, one line of JSON per delivery.

    {"path": "roads.jsonl"}      below exports/<realm> in the hub's data directory

A line is written whole or not at all, and is synced to disk before the delivery counts. A second
file, `<path>.fence`, records the last delivery and its sender, so that duplicate and late
deliveries are not written again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Final

import msgspec

from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported, Unavailable

_EXPORTS: Final = "exports"
"""Directory of the files, below the data directory; each realm has its own subdirectory."""
_FENCE_SUFFIX: Final = ".fence"
_LOCK_PAUSE_SECONDS: Final = 0.02


class JsonLinesHandler:
    """Handler that appends each delivery to a file."""

    metric_name: ClassVar[str] = "JsonLinesHandler"

    def __init__(self, setup: Setup) -> None:
        files = setup.hub.files
        if files is None:
            raise NotSupported(
                "This hub has no data directory, so it cannot write files; its operator can set "
                "one with --data",
                field="properties.path",
            )
        exports = files / _EXPORTS / setup.hub.realm_id
        self._path = exports / _inner_path(setup.connector.properties.get("path"))

    async def process(self, event: Event) -> Any:
        request = event.request
        if not isinstance(request, DeliverChanges):
            return await event.send_upstream()
        deadline = time.monotonic() + limits.EXPORT_LOCK_SECONDS_MAX
        while True:
            try:
                await asyncio.to_thread(append, self._path, request.fence, bytes(request.body))
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"The file {self._path.name!r} of the deliveries is locked by another "
                        "process; retry later"
                    ) from error
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            except OSError as error:
                raise Unavailable(
                    f"The delivery could not be written to the file {self._path.name!r}: "
                    f"{error.strerror}; the operator of the hub has to correct it"
                ) from error
            else:
                break
        await event.pass_on()
        return None


def append(path: Path, fence: DeliveryFence, line: bytes) -> None:
    """Append a line unless it was written before.

    The lock does not block: its owner may be a suspended process, and threads waiting for it would
    be missing elsewhere.

    Raises:
        Fenced: The sender has lost the subscription.
        BlockingIOError: Another process is writing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        last = _last_of(path)
        if not fence.passes(last.get(fence.name)):
            return
        _cut_half_a_line(path, file)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
        _keep(path, {**last, fence.name: fence})


def _last_of(path: Path) -> dict[str, DeliveryFence]:
    try:
        return msgspec.json.decode(_fence_path(path).read_bytes(), type=dict[str, DeliveryFence])
    except FileNotFoundError:
        return {}


def _keep(path: Path, last: dict[str, DeliveryFence]) -> None:
    """Save the fences after the line.

    A crash in between writes the line twice, which is better than losing it.
    """
    new = path.with_name(f"{path.name}{_FENCE_SUFFIX}.new")
    with new.open("wb") as file:
        file.write(msgspec.json.encode(last))
        file.flush()
        os.fsync(file.fileno())
    new.replace(_fence_path(path))


def _cut_half_a_line(path: Path, file: IO[bytes]) -> None:
    """Remove the incomplete last line that a crashed writer left."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    with path.open("rb") as reader:
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            reader.seek(start)
            found = reader.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
    if end < size:
        file.truncate(end)
        file.seek(0, os.SEEK_END)


def _fence_path(path: Path) -> Path:
    return path.with_name(path.name + _FENCE_SUFFIX)


def _inner_path(name: object) -> PurePosixPath:
    """Parse a path that does not leave its directory."""
    path = PurePosixPath(name) if isinstance(name, str) and name else None
    is_right = path is not None and not path.is_absolute() and ".." not in path.parts
    if path is None or not is_right or path.suffix != ".jsonl" or "\0" in str(path):
        raise InvalidArgument(
            "properties.path must be a relative path without '..' that ends with .jsonl",
            field="properties.path",
        )
    return path

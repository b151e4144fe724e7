"""Features as a response: bytes from the database are joined, not parsed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from fastapi.responses import StreamingResponse

from naksha.hub.responses import Features

GEO_JSON: Final = "application/geo+json"


def feature_collection(features: Features, **more: Any) -> StreamingResponse:
    """A FeatureCollection of any size; what is known only at the end stands at the end."""
    return StreamingResponse(_bytes(features, more), media_type=GEO_JSON)


async def _bytes(features: Features, more: dict[str, Any]) -> AsyncIterator[bytes]:
    separator = b'{"type":"FeatureCollection","features":[\n'
    is_empty = True
    async for states in features:
        is_empty = False
        yield separator + b",\n".join([state.raw for state in states])
        separator = b",\n"
    if is_empty:
        yield separator
    tail = {name: value for name, value in more.items() if value is not None}
    if features.cursor is not None:
        tail |= {"handle": features.cursor, "nextPageToken": features.cursor}
    yield b"\n]" + (b"," + msgspec.json.encode(tail)[1:] if tail else b"}")

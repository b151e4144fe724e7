"""Page cursors: the end of a page, and the version that all its pages are read at."""

from __future__ import annotations

import base64

import msgspec

from naksha.model.errors import InvalidArgument


class PageCursor(msgspec.Struct, frozen=True, array_like=True):
    """Last state of a page; `at` is the txn of the version, 0 for none."""

    at: int
    id: str
    txn: int

    def encoded(self) -> str:
        """Return the cursor as text for the client."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def decode_cursor(text: str | None) -> PageCursor | None:
    """Decode the text of `PageCursor.encoded`."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=PageCursor)
    except ValueError as error:
        raise InvalidArgument(
            f"The cursor {text!r:.64} is not valid; use the one returned with the previous page",
            field="cursor",
        ) from error

"""Page tokens of iterations: a cursor, encoded as one decimal number.

XYZ clients compare the handle with 0 to see whether more pages follow, so it must look like a
number. Each byte becomes three digits after a leading 1; `0` is the first page.
"""

from __future__ import annotations

from naksha.model.errors import InvalidArgument


def handle_of(cursor: str) -> str:
    """Encode a cursor as a handle."""
    return "1" + "".join(f"{byte:03}" for byte in cursor.encode())


def cursor_of(handle: str) -> str | None:
    """Decode the cursor of a handle; None for the first page."""
    if handle in ("", "0"):
        return None
    digits = handle[1:]
    try:
        if handle[0] != "1" or len(digits) % 3 or not digits:
            raise ValueError
        return bytes(int(digits[at : at + 3]) for at in range(0, len(digits), 3)).decode()
    except ValueError:
        raise InvalidArgument(
            "Invalid handle: pass the one from the previous page unchanged, or omit it for the "
            "first page",
            field="handle",
        ) from None

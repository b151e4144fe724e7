"""Handles of iterations: a cursor, written as one decimal number.

A client compares its handle with 0 to see whether it goes on, so the handle must look like a
number. Each byte becomes three digits behind a leading 1; `0` is the beginning.
"""

from __future__ import annotations

from naksha.model.errors import InvalidArgument


def handle_of(cursor: str) -> str:
    """The handle of a cursor."""
    return "1" + "".join(f"{byte:03}" for byte in cursor.encode())


def cursor_of(handle: str) -> str | None:
    """The cursor in a handle; None for the beginning."""
    if handle in ("", "0"):
        return None
    digits = handle[1:]
    try:
        if handle[0] != "1" or len(digits) % 3 or not digits:
            raise ValueError
        return bytes(int(digits[at : at + 3]) for at in range(0, len(digits), 3)).decode()
    except ValueError:
        raise InvalidArgument(
            "It is no handle of ours; begin without one, and give back what the last page had",
            field="handle",
        ) from None

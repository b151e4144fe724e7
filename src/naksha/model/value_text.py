"""Values as they are named in error messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LENGTH_MAX: Final = 64


def value_text(value: object) -> str:
    """Return a refused value for an error message: JSON scalars literally, others by their kind."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int | float):
        try:
            return f"{value!r:.{_LENGTH_MAX}}"
        except ValueError:  # Python refuses to print an integer of more than 4300 digits
            return "an integer with too many digits"
    if isinstance(value, list | tuple):
        return "an array"
    return "an object" if isinstance(value, Mapping) else f"a Python {type(value).__qualname__}"

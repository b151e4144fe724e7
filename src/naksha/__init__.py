"""Naksha: a versioned geospatial feature store and hub.

import naksha

with naksha.connect("file:town.naksha", app_id="my-script") as db:
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from naksha.api import connect as connect

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> object:
    """Import `naksha.connect` lazily: most parts of Naksha do not need it."""
    if name == "connect":
        from naksha.api import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

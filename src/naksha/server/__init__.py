"""The REST API of the hub, as an ASGI application."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("naksha")
"""Of the distribution; `naksha` itself stands above the server."""

"""The REST API of the hub, as an ASGI application."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("naksha")
"""Version of the distribution; read here because `naksha` is above the server in the layers."""

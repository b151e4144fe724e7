"""The REST API of the hub, as an ASGI application.

HTTP belongs here; rights, pipelines and everything else that holds without HTTP belong to
`naksha.hub`.
"""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("naksha")
"""Version of the distribution; read here because `naksha` is above the server in the layers."""

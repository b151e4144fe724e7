"""`python -m naksha.server`: the hub as a process."""

from __future__ import annotations

import argparse

import uvicorn

from naksha.hub.setting_up import DefaultStorage
from naksha.server.app import create_app
from naksha.server.settings import Settings


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="naksha.server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--catalog", default="file:hub.catalog")
    parser.add_argument("--storage", default="file:{realm}.naksha")
    given = parser.parse_args()
    settings = Settings(
        host=given.host,
        port=given.port,
        catalog=given.catalog,
        storage=DefaultStorage(location=given.storage),
    )
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port)


if __name__ == "__main__":
    main()

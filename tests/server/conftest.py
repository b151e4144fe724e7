"""Real hubs for the tests of the REST API, one process for a whole module."""

from collections.abc import Iterator

import httpx
import pytest

from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubServer]:
    """A hub on each storage."""
    directory = tmp_path_factory.mktemp("hub")
    if request.param == "file":
        with HubServer(directory) as server:
            yield server
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn, HubServer(directory, storage=dsn) as server:
        yield server


@pytest.fixture(scope="module")
def client(hub: HubServer) -> Iterator[httpx.Client]:
    """A client of the hub without a token."""
    with httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        yield client

"""Fixtures: every test of this folder writes to its own spaces of a hub, on both storages."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.hub.config.objects import Space
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.write.support import ACTOR, Desk

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Hub]:
    """A hub on each storage."""
    directory: Path = tmp_path_factory.mktemp("hub")
    if request.param == "file":
        opened = await Hub.open("memory:", DefaultStorage(location=f"file:{directory}/a.naksha"))
        yield opened
        await opened.close()
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        opened = await Hub.open("memory:", DefaultStorage(location=dsn))
        yield opened
        await opened.close()


@pytest.fixture
async def desk(hub: Hub) -> Desk:
    """A new space without features."""
    realm = await hub.realm("default")
    space = await realm.registry.create(Space(id=f"space{next(_NUMBERS)}"), ACTOR)
    return Desk(realm, space.id)

"""Hubs that deliver, on each storage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.testing.fixtures import DatabaseFactory
from tests.hub.subscriptions.support import DeliveringHub, a_delivering_hub


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants to wait long in a test."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_LOOK_SECONDS", 0.05)
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_SAVE_SECONDS", 0.02)


@pytest.fixture(params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DeliveringHub]:
    """A hub on each storage."""
    if request.param == "file":
        async with a_delivering_hub(f"file:{tmp_path}/{{realm}}.naksha", tmp_path) as opened:
            yield opened
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        async with a_delivering_hub(dsn, tmp_path) as opened:
            yield opened


@pytest.fixture
async def file_hub(tmp_path: Path) -> AsyncIterator[DeliveringHub]:
    """A hub on a file, for what does not depend on the storage."""
    async with a_delivering_hub(f"file:{tmp_path}/{{realm}}.naksha", tmp_path) as opened:
        yield opened

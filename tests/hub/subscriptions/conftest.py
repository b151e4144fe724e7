"""Hubs that deliver, on each storage."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from naksha.hub.pipeline import handler_registry
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.remote.support import install
from tests.hub.subscriptions.handlers import Chosen
from tests.hub.subscriptions.support import DeliveringHub, a_delivering_hub


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals and delays that are short enough for tests."""
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


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Chosen]]:
    """A handler whose behaviour the test chooses, under the name `tests:chosen`."""
    points = "[naksha.handlers]\ntests:chosen = tests.hub.subscriptions.handlers:Chosen\n"
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", points)))
    monkeypatch.setattr(Chosen, "behaviour", Chosen.behaviour)
    monkeypatch.setattr(Chosen, "taken", [])
    _forget_handlers()
    yield Chosen
    monkeypatch.undo()
    _forget_handlers()


def _forget_handlers() -> None:
    handler_registry._known.cache_clear()
    handler_registry.handler_class.cache_clear()

"""Catalogs on every database.

Slow databases run with the long tests; `test_story.py` covers their most important part briefly.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from naksha.catalog.backends import open_backend
from naksha.spi.catalog import CatalogBackend
from tests.catalog.maintenance.support import Store

_numbers = itertools.count()

NewLocation = Callable[[], str]
OpenBackend = Callable[[], Awaitable[CatalogBackend]]


def _new_location(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, closing: ExitStack
) -> str:
    if database == "memory":
        return f"memory:maintenance-{next(_numbers)}"
    if database == "sqlite":
        return f"file:{tmp_path / f'{next(_numbers)}.catalog'}"
    if database == "postgresql":
        factory = request.getfixturevalue("database_factory")
        return str(closing.enter_context(factory.fresh()))
    return str(next(request.getfixturevalue(f"{database}_locations")))


@pytest.fixture
def new_location(
    request: pytest.FixtureRequest, tmp_path: Path, database_name: str
) -> Iterator[NewLocation]:
    """Factory of locations without a catalog."""
    with ExitStack() as closing:
        yield lambda: _new_location(database_name, request, tmp_path, closing)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.long),
        pytest.param("redis", marks=pytest.mark.long),
        pytest.param("mariadb", marks=pytest.mark.long),
    ]
)
def database_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_new(new_location: NewLocation) -> OpenBackend:
    """Opens an empty database."""
    return lambda: open_backend(new_location())


@pytest.fixture
async def store(open_new: OpenBackend) -> AsyncIterator[Store]:
    opened = await Store.open(await open_new())
    yield opened
    await opened.catalog.close()


@pytest.fixture
async def other(open_new: OpenBackend) -> AsyncIterator[Store]:
    """Another catalog, in a database of its own."""
    opened = await Store.open(await open_new())
    yield opened
    await opened.catalog.close()


@pytest.fixture
async def scanned_store(open_new: OpenBackend) -> AsyncIterator[Store]:
    """One on a backend that cannot delete realms."""
    opened = await Store.open(await open_new(), deletes_realms=False)
    yield opened
    await opened.catalog.close()

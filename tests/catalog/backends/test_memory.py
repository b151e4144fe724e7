"""The catalog suite in memory, and tests specific to it."""

import itertools

import pytest

from naksha.memory import MemoryCatalog
from naksha.model.errors import InvalidArgument
from naksha.testing.catalog.suite import *  # noqa: F403
from naksha.testing.catalog.suite import OpenCatalog
from naksha.testing.catalog.suite_support import get_pointer, pointer

_numbers = itertools.count()


@pytest.fixture(scope="class")
def open_catalog() -> OpenCatalog:
    location = f"memory:suite-{next(_numbers)}"
    return lambda: MemoryCatalog.open(location)


async def test_a_catalog_without_a_name_is_private() -> None:
    one, other = await MemoryCatalog.open("memory:"), await MemoryCatalog.open("memory:")
    assert await one.create_pointer("r", pointer("main"))
    assert await get_pointer(other, "r", "main") is None


async def test_a_name_is_free_again_when_no_client_has_it_open() -> None:
    one = await MemoryCatalog.open("memory:for-a-while")
    other = await MemoryCatalog.open("memory:for-a-while")
    assert await one.create_pointer("r", pointer("main"))
    assert await get_pointer(other, "r", "main") is not None
    del one, other
    assert await get_pointer(await MemoryCatalog.open("memory:for-a-while"), "r", "main") is None


async def test_another_location_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="memory:"):
        await MemoryCatalog.open("file:catalog")

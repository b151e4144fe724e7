"""Discovery of storages by scheme through their entry points, and their display without secrets."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, Unavailable
from naksha.spi import locations
from naksha.spi.locations import STORAGES, redacted
from naksha.spi.storage_factory import open_storage


class Deaf:
    """A backend that never answers."""

    @classmethod
    async def open(cls, location: str, storage_id: str) -> None:
        raise TimeoutError(f"{location} {storage_id}")


@pytest.fixture
def with_deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entry = EntryPoint("deaf", f"{__name__}:Deaf", STORAGES.group)
    monkeypatch.setattr(locations, "entry_points", lambda group: EntryPoints([entry]))
    monkeypatch.setattr(EntryPoint, "load", lambda self: Deaf)
    return iter(())


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_postgresql_is_found_by_its_schemes(scheme: str) -> None:
    assert STORAGES.find(f"{scheme}:///maps").__name__ == "PsqlStorage"


@pytest.mark.usefixtures("with_deaf")
async def test_a_backend_of_others_is_found_by_its_name() -> None:
    with pytest.raises(Unavailable, match="did not respond"):
        async with open_storage("deaf://here"):
            pass
    with pytest.raises(InvalidArgument, match="the installed schemes are deaf"):
        STORAGES.find("postgresql:///maps")


async def test_it_is_set_up_and_closed(database: str) -> None:
    async with open_storage(database, "maps", schema="mine") as storage:
        assert storage.id == "maps"
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id="roads"))
    async with open_storage(database, "maps", schema="mine") as storage:
        assert [info.id for info in await storage.collections()] == ["roads"]
    with pytest.raises(InvalidArgument, match="holds storage 'maps'"):
        async with open_storage(database, "others", schema="mine"):
            pass


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("postgresql://ann:pass@word@here:1/maps?password=x", "postgresql://ann@here:1/maps"),
        ("postgresql:///maps?host=/tmp", "postgresql:///maps"),
        ("postgresql://here/maps", "postgresql://here/maps"),
        ("postgresql://ann:pa?ss@here/maps", "postgresql://…"),
        ("ann:password@here/maps", "ann@here/maps"),
    ],
)
def test_a_location_is_shown_without_secrets(location: str, shown: str) -> None:
    assert redacted(location) == shown

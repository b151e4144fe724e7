"""Discovery of catalog backends by scheme through their entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from naksha.catalog.backends import open_backend
from naksha.model.errors import InvalidArgument, NotSupported, Unavailable
from naksha.spi import locations
from naksha.spi.catalog import CatalogBackend
from naksha.testing.catalog.suite_support import get_pointer, pointer

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


class Deaf:
    """A backend that never answers."""

    @classmethod
    async def open(cls, location: str) -> CatalogBackend:
        raise TimeoutError(location)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entry points as the project declares them, whatever the installation was made from; and
    one of another distribution."""
    group = locations.CATALOGS.group
    named = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][group]
    entries = [EntryPoint(name, value, group) for name, value in named.items()]
    entries.append(EntryPoint("deaf", f"{__name__}:Deaf", group))
    monkeypatch.setattr(locations, "entry_points", lambda group: EntryPoints(entries))
    return iter(())


async def check(location: str, **options: str) -> None:
    for expected in (True, False):
        backend = await open_backend(location, **options)
        try:
            assert await backend.create_pointer("r", pointer("main")) is expected
            assert await get_pointer(backend, "r", "main") is not None
        finally:
            await backend.close()


async def test_a_file_is_found_by_its_scheme(tmp_path: Path) -> None:
    await check(f"file:{tmp_path}/hub.catalog")


async def test_postgresql_is_found_by_its_scheme(database: str) -> None:
    await check(database)
    await check(database.replace("postgresql:", "postgres:"), schema="elsewhere")


async def test_memory_is_found_by_its_scheme() -> None:
    backend = await open_backend("memory:")
    assert backend.name == "memory"
    await backend.close()


async def test_a_backend_that_never_answers_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="could not be opened within"):
        await open_backend("deaf://here")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("none://here", "Unknown catalog scheme 'none'; the installed schemes are deaf, file, "),
        ("hub.catalog", "has no scheme"),
        ("", "has no scheme"),
        ("postgresql://ann:pa/ss:secret@here/maps", "is not a valid location"),
        ("file://elsewhere/hub.catalog", "is not a file location"),
    ],
)
async def test_an_invalid_location_is_refused(location: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as raised:
        await open_backend(location)
    assert raised.value.field == "catalog"
    assert "secret" not in str(raised.value)


async def test_a_refusal_of_the_backend_passes(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ann, " * 1000)
    with pytest.raises(NotSupported, match="not an SQLite database"):
        await open_backend(f"file:{tmp_path}/letter.txt")

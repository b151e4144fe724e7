"""The options of the data source, as Spark hands them over: texts by names in any case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.spi.locations import FILE, STORAGES, path_of

HEAD: Final = "HEAD"


class Place(msgspec.Struct, frozen=True):
    """Where a storage is: small, picklable, good in any process of the machine or cluster."""

    location: str
    schema: str | None = None
    """Of PostgreSQL."""

    @property
    def settings(self) -> dict[str, str]:
        """What its backend is to be opened with."""
        return {} if self.schema is None else {"schema": self.schema}


def place_of(options: Mapping[str, str]) -> Place:
    """The storage that the options name; a file by its whole path: executors are elsewhere."""
    location = needed(options, "storage")
    if STORAGES.scheme_of(location) == FILE:
        location = f"{FILE}:{Path(path_of(location)).absolute()}"
    return Place(location, options.get("schema"))


def needed(options: Mapping[str, str], name: str) -> str:
    """An option that must be given."""
    value = options.get(name)
    if not value:
        raise InvalidArgument(f"The option {name!r} is missing", field=name)
    return value

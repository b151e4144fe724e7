"""The options of the data source, as Spark hands them over: texts by names in any case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.spi.locations import FILE, STORAGES, path_of

HEAD: Final = "HEAD"
_FLAGS: Final = {"true": True, "false": False}


class Place(msgspec.Struct, frozen=True):
    """Where a storage is: small, picklable, good in any process of the machine or cluster."""

    location: str
    """A file by its whole path: executors are elsewhere."""
    schema: str | None = None
    """Of PostgreSQL."""

    def __post_init__(self) -> None:
        if STORAGES.scheme_of(self.location) == FILE:
            whole = f"{FILE}:{quote(str(path_of(self.location).absolute()))}"
            msgspec.structs.force_setattr(self, "location", whole)

    @property
    def settings(self) -> dict[str, str]:
        """What its backend is to be opened with."""
        return {} if self.schema is None else {"schema": self.schema}


def place_of(options: Mapping[str, str]) -> Place:
    """The storage that the options name."""
    return Place(needed(options, "storage"), options.get("schema"))


def check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse options that nobody would look at."""
    lower = {name.lower() for name in known}
    for name in options:
        if name.lower() not in lower:
            raise InvalidArgument(
                f"There is no option {name!r:.64} here; there are: {', '.join(known)}", field=name
            )


def needed(options: Mapping[str, str], name: str) -> str:
    """An option that must be given."""
    value = options.get(name)
    if not value:
        raise InvalidArgument(f"The option {name!r} is missing", field=name)
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """An option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    flag = _FLAGS.get(text.lower())
    if flag is None:
        raise InvalidArgument(f"The option {name!r} is true or false, not {text!r:.50}", field=name)
    return flag

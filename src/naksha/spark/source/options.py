"""Options of the data source as Spark passes them: strings with case-insensitive names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.spi.locations import FILE, STORAGES, path_of

HEAD: Final = "HEAD"
_FLAGS: Final = {"true": True, "false": False}


class StorageRef(msgspec.Struct, frozen=True):
    """Location of a storage: small, picklable, valid in any process of the machine or cluster."""

    location: str
    """Files have absolute paths, because executors have other working directories."""
    schema: str | None = None
    """PostgreSQL schema."""

    def __post_init__(self) -> None:
        if STORAGES.scheme_of(self.location) == FILE:
            whole = f"{FILE}:{quote(str(path_of(self.location).absolute()))}"
            msgspec.structs.force_setattr(self, "location", whole)

    @property
    def settings(self) -> dict[str, str]:
        """Keyword arguments for opening the backend."""
        return {} if self.schema is None else {"schema": self.schema}


def storage_ref_of(options: Mapping[str, str]) -> StorageRef:
    """Return the storage location that the options name."""
    return StorageRef(needed(options, "storage"), options.get("schema"))


def check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Reject unknown options."""
    lower = {name.lower() for name in known}
    for name in options:
        if name.lower() not in lower:
            raise InvalidArgument(
                f"Unknown option {name!r:.64}; known options: {', '.join(known)}", field=name
            )


def needed(options: Mapping[str, str], name: str) -> str:
    """Return the value of a required option."""
    value = options.get(name)
    if not value:
        raise InvalidArgument(f"The option {name!r} is required", field=name)
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return the value of a boolean option."""
    text = options.get(name)
    if text is None:
        return default
    flag = _FLAGS.get(text.lower())
    if flag is None:
        raise InvalidArgument(
            f"The option {name!r} must be true or false, not {text!r:.50}", field=name
        )
    return flag

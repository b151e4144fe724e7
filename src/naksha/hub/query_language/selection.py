"""Selection of feature members: `selection=p.name,p.a.b,rootKey,f.tags,!geometry`.

`id` and `type` are always returned, and `geometry` unless `!geometry` is given. `*` means all
members, and so does a selection that only excludes some. All other members are omitted, even the
namespace, so `properties` may be empty. `g.x` selects a member of the geometry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from naksha.hub.query_language.properties import property_path
from naksha.hub.query_language.query_string import decoded, raw_values
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.limits import SELECTION_PATHS_MAX

Path = tuple[str, ...]

_ALWAYS: Final[tuple[Path, ...]] = (("id",), ("type",))
_GEOMETRY: Final = ("geometry",)
_PREFIXED: Final = ("p", "f", "properties")


class Selection(msgspec.Struct, frozen=True):
    """The members of a feature to keep; `paths` is ignored with `everything`."""

    paths: tuple[Path, ...] = ()
    everything: bool = False
    geometry: bool = True

    @property
    def keeps_all(self) -> bool:
        """Whether all members are kept."""
        return self.everything and self.geometry

    def has(self, path: Path) -> bool:
        """Whether a member, or something below it, is kept."""
        return self.everything or any(
            path == kept[: len(path)] or kept == path[: len(kept)] for kept in self.paths
        )


def selection_of(raw: str | bytes) -> Selection | None:
    """Parse the selection of a query string; None if there is none. Encoded commas separate too."""
    values = raw_values(raw, "selection")
    names = [name for value in values for name in decoded(value, "selection").split(",") if name]
    return parse_selection(names) if names else None


def parse_selection(names: Iterable[str]) -> Selection:
    """Parse a selection given as names."""
    unique = dict.fromkeys(name.strip() for name in names)
    if len(unique) > SELECTION_PATHS_MAX:
        raise LimitExceeded(
            f"The selection has {len(unique)} names; the maximum is {SELECTION_PATHS_MAX}",
            field="selection",
        )
    geometry = "!geometry" not in unique
    unique.pop("!geometry", None)
    if not unique or "*" in unique:
        return Selection(everything=True, geometry=geometry)
    return Selection((*_ALWAYS, *map(_path, unique)), geometry=geometry)


def _path(name: str) -> Path:
    prefix, dot, rest = name.partition(".")
    path = tuple(name.split("."))
    if dot and prefix in _PREFIXED and rest:
        path = property_path(name)
    elif dot and prefix == "g":
        path = (*_GEOMETRY, *rest.split("."))
    if not all(path) or name.startswith("!"):
        raise InvalidArgument(
            f"{name!r:.64} cannot be selected; write p.name, f.name, g.name, a member of the "
            "feature itself, * or !geometry",
            field="selection",
        )
    return path

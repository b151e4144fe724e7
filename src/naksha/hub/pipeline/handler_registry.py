"""Event handlers by name: entry points of the group `naksha.handlers`.

A connector's `className` picks one of these names, and nothing else, so that whoever may configure
connectors cannot load code. Any distribution may add some:

    [project.entry-points."naksha.handlers"]
    "acme:stamp" = "acme.handlers:Stamp"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from naksha.hub.pipeline.pipeline import Handler, Setup
from naksha.model.errors import InvalidArgument

GROUP: Final = "naksha.handlers"


@cache
def _known() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@cache
def handler_class(name: str) -> Callable[[Setup], Handler]:
    """What makes the handlers of a name.

    Raises:
        InvalidArgument: There is none; names those that there are.
    """
    entry = _known().get(name)
    if entry is None:
        raise InvalidArgument(
            f"No event handler is called {name!r:.80}; known are: {', '.join(sorted(_known()))}",
            field="className",
        )
    try:
        made: Callable[[Setup], Handler] = entry.load()
    except ImportError as error:
        raise InvalidArgument(
            f"The event handler {name!r} is not installed whole: {error}", field="className"
        ) from error
    return made


def found_class(name: str) -> Callable[[Setup], Handler] | None:
    """The same, or None when there is none, or none that can be used."""
    try:
        return handler_class(name)
    except InvalidArgument:
        return None


def handler_names() -> list[str]:
    """All names that a connector may have."""
    return sorted(_known())


def look_again() -> None:
    """Know what was installed or removed since somebody asked first."""
    _known.cache_clear()
    handler_class.cache_clear()

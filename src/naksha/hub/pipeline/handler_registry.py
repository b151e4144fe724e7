"""Registry of event handlers: entry points of the group `naksha.handlers`.

The `className` of a connector must be one of these names, so that an actor who configures
connectors cannot load arbitrary code. Any distribution can register handlers:

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
    """Return the handler class registered under a name.

    Raises:
        InvalidArgument: The name is unknown (the message lists the known ones), or the class cannot
            be imported.
    """
    entry = _known().get(name)
    if entry is None:
        raise InvalidArgument(
            f"Unknown event handler {name!r:.80}; known are: {', '.join(handler_names())}",
            field="className",
        )
    try:
        made: Callable[[Setup], Handler] = entry.load()
    except ImportError as error:
        raise InvalidArgument(
            f"The event handler {name!r} could not be imported: {error}", field="className"
        ) from error
    return made


def find_handler_class(name: str) -> Callable[[Setup], Handler] | None:
    """Return the handler class registered under a name, or None if unknown or not importable."""
    try:
        return handler_class(name)
    except InvalidArgument:
        return None


def handler_names() -> list[str]:
    """Return all registered names, sorted."""
    return sorted(_known())

"""Where a page of a view ended: after which feature, and what each layer has to be asked next.

Layers are paged each by itself, at the version that its first page was read at. When a page of the
view ends in the middle of a page of a layer, that layer's cursor is moved back to the feature;
one that we cannot read (of a remote handler) is used as it was, and what was given is skipped.
"""

from __future__ import annotations

import base64

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX
from naksha.spi.cursor import Cursor, decode_cursor

EXHAUSTED = ""
"""The cursor of a layer that has nothing more."""
_MARK = "v."


class ViewCursor(msgspec.Struct, frozen=True, array_like=True):
    """The last feature that was given, the place of its layer (one behind the last layer, when no
    other layer counts), and the cursors of the layers; None for the beginning of a layer. `pins`
    are the versions that the layers are read at, if they are."""

    id: str
    place: int
    layers: tuple[str | None, ...]
    pins: tuple[str, ...] = ()

    def encoded(self) -> str:
        """The cursor as text for the client."""
        return _MARK + base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    def has_passed(self, id: str, place: int) -> bool:
        """Whether what a layer has under an id was given already, or was hidden."""
        return (id, place) <= (self.id, self.place)


def decode_view_cursor(text: str | None, layers: int) -> ViewCursor | None:
    """Reads what `ViewCursor.encoded` gave.

    Raises:
        InvalidArgument: It is not of a view with so many layers.
    """
    if text is None:
        return None
    cursor = _decoded(text)
    if cursor is None or len(cursor.layers) != layers or len(cursor.pins) not in (0, layers):
        raise InvalidArgument(
            "Not a cursor of this view, or its layers were changed meanwhile; begin anew",
            field="cursor",
        )
    return cursor


def moved(cursor: str, id: str, *, after: bool) -> str:
    """The cursor of a layer, at the same version, right behind a feature or right before it.

    Raises:
        InvalidArgument: It cannot be read.
    """
    view = _decoded(cursor)
    if view is None:
        plain = decode_cursor(cursor)
        assert plain is not None
        return Cursor(plain.at, id, INT8_MAX if after else 0).encoded()
    # A layer that had nothing more there may have something here.
    layers = tuple(moved(each, id, after=after) if each else None for each in view.layers)
    return ViewCursor(id, len(layers) if after else -1, layers, view.pins).encoded()


def _decoded(text: str) -> ViewCursor | None:
    if not text.startswith(_MARK):
        return None
    try:
        json = base64.urlsafe_b64decode(text[len(_MARK) :])
        return msgspec.json.decode(json, type=ViewCursor)
    except ValueError:
        return None

"""Page cursor of a view: the last feature returned, and the cursor of each layer.

Each layer is paged separately, at the version of its first page. When a page of the view ends in
the middle of a layer's page, the layer's cursor is moved back to that feature. A cursor that cannot
be decoded (of a remote handler) is used again as it was, and features already returned are skipped.
"""

from __future__ import annotations

import base64

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX
from naksha.spi.cursor import PageCursor, decode_cursor

EXHAUSTED = ""
"""The cursor of a layer without further features."""
_MARK = "v."


class ViewCursor(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of a view.

    It has the id of the last feature returned, the place of its layer (the number of layers if no
    other layer counts), and the cursor of each layer, None for the beginning. `pins` are the
    versions that the layers are read at, if they are pinned.
    """

    id: str
    place: int
    layers: tuple[str | None, ...]
    pins: tuple[str, ...] = ()

    def encoded(self) -> str:
        """Encode the cursor as text for the client."""
        return _MARK + base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    def has_passed(self, id: str, place: int) -> bool:
        """Whether a layer's feature with this id was already returned, or was hidden."""
        return (id, place) <= (self.id, self.place)


def decode_view_cursor(text: str | None, layers: int) -> ViewCursor | None:
    """Parse a cursor made by `ViewCursor.encoded`.

    Raises:
        InvalidArgument: It is not a cursor of a view with this number of layers.
    """
    if text is None:
        return None
    cursor = _decoded(text)
    if cursor is None or len(cursor.layers) != layers or len(cursor.pins) not in (0, layers):
        raise InvalidArgument(
            "The cursor does not belong to this view, or the view's layers have changed; restart "
            "without a cursor",
            field="cursor",
        )
    return cursor


def moved(cursor: str, id: str, *, after: bool) -> str:
    """Move the cursor of a layer right before or after a feature, at the same version.

    Raises:
        InvalidArgument: It cannot be decoded.
    """
    view = _decoded(cursor)
    if view is None:
        plain = decode_cursor(cursor)
        assert plain is not None
        return PageCursor(plain.at, id, INT8_MAX if after else 0).encoded()
    # A layer that was exhausted at the old position may have features after the new one.
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

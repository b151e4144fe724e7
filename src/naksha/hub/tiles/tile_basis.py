"""Dependencies of a tile: the parts that never change, and the collections that do.

Only pipelines whose responses follow from storages alone have a basis. The responses of remote
handlers, of those from other distributions and of transformations may change at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from naksha.hub.auth.rights import FeatureScope, Right
from naksha.hub.auth.row_scope import scope_in
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.handlers.read_only import ReadOnlyHandler
from naksha.hub.handlers.source_id import SourceIdHandler
from naksha.hub.handlers.stored.storage import StorageHandler
from naksha.hub.handlers.tag_filter import TagFilterHandler
from naksha.hub.handlers.validation import ValidationHandler
from naksha.hub.handlers.views.layers import SpaceLayer, ViewLayer
from naksha.hub.handlers.views.view import DEFAULT, ViewHandler
from naksha.hub.pipeline.pipeline import Handler
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.targets import check_kept_by_owner
from naksha.hub.write.conflicted_branches import is_for_solving
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.model.identity.uuids import is_uuid
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq, AtTime, AtTxn, Head
from naksha.spi.storage import Storage, StorageReader
from naksha.versioning.version_refs import (
    MAIN_BRANCH,
    Point,
    RangeRef,
    UuidRef,
    parse_ref,
)

_TRANSPARENT: Final = (
    Authorization,
    ReadOnlyHandler,
    SourceIdHandler,
    TagFilterHandler,
    ValidationHandler,
)
"""Handlers that forward reads; what they change or hide follows from their configuration."""

_LASTING: Final = (AtSeq, AtTxn, AtTime, UuidRef)
"""Points on main that never move once there is a later version."""
_HEADS: Final = frozenset({"", "HEAD", MAIN_BRANCH, f"{MAIN_BRANCH}:HEAD"})


class WatchedCollection(NamedTuple):
    """A collection that a tile is rendered from."""

    storage: Storage
    reader: StorageReader
    """The storage, or a branch of it."""
    collection: str
    overlay: int = MAIN
    """The overlay that is read at HEAD."""
    hides_others: bool = False
    """Whether its features hide, or are merged with, those of other collections, wherever they
    are."""


class TileBasis(NamedTuple):
    """Everything that determines the bytes of a tile, besides its own parameters."""

    parts: tuple[str, ...]
    """Spaces, configurations, rights and storages, with the versions that never change."""
    watched: tuple[WatchedCollection, ...] = ()
    """The collections that are read at HEAD; none for a fixed version."""
    fixed: tuple[WatchedCollection, ...] = ()
    """The collections that are read at a fixed version. While one is dropped, the version seems to
    be empty, until the collection is restored."""
    is_lasting: bool = False
    """Whether the reference means the same version for ever: tags can be moved, and branches with
    the same name be created again."""
    ref: str = ""
    """For the difference of two versions: their numbers."""


async def basis_of(
    context: RequestContext, space_id: str, ref: str, layers: str = DEFAULT
) -> TileBasis | None:
    """Return what determines a tile of a space; None if it cannot be known.

    It is also None for a request that fails, so that its pipeline reports the error.
    """
    try:
        if is_for_solving(ref):
            return None
        if is_range(ref):
            return await _of_difference(context, space_id, ref)
        return await _Spaces(context, ref).basis(space_id, layers)
    except NakshaError:
        return None


class _Spaces:
    """The spaces that one request reads."""

    def __init__(self, context: RequestContext, ref: str) -> None:
        self._context = context
        self._ref = ref

    async def basis(self, space_id: str, layers: str, depth: int = 0) -> TileBasis | None:
        if depth > limits.EVENT_DEPTH_MAX:
            return None
        pipeline = await self._context.configured.pipeline(space_id)
        scope = scope_in(pipeline, self._context.actor.rights, Right.READ_FEATURES)
        if scope.is_nothing:
            return None
        handlers = [stage.handler for stage in pipeline.stages]
        found = await self._of_handlers(handlers, layers, depth)
        if found is None:
            return None
        parts = (space_id, pipeline.fingerprint.hex(), *_rights(scope), *found.parts)
        return found._replace(parts=parts)

    async def _of_handlers(
        self, handlers: Sequence[Handler], layers: str, depth: int
    ) -> TileBasis | None:
        for place, handler in enumerate(handlers):
            if type(handler) is StorageHandler:
                return await self._of_storage(handler)
            if type(handler) is ViewHandler:
                return await self._of_view(handler, handlers[place + 1 :], layers, depth)
            if type(handler) not in _TRANSPARENT:
                return None
        return None

    async def _of_view(
        self, view: ViewHandler, below: Sequence[Handler], layers: str, depth: int
    ) -> TileBasis | None:
        if not (is_head_of_main(self._ref) or _is_lasting(self._ref)):
            return None  # its layers may understand a name differently
        parts: list[str] = [layers]
        watched: list[WatchedCollection] = []
        fixed: list[WatchedCollection] = []
        is_lasting = True
        found = view.layers_of(layers)
        for place, layer in enumerate(found):
            basis = await self._of_layer(layer, below, depth)
            if basis is None:
                return None
            is_last = place + 1 == len(found)
            hides = view.hides and (not is_last or (view.merges and place > 0))
            parts += basis.parts
            fixed += basis.fixed
            is_lasting &= basis.is_lasting
            watched += [one._replace(hides_others=True) for one in basis.watched if hides]
            watched += [one for one in basis.watched if not hides]
        return TileBasis(tuple(parts), tuple(watched), tuple(fixed), is_lasting)

    async def _of_layer(
        self, layer: ViewLayer, below: Sequence[Handler], depth: int
    ) -> TileBasis | None:
        if isinstance(layer, SpaceLayer):
            return await self.basis(layer.space_id, DEFAULT, depth + 1)
        return await self._of_handlers(below, DEFAULT, depth + 1)

    async def _of_storage(self, stored: StorageHandler) -> TileBasis:
        resolved = await stored.resolved(self._context, self._ref)
        storage = resolved.target.storage
        parts = (storage.id, str(storage.number), resolved.collection_id)
        line = resolved.line
        layers = ",".join(f"{layer.overlay}@{layer.txn}" for layer in line.layers)
        read = WatchedCollection(line.root, line.reader, resolved.collection_id, line.overlay)
        if isinstance(resolved.at, Head):
            return TileBasis((*parts, layers), (read,))
        assert isinstance(resolved.at, AtSeq)
        is_lasting = _is_lasting(self._ref) and (
            not _is_time(self._ref)
            or resolved.at.seq_number < (await storage.resolve(HEAD)).seq_number
        )
        return TileBasis((*parts, layers, repr(resolved.at)), (), (read,), is_lasting)


async def _of_difference(context: RequestContext, space_id: str, ref: str) -> TileBasis | None:
    """Return what determines the difference of two versions; HEAD is the last published one.

    Any later version may change it: a feature that has left the tile may be deleted.
    """
    pipeline = await context.configured.pipeline(space_id)
    scope = scope_in(pipeline, context.actor.rights, Right.READ_FEATURES)
    *others, last = [stage.handler for stage in pipeline.stages]
    if not scope.is_everything or type(last) is not StorageHandler:
        return None
    if any(type(handler) not in _TRANSPARENT for handler in others):
        return None
    target = await last.target()
    parsed = parse_ref(ref)
    assert isinstance(parsed, RangeRef)
    old, new = await target.resolver().range(parsed)
    check_kept_by_owner(target, old.version.seq_number)
    numbers = f"{parsed.branch}:{old.version.seq_number}..{new.version.seq_number}"
    layers = (repr(place.line.layers) for place in (old, new))
    storage = target.storage
    named = (storage.id, str(storage.number), target.collection.id, numbers, *layers)
    points = [
        (parsed.first, old.version.seq_number),
        (parsed.last, new.version.seq_number),
    ]
    is_lasting = await _are_lasting(storage, parsed.branch, points)
    parts = (space_id, pipeline.fingerprint.hex(), *named)
    read = WatchedCollection(storage, new.storage, target.collection.id)
    return TileBasis(parts, (), (read,), is_lasting, numbers)


def is_range(ref: str) -> bool:
    """Whether a reference names two versions, to be compared."""
    return ".." in ref and isinstance(parse_ref(ref), RangeRef)


def _rights(scope: FeatureScope) -> Sequence[str]:
    """Return the features that the actor may read as text; grants have no order."""
    return sorted({repr(grant) for grant in scope.grants})


async def _are_lasting(storage: Storage, branch: str, points: Sequence[tuple[Point, int]]) -> bool:
    """Return whether points, with the versions that they mean now, always mean these.

    A time means the last version that has it, and the next version may get the same time.
    """
    if branch != MAIN_BRANCH or not all(isinstance(point, _LASTING) for point, _ in points):
        return False
    times = [number for point, number in points if isinstance(point, AtTime)]
    return not times or max(times) < (await storage.resolve(HEAD)).seq_number


def _is_lasting(ref: str) -> bool:
    """Whether a reference means a version of main for ever; names do not begin with digits."""
    point = ref.removeprefix(f"{MAIN_BRANCH}:")
    return (point[:1].isdigit() and ".." not in point) or is_uuid(point)


def _is_time(ref: str) -> bool:
    """Whether a lasting reference is a time: it has other characters than the digits of a number.

    A time means the last version that has it, and the next version may get the same time.
    """
    point = ref.removeprefix(f"{MAIN_BRANCH}:")
    return not point.isdigit() and not is_uuid(point)


def is_head_of_main(ref: str) -> bool:
    """Whether a reference means HEAD of main, without parsing it."""
    return ref in _HEADS

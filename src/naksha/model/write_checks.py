"""Checks of prepared features that depend on the collection or the storage."""

from __future__ import annotations

from typing import Final

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.features import PreparedFeatures
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.uuids import Uuid, parse_state_id

_POINT_WKB_TYPES: Final = (1, 1001)


def check_points(prepared: PreparedFeatures, info: CollectionInfo) -> None:
    """Refuse geometries other than points if the collection accepts points only."""
    if not info.points_only:
        return
    for id_, wkb in zip(prepared.ids, prepared.wkb, strict=True):
        # Little-endian WKB: one byte order byte, then the type.
        if wkb is not None and int.from_bytes(wkb[1:3], "little") not in _POINT_WKB_TYPES:
            raise InvalidArgument(
                f"Feature {id_!r:.64} must have a Point geometry: collection {info.id!r} accepts "
                "points only",
                field="geometry.type",
                feature_id=id_,
                collection_id=info.id,
            )


def lock_of(state_id: str | None, storage: StorageIdentity, info: CollectionInfo) -> int | None:
    """Return the `i` that HEAD must have; None for ids of other storages, collections, systems."""
    if state_id is None:
        return None
    try:
        reference = parse_state_id(state_id)
    except InvalidArgument:
        return None
    if isinstance(reference, Uuid):
        is_here = reference.collection_number == info.number
    else:
        is_here = reference.collection_id == info.id
    return reference.i if is_here and storage.wrote(reference, info.id) else None

"""Meta features: notes of an application, or of Naksha itself, about a collection.

They are small, have an id and no versions. Ids that begin with `naksha:` are reserved for Naksha
and read-only for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.limits import FEATURE_ID_BYTES_MAX, META_BYTES_MAX

OWN_PREFIX: Final = "naksha:"
"""Prefix of ids that only Naksha writes."""


def encode_meta(feature: Mapping[str, Any]) -> tuple[str, str]:
    """Check a meta feature and return its id and its JSON."""
    id = check_meta_id(feature.get("id"))
    try:
        text = msgspec.json.encode({**feature, "type": "Feature"})
        msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"The meta feature is not JSON: {error}", field="feature", feature_id=id
        ) from error
    if len(text) > META_BYTES_MAX:
        raise LimitExceeded(
            f"The meta feature has {len(text)} bytes; at most {META_BYTES_MAX} are accepted",
            field="feature",
            feature_id=id,
        )
    if b"\\u0000" in text:
        raise InvalidArgument(
            "The meta feature contains U+0000, which cannot be stored",
            field="feature",
            feature_id=id,
        )
    return id, text.decode()


def check_meta_id(id: object) -> str:
    """Check the id of a meta feature that is to be written."""
    if not isinstance(id, str) or not 0 < len(id.encode()) <= FEATURE_ID_BYTES_MAX or "\0" in id:
        raise InvalidArgument(
            f"{id!r:.64} is not a valid id of a meta feature; it must be a text of 1 to"
            f" {FEATURE_ID_BYTES_MAX} bytes",
            field="id",
        )
    if id.startswith(OWN_PREFIX):
        raise InvalidArgument(
            f"Meta features whose id begins with {OWN_PREFIX!r} are reserved for Naksha",
            field="id",
            feature_id=id,
        )
    return id

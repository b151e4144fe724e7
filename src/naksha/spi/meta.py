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
from naksha.model.value_text import value_text

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
            f"The meta feature {id!r:.64} cannot be written as JSON: {error}",
            field="feature",
            feature_id=id,
        ) from error
    if len(text) > META_BYTES_MAX:
        raise LimitExceeded(
            f"The meta feature {id!r:.64} has {len(text)} bytes, but at most {META_BYTES_MAX} are "
            "allowed",
            field="feature",
            feature_id=id,
        )
    if b"\\u0000" in text:
        raise InvalidArgument(
            f"The meta feature {id!r:.64} must not contain the character U+0000 (NUL)",
            field="feature",
            feature_id=id,
        )
    return id, text.decode()


def check_meta_id(id: object) -> str:
    """Check the id of a meta feature that is to be written."""
    if not isinstance(id, str) or not 0 < len(id.encode()) <= FEATURE_ID_BYTES_MAX or "\0" in id:
        raise InvalidArgument(
            f"{value_text(id)} is not a valid id of a meta feature; use a string of 1 to "
            f"{FEATURE_ID_BYTES_MAX} bytes without U+0000 (NUL)",
            field="id",
        )
    if id.startswith(OWN_PREFIX):
        raise InvalidArgument(
            f"The id {id!r:.64} of a meta feature is not allowed: ids that begin with "
            f"{OWN_PREFIX!r} are reserved for Naksha; choose another id",
            field="id",
            feature_id=id,
        )
    return id

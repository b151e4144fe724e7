"""Changes of features, as `WriteSession.apply` writes several of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

PutMode: TypeAlias = Literal["create", "update", "upsert"]


class Put(msgspec.Struct, frozen=True):
    """Features to create, update or upsert.

    See `WriteSession.create`, `update` and `upsert` for the other parameters, of which each mode
    accepts some.
    """

    mode: PutMode
    features: Sequence[Mapping[str, Any]]
    lock: bool = True
    merge: bool = False
    after: Sequence[int] | None = None
    muuids: Sequence[str | None] | None = None
    is_json: bool = False
    """Whether all values of the features were parsed from JSON. Otherwise the storage parses the
    JSON that it has encoded, to find values that JSON does not express."""


class Delete(msgspec.Struct, frozen=True):
    """Features to delete; see `WriteSession.delete`."""

    ids: Sequence[str]
    uuids: Sequence[str | None] | None = None
    masks: bool = True


class Restore(msgspec.Struct, frozen=True):
    """Features to restore; see `WriteSession.restore`."""

    ids: Sequence[str]


Change: TypeAlias = Put | Delete | Restore

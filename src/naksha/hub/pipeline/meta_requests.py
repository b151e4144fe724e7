"""Requests for meta features, which are stored beside the collection of a space."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from naksha.hub.auth.rights import Right
from naksha.hub.pipeline.requests import Request


class ListMeta(Request[list[dict[str, Any]]], frozen=True, kw_only=True, tag="ListMeta"):
    """Read all meta features, ordered by id."""


class GetMeta(Request[dict[str, Any]], frozen=True, kw_only=True, tag="GetMeta"):
    """Read one meta feature."""

    id: str


class _Managing(Request[Any], frozen=True, kw_only=True, tag=""):
    """Base of changes. Meta features belong to the whole space, so they need the manage right."""

    changes: ClassVar[bool] = True

    def needs(self) -> Collection[Right]:
        return (Right.READ_FEATURES, Right.MANAGE_SPACES)


class PutMeta(_Managing, frozen=True, kw_only=True, tag="PutMeta"):
    """Write a meta feature, replacing one with the same id."""

    feature: dict[str, Any]


class RemoveMeta(_Managing, frozen=True, kw_only=True, tag="RemoveMeta"):
    """Remove a meta feature."""

    id: str

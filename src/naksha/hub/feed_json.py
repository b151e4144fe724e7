"""Stub."""

from __future__ import annotations

from naksha.versioning.feed import Published


def encode_published(item: Published, storage_id: str) -> bytes:
    raise AssertionError

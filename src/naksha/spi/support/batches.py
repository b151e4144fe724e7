"""Batches of bounded size, and ranges of names, for catalog backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from naksha.model import limits
from naksha.spi.query.values import end_of_prefix

T = TypeVar("T")

_BEYOND: Final = chr(0x10FFFF) * (limits.POINTER_NAME_BYTES_MAX // 4 + 1)
"""Greater than every name."""


def batches(
    items: Iterable[T],
    count_max: int,
    bytes_max: int | None = None,
    size: Callable[[T], int] = lambda item: 0,
) -> Iterator[list[T]]:
    """Yield the items in order in batches of bounded count and size; a larger item goes alone."""
    batch: list[T] = []
    total = 0
    for item in items:
        item_bytes = size(item)
        too_large = bytes_max is not None and total + item_bytes > bytes_max
        if batch and (len(batch) >= count_max or too_large):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += item_bytes
    if batch:
        yield batch


def name_range(prefix: str, after: str) -> tuple[str, str]:
    """Return the range of names that begin with a prefix and are greater than `after`.

    The lower bound is inclusive and may be `after` itself, which the caller must skip; the upper
    bound is exclusive.
    """
    return max(prefix, after), end_of_prefix(prefix) or _BEYOND

"""Errors of single features.

In a transactional request the first error ends the request. Otherwise it becomes a `Failure` in
the response and the other features are written; the request fails only if all features fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from naksha.hub.pipeline.responses import Failure
from naksha.hub.write.entries import Entry
from naksha.model.errors import (
    Conflict,
    Expired,
    Forbidden,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
)

PER_FEATURE: Final = (InvalidArgument, Conflict, NotFound, Expired, LimitExceeded, Forbidden)
"""Errors that concern one feature and not the others."""


class Failures:
    """Collected errors of single features."""

    def __init__(self, transactional: bool, errors: Sequence[NakshaError] = ()) -> None:
        self.transactional = transactional
        self.errors = list(errors)

    def add(self, error: NakshaError, entry: Entry) -> None:
        """Record an error of a feature; raise it in a transactional request."""
        set_entry(error, entry)
        if self.transactional:
            raise error
        self.errors.append(error)

    @contextmanager
    def of(self, entry: Entry) -> Iterator[None]:
        """Attribute errors in the block to a feature."""
        try:
            yield
        except PER_FEATURE as error:
            self.add(error, entry)
        except RecursionError:
            self.add(
                InvalidArgument(f"Feature {entry.id!r:.64} is nested too deeply; flatten it"), entry
            )

    def check_any_left(self, count: int) -> None:
        """Raise the first error, with all others attached, if all `count` features failed."""
        if self.errors and len(self.errors) == count:
            first = self._in_order()[0]
            first.failures = self.reported()
            raise first

    def reported(self) -> tuple[Failure, ...]:
        """Return the failures in request order."""
        return tuple(map(failure_of, self._in_order()))

    def _in_order(self) -> list[NakshaError]:
        return sorted(self.errors, key=lambda error: error.position or 0)


def set_entry(error: NakshaError, entry: Entry) -> None:
    """Set the feature id and the position of an error."""
    error.feature_id = error.feature_id or entry.id
    error.position = entry.position


def failure_of(error: NakshaError) -> Failure:
    """Convert an error to a part of the response."""
    return Failure(
        id=error.feature_id,
        position=error.position,
        message=error.message,
        code=error.code,
        field=error.field,
    )

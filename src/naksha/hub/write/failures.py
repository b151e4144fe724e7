"""What went wrong with which feature.

Where all must go right, the first such error ends the request. Else it becomes a `Failure` of the
answer, and the others go on; when none is left that could, the request fails after all.
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
"""Errors that say something about one feature, and nothing about the others."""


class Failures:
    """The errors of single features."""

    def __init__(self, transactional: bool, errors: Sequence[NakshaError] = ()) -> None:
        self.transactional = transactional
        self.errors = list(errors)

    def add(self, error: NakshaError, entry: Entry) -> None:
        """Remember an error of a feature, or raise it."""
        about(error, entry)
        if self.transactional:
            raise error
        self.errors.append(error)

    @contextmanager
    def of(self, entry: Entry) -> Iterator[None]:
        """What goes wrong in the block is about a feature."""
        try:
            yield
        except PER_FEATURE as error:
            self.add(error, entry)
        except RecursionError:
            self.add(InvalidArgument("It is nested too deep"), entry)

    def check_any_left(self, count: int) -> None:
        """When all of so many features failed, the first error is that of the request; it has all
        of them, so that the answer can name them."""
        if self.errors and len(self.errors) == count:
            first = self._in_order()[0]
            first.failures = self.reported()
            raise first

    def reported(self) -> tuple[Failure, ...]:
        """In the order of the request."""
        return tuple(map(failure_of, self._in_order()))

    def _in_order(self) -> list[NakshaError]:
        return sorted(self.errors, key=lambda error: error.position or 0)


def about(error: NakshaError, entry: Entry) -> None:
    """Say in an error which feature it is about."""
    error.feature_id = error.feature_id or entry.id
    error.position = entry.position


def failure_of(error: NakshaError) -> Failure:
    """An error as a part of an answer."""
    return Failure(
        id=error.feature_id,
        position=error.position,
        message=error.message,
        code=error.code,
        field=error.field,
    )

"""The table of outcomes: every error of the tree, and only these."""

from collections.abc import Iterator

import pytest

from naksha.model import errors
from naksha.model.errors import (
    Busy,
    Conflict,
    NakshaError,
    RealmChanged,
    Retryable,
    TimedOut,
    Unavailable,
)
from naksha.model.status_codes import EXIT_INTERRUPTED, OUTWARD, status_codes_of


def tree(root: type[NakshaError]) -> Iterator[type[NakshaError]]:
    """The errors of the model; others may derive further ones."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


ALL = list(tree(NakshaError))


def test_every_error_has_a_code_of_its_own_and_a_row() -> None:
    assert sorted(OUTWARD) == sorted(error.code for error in ALL)


@pytest.mark.parametrize("error", ALL)
def test_numbers_are_in_their_ranges(error: type[NakshaError]) -> None:
    status, code = status_codes_of(error)
    assert 400 <= status <= 599
    assert 1 <= code < 126
    assert code != EXIT_INTERRUPTED


@pytest.mark.parametrize("error", ALL)
def test_an_error_is_of_the_same_kind_as_its_parent(error: type[NakshaError]) -> None:
    parent = error.__bases__[0]
    if issubclass(parent, NakshaError) and parent is not NakshaError:
        # What a program does next is the same; over HTTP a child may be told apart.
        own, inherited = status_codes_of(error), status_codes_of(parent)
        assert own.http_status == inherited.http_status or own.exit_code == inherited.exit_code


def test_only_repeatable_errors_are_marked_retryable() -> None:
    repeatable = {error for error in ALL if issubclass(error, Retryable)}
    assert repeatable == {Retryable, Unavailable, RealmChanged, Busy, TimedOut}
    assert {error for error in ALL if status_codes_of(error).exit_code in (69, 75)} == repeatable
    assert {error for error in ALL if status_codes_of(error).http_status == 503} == repeatable - {
        TimedOut
    }
    assert status_codes_of(TimedOut).http_status == 504


def test_an_error_from_elsewhere_is_seen_as_its_parent() -> None:
    class TagMoved(Conflict):
        code = "tag_moved_of_a_test"

    assert status_codes_of(TagMoved("moved")) == status_codes_of(Conflict)

"""Conformance: random transactions give the same results on a storage and on the oracle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from naksha.spi.storage import Storage
from naksha.testing.models.stateful import run_machine


class TestAgainstTheOracle:
    """Random transactions against the oracle.

    The tests need the fixture `open_storage`: a function that opens a storage with empty data in
    the event loop in which it is called.
    """

    @pytest.mark.timeout(600)
    def test_a_storage_answers_as_the_oracle_does(
        self, open_storage: Callable[[], Awaitable[Storage]]
    ) -> None:
        run_machine(open_storage)

    @pytest.mark.long
    @pytest.mark.timeout(7200)
    def test_for_a_long_time(self, open_storage: Callable[[], Awaitable[Storage]]) -> None:
        run_machine(open_storage, long=True)

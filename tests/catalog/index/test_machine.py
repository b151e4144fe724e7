"""Random operations on an index and on a plain dict with equal results (I1)."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.catalog.index.machine import IndexMachine

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


def test_an_index_is_a_sorted_map() -> None:
    few = settings(max_examples=60, stateful_step_count=30, suppress_health_check=QUIET)
    run_state_machine_as_test(IndexMachine, settings=few)


@pytest.mark.long
def test_an_index_is_a_sorted_map_in_many_more_cases() -> None:
    many = settings(max_examples=1000, stateful_step_count=60, suppress_health_check=QUIET)
    run_state_machine_as_test(IndexMachine, settings=many)

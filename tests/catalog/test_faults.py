"""Many commits with a fault in every twentieth call: none lost, doubled or dangling."""

import pytest

from naksha.memory import MemoryCatalog
from naksha.testing.catalog.suite_commits import check_commits_under_faults


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_and_nothing_is_doubled(seed: int) -> None:
    backend = await MemoryCatalog.open("memory:")
    await check_commits_under_faults(
        backend, "faulty", commits=1_000, writers=10, rate=0.05, seed=seed
    )


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_nothing_is_lost_in_a_hundred_thousand_commits() -> None:
    backend = await MemoryCatalog.open("memory:")
    await check_commits_under_faults(
        backend, "faulty", commits=100_000, writers=50, rate=0.05, seed=3
    )

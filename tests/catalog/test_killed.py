"""A process killed during commits: acknowledged commits exist once, and nothing dangles."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from naksha.catalog.backends import open_backend
from naksha.testing.catalog.suite_commits import (
    check_log,
    check_nothing_dangles,
    committer_on,
    tallies,
)

WRITERS = 4


@pytest.fixture(params=["sqlite", "postgresql", "redis", "mariadb"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new catalog on every database that outlives a process."""
    fresh: dict[str, Callable[[], str]] = {
        "sqlite": lambda: f"file:{tmp_path / 'catalog.naksha'}",
        "postgresql": lambda: str(request.getfixturevalue("database")),
        "redis": lambda: str(next(request.getfixturevalue("redis_locations"))),
        "mariadb": lambda: str(next(request.getfixturevalue("mariadb_locations"))),
    }
    return fresh[request.param]()


def killed_after(location: str, realm: str, seconds: float) -> Iterator[tuple[str, int]]:
    """Return the commits that were acknowledged to a process before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.catalog.killed", location, realm, str(WRITERS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    for line in (first + rest).splitlines(keepends=True):
        if line.endswith("\n"):
            number, count = line.split()
            yield f"w{number}", int(count)


async def check_kills(location: str, kills: int) -> None:
    rng = random.Random(location)
    backend = await open_backend(location)
    for kill in range(kills):
        realm = f"killed-{kill}"
        reported = dict(killed_after(location, realm, rng.random() * 0.3))
        committer = await committer_on(backend, realm)
        last = (await tallies(committer))[-1].counts
        # A commit may have been made and not told; never the other way round, never two.
        assert all(last[writer] - count in (0, 1) for writer, count in reported.items())
        await check_log(committer, last)
        await check_nothing_dangles(backend, realm)
    await backend.close()


async def test_nothing_acknowledged_is_lost(location: str) -> None:
    await check_kills(location, kills=2)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_with_many_kills(location: str) -> None:
    await check_kills(location, kills=40)

"""The kinds of jobs that the test hubs can run."""

from __future__ import annotations

import asyncio

import pytest

from naksha.hub.jobs.kinds import JobKinds
from tests.hub.jobs.support import site


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> JobKinds:
    """The jobs that a process which knows the sample ones tells of, asked once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site(tmp_path_factory.mktemp("site")).items():
            patch.setenv(name, value)
        made = JobKinds()
        asyncio.run(made.all())
    made._line = asyncio.Lock()  # it belongs to the loop that used it first
    return made

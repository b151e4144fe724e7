"""Configuration of all tests: the database fixtures, and the selection of long tests."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.hanging import watch_end, watch_test

# A run in the background inherits that interrupts are ignored; so would the processes that tests
# start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules and tests stay until the end: nothing of them is garbage, while there are more and more.
gc.disable()

pytest_plugins = ["naksha.testing.fixtures"]

LONG_TEST_SECONDS_MAX = 1800
GC_THRESHOLD = 20_000
"""Objects between two looks for garbage; Python's 700 cost tests a twentieth of their time."""
SPARK = "tests/spark"

# Examples have no deadline, because the machine may be busy; pytest-timeout bounds the whole test.
# Fewer examples than Hypothesis takes by itself, to save time; the long run has a thousand.
settings.register_profile("short", deadline=None, print_blob=True, max_examples=40)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="run the tests that take minutes too, and more examples"
    )


class Scheduling(LoadScopeScheduling):
    """A module's tests run in one process, and all tests on Spark in the same: each process that
    had some would start a session of its own, which takes longer than most tests."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(f"{SPARK}/") else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    watch = watch_test(item)
    try:
        return (yield)
    finally:
        watch.end()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    watch_end(session.config)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LONG_TEST_SECONDS_MAX))
        return
    long = {item: None for item in items if item.get_closest_marker("long")}
    config.hook.pytest_deselected(items=list(long))
    items[:] = [item for item in items if item not in long]

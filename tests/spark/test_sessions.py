"""Sessions: whom a driver listens to."""

from __future__ import annotations

import pytest

from naksha.spark.sessions import LOOPBACK, wished


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "spark://127.0.0.1:7077", "spark://[::1]:1"]
)
def test_a_driver_whose_executors_are_here_listens_to_nobody_else(master: str) -> None:
    settings = wished(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == LOOPBACK


@pytest.mark.parametrize("master", ["spark://one.example:7077,two.example:7077", "yarn"])
def test_executors_elsewhere_find_their_driver(master: str) -> None:
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(wished(master))

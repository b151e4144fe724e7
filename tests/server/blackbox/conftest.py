"""Hubs with keys and two realms, and tokens for them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.rights import Right
from naksha.hub.auth.tokens import mint
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.cli.command import naksha

EVERYTHING: dict[str, Any] = {"naksha": {right.value: [{}] for right in Right}}
OTHER_REALM = "other"
Minter = Callable[..., str]


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the key that signs tokens."""
    path = tmp_path_factory.mktemp("keys") / "secret"
    path.write_text("a secret that is long enough for HS256\n")
    return path


@pytest.fixture(scope="session")
def minter(secret: Path) -> Minter:
    """Makes tokens, with all rights unless told otherwise."""
    key = read_signing_key(KeyFile.parse(f"secret:{secret}"))

    def make(seconds: float = 3600, **claims: Any) -> str:
        return mint(key, {"appId": "test", "urm": EVERYTHING, **claims}, seconds=seconds)

    return make


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def guarded_hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, secret: Path
) -> Iterator[HubServer]:
    """A hub on each storage that knows tokens, with the realms `default` and `other`."""
    directory = tmp_path_factory.mktemp("hub")
    # Realms may name any file here, so that what is asked gets further than to that refusal.
    arguments = ["--keys", f"secret:{secret}", "--allowed-locations", "file:"]
    arguments += ["--job-parallel", "0"]  # What is submitted is looked at, not run.
    if request.param == "file":
        yield from _guarded(directory, f"file:{directory}/{{realm}}.naksha", arguments)
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        yield from _guarded(directory, dsn, arguments)


def _guarded(directory: Path, storage: str, arguments: list[str]) -> Iterator[HubServer]:
    flags = ["--catalog", f"file:{directory}/hub.catalog", "--realm-storage", storage]
    made = naksha("realm", "create", OTHER_REALM, *flags)
    assert made.returncode == 0, made.stderr
    with HubServer(directory, storage=storage, arguments=arguments) as server:
        yield server

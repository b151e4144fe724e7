"""The pages with curl: all their blocks in order, run with the user's curl."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from naksha.testing.servers.hub_server import HubServer
from tests.docs.blocks import ROOT, examples, plain

QUIET = 'curl() { command curl --silent --show-error "$@" && echo; }\n'
"""Without its progress, and with an end of the line that answers do not have."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path) as server:
        yield server


@pytest.mark.parametrize("name", ["tour", "feed", "tiles"])
def test_the_page_has_the_promised_output(name: str, hub: HubServer, tmp_path: Path) -> None:
    first, *blocks = examples(ROOT / "docs" / f"{name}.md", "bash")
    assert first.code == "HUB=localhost:8080/hub\n"
    assert all(block.promised for block in blocks)
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"HUB={hub.url}/hub\n{QUIET}{block.code}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        # A stream has no end, so curl says why it ended it.
        said = [line for line in done.stderr.splitlines() if "timed out" not in line]
        assert (done.returncode, said) == (0, []), f"line {block.line}"
        assert plain(done.stdout) == plain(block.promised or ""), f"line {block.line}"

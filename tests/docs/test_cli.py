"""The page of the command line: its examples in order, and whether it has every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from naksha.cli.main import app
from naksha.testing.servers.hub_server import HubServer
from tests.cli.command import environment
from tests.docs.blocks import ROOT, Example, examples

PAGE = ROOT / "docs" / "cli.md"
RUNNING = "bash running"
ELSEWHERE = {"serve", "sample", "job"}
"""The first words of commands that other pages show, and that other tests run."""


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[str]:
    found: Any = typer.main.get_command(app) if command is None else command
    if path[:1] and path[0] in ELSEWHERE:
        return
    if hasattr(found, "list_commands"):
        for name in found.list_commands(None):
            yield from commands(found.get_command(None, name), (*path, name))
    else:
        yield " ".join(path)


def run(block: Example, folder: Path, **variables: str) -> list[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=folder,
        env=environment(PATH=path, **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.timeout(600)
def test_the_examples_work_in_order(tmp_path: Path) -> None:
    data = tmp_path / "naksha-data"
    for block in examples(PAGE, "bash"):
        if block.kind == RUNNING:
            catalog, storage = f"file:{data}/hub.catalog", f"file:{data}/{{realm}}.naksha"
            flags = ["--data", str(data)]
            with HubServer(tmp_path, catalog=catalog, storage=storage, arguments=flags) as server:
                printed = run(block, tmp_path, NAKSHA_HUB=server.url)
        else:
            printed = run(block, tmp_path)
        if block.promised is not None:
            assert printed == block.promised.splitlines(), f"line {block.line}"


def test_the_page_runs_every_command() -> None:
    code = "\n".join(block.code for block in examples(PAGE, "bash"))
    missing = [one for one in commands() if not re.search(rf"^naksha {one}\b", code, re.MULTILINE)]
    assert missing == []

"""Uniqueness of ids across several processes on one database."""

from __future__ import annotations

import array
import asyncio
import sys
from pathlib import Path

import pytest

from tests.catalog.cluster import id_process

COUNT = 100_000
PROCESSES = 2


async def ids_of_processes(location: str) -> list[list[int]]:
    """Return the ids of processes that lease nodes and start at the same time."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            id_process.__name__,
            location,
            str(COUNT),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    said = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert all(process.returncode == 0 for process in processes)
    return [array.array("q", out).tolist() for out, _ in said]


def check(given: list[list[int]]) -> None:
    assert all(len(ids) == COUNT and ids == sorted(ids) for ids in given)
    first, second = given
    assert max(first[0], second[0]) < min(first[-1], second[-1])  # they were at it together
    assert len({id for ids in given for id in ids}) == PROCESSES * COUNT


async def test_two_processes_on_one_file(tmp_path: Path) -> None:
    check(await ids_of_processes(f"file:{tmp_path / 'catalog.db'}"))


@pytest.mark.long
async def test_two_processes_on_one_server(database: str) -> None:
    check(await ids_of_processes(database))

"""The programs of PostgreSQL that backups run: what their arguments and environment have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from naksha.model.errors import Unavailable
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance.backup import back_up_storage, dump_schema, without_password
from tests.psql.support import Connect


@pytest.mark.parametrize(
    ("dsn", "address", "password"),
    [
        ("postgresql:///maps", "postgresql:///maps", None),
        ("postgresql:///maps?password=a%20b", "postgresql:///maps", "a b"),
        (
            "postgresql://me:p%40ss@db:1/maps?pass%77ord=no&sslmode=disable",
            "postgresql://me@db:1/maps?sslmode=disable",
            "p@ss",
        ),
        (
            "postgresql:///maps?host=/run/x&password=secret&port=2",
            "postgresql:///maps?host=/run/x&port=2",
            "secret",
        ),
    ],
)
def test_a_password_is_taken_out_of_a_location(
    dsn: str, address: str, password: str | None
) -> None:
    assert without_password(dsn) == (address, password)


async def test_no_password_is_an_argument(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\necho "$PGPASSWORD" > {tmp_path}/secret\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    async def nothing(_: Direct) -> None:
        """Count nothing."""

    separator = "&" if "?" in database else "?"
    dsn = f"{database}{separator}password=hunter2"
    await dump_schema(dsn, "naksha", tmp_path / "copy", nothing)
    arguments = (tmp_path / "arguments").read_text()
    assert "hunter2" not in arguments
    assert "--dbname=postgresql://" in arguments
    assert (tmp_path / "secret").read_text() == "hunter2\n"
    assert "PGPASSWORD" not in os.environ


@pytest.mark.parametrize("times", [1, 5])
async def test_a_dump_begins_again_when_a_table_was_dropped_since_its_snapshot(
    storage: PsqlStorage, bare: str, connect: Connect, tmp_path: Path, times: int
) -> None:
    """pg_dump reads the names in its snapshot, then locks the tables: growth and merges of
    partitions may have replaced some of them meanwhile."""
    other, begun = await connect(), 0

    async def replace(connection: Direct) -> None:
        nonlocal begun
        begun += 1
        await connection.fetchval("SELECT 1 FROM pg_class LIMIT 1")  # takes the snapshot
        if begun <= times:
            await other.execute(f"DROP TABLE naksha_stage_{begun}_p0")

    for n in range(1, times + 1):
        await other.execute(f"CREATE TABLE naksha_stage_{n}_p0 ()")
    if times > 1:
        with pytest.raises(Unavailable, match="does not exist"):
            await dump_schema(bare, "naksha", tmp_path / "copy", replace)
        return
    await dump_schema(bare, "naksha", tmp_path / "copy", replace)
    assert begun == 2
    assert (tmp_path / "copy").stat().st_size > 100_000


async def test_a_dump_that_fails_for_another_reason_is_not_repeated(
    storage: PsqlStorage, bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f"#!/bin/sh\necho again >> {tmp_path}/runs\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(Unavailable, match="pg_dump failed"):
        await back_up_storage(bare, "naksha", tmp_path / "copy")
    assert (tmp_path / "runs").read_text() == "again\n"

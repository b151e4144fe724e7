"""The programs of PostgreSQL that backups run: what their arguments and environment have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance.backup import dump_schema, without_password


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

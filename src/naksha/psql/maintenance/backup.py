"""Backup of a schema with pg_dump, in the snapshot in which its contents are counted; restore."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from naksha.model.errors import Conflict, NotSupported, Unavailable
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked
from naksha.psql.schema.install import check_installed, search_path
from naksha.psql.sql import ident, queries, sql
from naksha.spi.backups import StorageFacts
from naksha.spi.locations import redacted

T = TypeVar("T")
_POSTGIS: Final = "postgis"
_PASSWORD: Final = "password"  # noqa: S105 - the name of a parameter
_DUMP_TRIES_MAX: Final = 5
_OUTPUT_MAX: Final = 2_000
"""Characters of a program's output in an error message."""

_log = logging.getLogger(__name__)


async def back_up_storage(dsn: str, schema: str, file: Path) -> StorageFacts:
    """Dump the schema of a storage to a new file, and return the facts of the same snapshot."""

    async def facts(connection: Direct) -> StorageFacts:
        await check_installed(connection, schema, redacted(dsn))
        path = await search_path(connection, schema)
        await connection.fetchval(queries()["search_path_set"], path, False)
        row = await connection.fetchrow(queries()["backup_storage"])
        assert row is not None
        id, number, last = row
        names = [row["id"] for row in await connection.fetch(queries()["backup_collections"])]
        counts = {
            name: await connection.fetchval(sql("backup_count", table=ident(name)))
            for name in names
        }
        postgis = await connection.fetchval(queries()["postgis_schema"])
        return StorageFacts(id, number, last, counts, {_POSTGIS: postgis})

    return await dump_schema(dsn, schema, file, facts)


async def dump_schema(
    dsn: str, schema: str, file: Path, look: Callable[[Direct], Awaitable[T]]
) -> T:
    """Dump a schema to a new file, in the snapshot in which `look` reads it first.

    pg_dump reads the names of the tables in the snapshot, then locks the tables. It fails if one
    was dropped or renamed in between, by growth or by a merge of partitions, and is repeated then.
    """
    for attempt in range(1, _DUMP_TRIES_MAX + 1):
        with translated():
            connection = await connect_checked(dsn)
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await connection.execute(queries()["backup_timeout"])
                    found = await look(connection)
                    snapshot = await connection.fetchval(queries()["backup_snapshot"])
                    if attempt == 1:
                        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
                    try:
                        await _run(
                            "pg_dump",
                            dsn,
                            *("--format=custom", f"--snapshot={snapshot}", "--no-password"),
                            *(f"--schema={ident(schema)}", f"--file={file}"),
                        )
                        return found
                    except Unavailable as error:
                        changed = await connection.fetchval(queries()["backup_changed"], schema)
                        if changed is None or attempt == _DUMP_TRIES_MAX:
                            raise
                        _log.info("Table %s was replaced; repeating: %s", changed, error)
            finally:
                await connection.close()
    raise AssertionError("unreachable")


async def check_empty(dsn: str, schema: str, extensions: Mapping[str, str] | None = None) -> None:
    """Raise Conflict if the database has the schema, NotSupported if PostGIS does not fit."""
    with translated():
        connection = await connect_checked(dsn)
        try:
            await _check_empty(connection, dsn, schema)
            transaction = connection.transaction()
            await transaction.start()
            try:
                await _prepare(connection, extensions)
            finally:
                await transaction.rollback()
        finally:
            await connection.close()


async def restore_schema(
    dsn: str, schema: str, file: Path, extensions: Mapping[str, str] | None = None
) -> None:
    """Restore a schema from its dump, in one transaction.

    Objects belong to the role that restores them; privileges of other roles are not restored.
    """
    with translated():
        connection = await connect_checked(dsn)
        try:
            await _check_empty(connection, dsn, schema)
            async with connection.transaction():
                await _prepare(connection, extensions)
        finally:
            await connection.close()
    await _run(
        "pg_restore",
        dsn,
        *("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
        *("--no-password", str(file)),
    )


async def _prepare(connection: Direct, extensions: Mapping[str, str] | None) -> None:
    """Create PostGIS in the schema that the dump names, if the dump needs it.

    Raises:
        NotSupported: It cannot be created, or is in another schema.
    """
    expected = (extensions or {}).get(_POSTGIS)
    if expected is None:
        return
    found = await connection.fetchval(queries()["postgis_schema"])
    if found is None:
        try:
            await connection.execute(sql("restore_postgis", schema=ident(expected)))
        except asyncpg.PostgresError as error:
            raise NotSupported(
                "PostGIS is not installed in the database and this role cannot create it; the "
                f"administrator has to run CREATE EXTENSION postgis SCHEMA {ident(expected)}: "
                f"{error}"
            ) from error
    elif found != expected:
        raise NotSupported(
            f"PostGIS is in the schema {found!r} of the database, and in {expected!r} in the "
            "backup; restore to a database that has it there",
            field="location",
        )


async def _check_empty(connection: Direct, dsn: str, schema: str) -> None:
    if await connection.fetchval(queries()["restore_schema"], schema):
        raise Conflict(
            f"The database {redacted(dsn)!r} has a schema {schema!r}; restore to a location "
            "without data",
            field="location",
        )


async def _run(program: str, dsn: str, *arguments: str) -> None:
    """Run a client program of PostgreSQL.

    Raises:
        NotSupported: It is not installed.
        Unavailable: It failed; the message has its output.
    """
    found = shutil.which(program)
    if found is None:
        raise NotSupported(
            f"The program {program} is not on the PATH; install the client programs of PostgreSQL "
            "(Debian: postgresql-client)"
        )
    address, password = without_password(dsn)
    secret = {} if password is None else {"PGPASSWORD": password}
    process = await asyncio.create_subprocess_exec(
        found,
        f"--dbname={address}",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **secret},
    )
    try:
        _, errors = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        text = " ".join(errors.decode(errors="replace").split())[:_OUTPUT_MAX]
        raise Unavailable(f"{program} failed: {text}")


def without_password(dsn: str) -> tuple[str, str | None]:
    """Split a DSN into one without its password, and the password.

    Arguments of a process are visible to all users, its environment is not. As in the driver, the
    password before the host takes precedence over the parameter.
    """
    parts = urlsplit(dsn)
    values = parse_qs(parts.query, keep_blank_values=True).get(_PASSWORD, [])
    if parts.password is None and not values:
        return dsn, None
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(
        one for one in parts.query.split("&") if unquote(one.partition("=")[0]) != _PASSWORD
    )
    address = f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"
    password = values[-1] if parts.password is None else unquote(parts.password)
    return (f"{address}?{query}" if query else address), password

"""Installation of a storage's schema, and upgrades of older ones on a live database.

The schema files are idempotent and describe the current schema; running them again takes no lock
that blocks readers or writers. Changes to existing tables or types are steps in `sql/migrations`,
which is append-only: `NNNN_pre_slug` runs before the schema files and `NNNN_post_slug` after them,
all in one transaction; `NNNN_online_slug` builds indices and triggers afterwards, while others
write. Completed steps are recorded in `naksha_migration`; a fresh schema records all of them from
the start.

The version of the schema is recorded there, too. A release refuses a schema of a later version than
its own, instead of replacing its functions by older ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from importlib import resources
from typing import Final, NamedTuple

import asyncpg

from naksha.model.errors import (
    InvalidArgument,
    NotFound,
    NotSupported,
    ReadOnly,
    Retryable,
    Unavailable,
)
from naksha.model.identity.names import storage_id_from
from naksha.psql.connection.driver import Connection
from naksha.psql.maintenance.rounds import alone
from naksha.psql.schema.online import LOCK_MS_MAX, patiently, run_step
from naksha.psql.sql import ident, queries, schema_files, sql

Steps = list[tuple[str, str]]
DEFAULT_SCHEMA: Final = "naksha"
SCHEMA_VERSION: Final = 1
"""Incremented by the first change of the schema files after a release."""
_VERSION: Final = "version:"
_log = logging.getLogger(__name__)


def migrations() -> Steps:
    """Return (name, text) of all migration steps, in execution order."""
    folder = resources.files("naksha.psql.sql") / "migrations"
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    return [(name.removesuffix(".sql"), (folder / name).read_text("utf-8")) for name in files]


async def search_path(connection: Connection, schema: str) -> str:
    """Return the search path of a storage's connections.

    The storage's schema comes first, then that of PostGIS. Temporary objects come last, so that
    they never shadow those of the storage.
    """
    postgis = await connection.fetchval(queries()["postgis_schema"])
    if postgis is None:
        raise NotSupported(
            "PostGIS is not installed in the database; its administrator has to run CREATE "
            "EXTENSION postgis"
        )
    return f"{ident(schema)}, {ident(postgis)}, pg_temp"


async def check_installed(connection: Connection, schema: str, place: str) -> None:
    """Raise NotFound if the schema holds no storage; `place` names the database in the message."""
    if not await connection.fetchval(queries()["schema_installed_in"], schema):
        raise NotFound(
            f"Schema {schema!r} of {place} holds no storage; correct the location, or open it "
            "without must_exist",
            field="storage",
        )


class SchemaPrivileges(NamedTuple):
    """Privileges of a connection's role on an existing storage."""

    owner: str
    is_owner: bool
    may_write: bool

    @property
    def maintains(self) -> bool:
        """Whether the role can drop and alter the tables."""
        return self.is_owner and self.may_write


async def privileges_on(connection: Connection, schema: str) -> SchemaPrivileges | None:
    """Return the privileges on the storage in a schema; None if it holds no storage."""
    row = await connection.fetchrow(queries()["schema_access"], schema)
    return None if row is None else SchemaPrivileges(*row)


async def use_installed(connection: Connection, schema: str, storage_id: str | None) -> str:
    """Check that a storage can be used without an upgrade, and return its id.

    Raises:
        NotSupported: Another release has set the schema up.
        InvalidArgument: It is not the storage `storage_id`.
    """
    path = await search_path(connection, schema)
    await connection.fetchval(queries()["search_path_set"], path, False)
    done = {row["name"] for row in await connection.fetch(queries()["migrations_done"])}
    check_version(done)
    steps = {name for name, _ in migrations() if "_online_" not in name}
    if not {_version_name(), *steps} <= done:
        raise NotSupported(
            f"Schema {schema!r} was written by an older Naksha; open the storage once as the owner "
            "of the schema to upgrade it"
        )
    owner: str = await connection.fetchval(queries()["storage_info"])
    _check_id(owner, storage_id)
    return owner


def _check_id(found: str, storage_id: str | None) -> None:
    if storage_id is not None and found != storage_id:
        raise InvalidArgument(
            f"The schema holds storage {found!r}, not {storage_id!r}; correct the location or the "
            "id",
            field="storage_id",
        )


async def install(
    connection: Connection,
    schema: str,
    storage_id: str | None,
    number: int,
    steps: Steps | None = None,
    *,
    new_id: str | None = None,
) -> str:
    """Create or upgrade the schema, and return the id of the storage.

    Safe to call concurrently and while others write. The id must be `storage_id` if that is given.
    `new_id` is the id of a new storage; by default it is derived from the name of the schema or the
    database.
    """
    access = await privileges_on(connection, schema)
    if access is not None and not access.may_write:
        raise ReadOnly(
            f"The storage in schema {schema!r} is read-only for this role or server; open it with "
            "read_only=True"
        )
    if access is not None and not access.is_owner:
        return await use_installed(connection, schema, storage_id)
    await _need_postgis(connection)
    every = migrations() if steps is None else steps
    name = storage_id or new_id or await default_id(connection, schema)
    owner, left = await patiently(lambda: _install(connection, schema, name, number, every))
    if left:
        await connection.fetchval(
            queries()["search_path_set"], await search_path(connection, schema), False
        )
        await _finish_online(connection, left)
    _check_id(owner, storage_id)
    return owner


async def default_id(connection: Connection, schema: str) -> str:
    """Derive the id of a new storage from its schema, or from the database for the default one."""
    if schema != DEFAULT_SCHEMA:
        return storage_id_from(schema)
    return storage_id_from(await connection.fetchval(queries()["database_name"]))


async def _install(
    connection: Connection, schema: str, name: str, number: int, steps: Steps
) -> tuple[str, Steps]:
    """Install all atomic steps; return the id of the storage, and the remaining steps."""
    async with connection.transaction():
        await connection.fetchval(queries()["schema_lock"], schema)
        await connection.execute(sql("schema_create", schema=ident(schema)))
        path = await search_path(connection, schema)
        await connection.fetchval(queries()["search_path_set"], path, True)
        await _need_all_rows(connection)
        left = await _bring_up_to_date(connection, steps)
        await connection.execute(queries()["storage_insert"], name, number)
        owner: str = await connection.fetchval(queries()["storage_info"])
    return owner, left


async def _finish_online(connection: Connection, steps: Steps) -> None:
    """Run the steps that are done while others write.

    They affect performance only, not correctness. When another process is running them, or
    maintains the storage for long, that process or the next one to open the storage completes them.
    """
    try:
        async with alone(connection):
            for name, text in steps:
                await run_step(connection, text)
                await connection.execute(queries()["migrations_record"], [name], _current())
    except Retryable as error:
        _log.warning("The upgrade is postponed until the storage is opened again: %s", error)


async def _need_postgis(connection: Connection) -> None:
    if await connection.fetchval(queries()["postgis_schema"]) is not None:
        return
    try:
        # Another session may create it at the same moment; then it exists as well.
        with contextlib.suppress(asyncpg.UniqueViolationError):
            await connection.execute(queries()["postgis_create"])
    except asyncpg.PostgresError as error:
        raise NotSupported(
            "PostGIS is not installed in the database and this role cannot create it; the "
            f"administrator has to run CREATE EXTENSION postgis: {error}"
        ) from error


async def _need_all_rows(connection: Connection) -> None:
    """Refuse a logical replica whose initial copy is not complete.

    Without its rows it would be taken for a new storage, given another id, and read in part.
    """
    table = await connection.fetchval(queries()["table_being_copied"])
    if table is not None:
        raise Unavailable(
            f"The replica is incomplete: table {table!r} is still being copied; retry later"
        )


async def _bring_up_to_date(connection: Connection, steps: Steps) -> Steps:
    """Run schema files and steps as needed; return the steps to be done online afterwards."""
    fresh = not await connection.fetchval(queries()["schema_installed"])
    done: set[str] = set()
    if not fresh:
        done = {row["name"] for row in await connection.fetch(queries()["migrations_done"])}
    check_version(done)
    names = {name for name, _ in steps}
    unknown = {name for name in done if not name.startswith(("schema:", _VERSION))} - names
    if unknown:
        raise NotSupported(
            f"The storage was upgraded by a newer Naksha (step {max(unknown)}); upgrade Naksha"
        )
    missing = [] if fresh else [(name, text) for name, text in steps if name not in done]
    online = [(name, text) for name, text in missing if "_online_" in name]
    version = _version_name()
    if {_current(), version} <= done and missing == online:
        return online
    await connection.fetchval(queries()["lock_timeout"], str(LOCK_MS_MAX), True)
    pre = [text for name, text in missing if "_pre_" in name]
    post = [text for name, text in missing if "_post_" in name]
    for text in [*pre, *(text for _, text in schema_files()), *post]:
        await connection.execute(text)
    made = names - done - {name for name, _ in online}
    made |= {version} - done
    await connection.execute(queries()["migrations_record"], sorted(made), _current())
    return online


def _version_name() -> str:
    return f"{_VERSION}{SCHEMA_VERSION:05}"


def check_version(done: set[str]) -> None:
    """Raise NotSupported if a newer release has set the schema up.

    `done` holds the names of the recorded steps.
    """
    found = [int(name.removeprefix(_VERSION)) for name in done if name.startswith(_VERSION)]
    newest = max(found, default=0)
    if newest > SCHEMA_VERSION:
        raise NotSupported(
            f"The schema of the storage has version {newest}, written by a newer Naksha; this "
            f"release supports version {SCHEMA_VERSION}. Upgrade Naksha"
        )


def _current() -> str:
    """Return the mark that records a run of the current schema files."""
    return "schema:" + _fingerprint()


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for name, text in schema_files():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]

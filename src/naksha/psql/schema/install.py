"""Setting up a storage's schema, and bringing an older one up to date on a live database.

The schema files are idempotent and give the current truth; running them again takes no lock that
stops readers or writers. What changes existing tables or types is a step in `sql/migrations`,
append-only: `NNNN_pre_slug` runs before the schema files, `NNNN_post_slug` after them, all in one
transaction; `NNNN_online_slug` makes indices and triggers afterwards, while others write. Steps
done are recorded in `naksha_migration`; a fresh schema has them all from the start.

The schema has a version, recorded there, too. A release refuses a schema of a greater version than
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
"""Raised by the first change of the schema files after a release."""
_VERSION: Final = "version:"
_log = logging.getLogger(__name__)


def migrations() -> Steps:
    """(name, text) of all migration steps, in order."""
    folder = resources.files("naksha.psql.sql") / "migrations"
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    return [(name.removesuffix(".sql"), (folder / name).read_text("utf-8")) for name in files]


async def search_path(connection: Connection, schema: str) -> str:
    """The schema first, then PostGIS wherever it lives; temporary objects last, so that they
    never stand in for ours."""
    postgis = await connection.fetchval(queries()["postgis_schema"])
    if postgis is None:
        raise NotSupported("The database has no PostGIS; run CREATE EXTENSION postgis in it")
    return f"{ident(schema)}, {ident(postgis)}, pg_temp"


async def check_installed(connection: Connection, schema: str, place: str) -> None:
    """NotFound when a schema has no storage; `place` is what the database is called then."""
    if not await connection.fetchval(queries()["schema_installed_in"], schema):
        raise NotFound(f"There is no storage in the schema {schema!r} of {place}", field="storage")


class Access(NamedTuple):
    """What the role of a connection may do with a storage that is there."""

    owner: str
    is_owner: bool
    may_write: bool

    @property
    def maintains(self) -> bool:
        """Whether the role can drop and alter the tables."""
        return self.is_owner and self.may_write


async def access_to(connection: Connection, schema: str) -> Access | None:
    """None while no storage is there."""
    row = await connection.fetchrow(queries()["schema_access"], schema)
    return None if row is None else Access(*row)


async def use_installed(connection: Connection, schema: str, storage_id: str | None) -> str:
    """Check that a storage can be used as it is, and return its id.

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
            f"The schema {schema!r} is of an older Naksha; open the storage as the owner of the "
            "schema once, which upgrades it"
        )
    owner: str = await connection.fetchval(queries()["storage_info"])
    _check_id(owner, storage_id)
    return owner


def _check_id(found: str, storage_id: str | None) -> None:
    if storage_id is not None and found != storage_id:
        raise InvalidArgument(
            f"The schema belongs to storage {found!r}, not {storage_id!r}", field="storage_id"
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
    """Create or upgrade the schema; safe to call by many at once and with writers at work.
    Gives the id of the storage, which must be `storage_id` if that is given. `new_id` is that of a
    new one; else it is made from the name of the schema, or of the database."""
    access = await access_to(connection, schema)
    if access is not None and not access.may_write:
        raise ReadOnly(
            f"The storage in the schema {schema!r} is read-only for this role or server; open it "
            "with read_only=True"
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
    """The id of a new storage: the name of its schema, or of the database for the default one."""
    if schema != DEFAULT_SCHEMA:
        return storage_id_from(schema)
    return storage_id_from(await connection.fetchval(queries()["database_name"]))


async def _install(
    connection: Connection, schema: str, name: str, number: int, steps: Steps
) -> tuple[str, Steps]:
    """All that is done at once, or not at all. Gives the id of the storage, and the steps left."""
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
    """What is done while others write. It is not needed to be right, only to be fast: when another
    one is at it, or maintains the storage for long, that one or the next to open it will do."""
    try:
        async with alone(connection):
            for name, text in steps:
                await run_step(connection, text)
                await connection.execute(queries()["migrations_record"], [name], _current())
    except Retryable as error:
        _log.warning("The upgrade is finished later: %s", error)


async def _need_postgis(connection: Connection) -> None:
    if await connection.fetchval(queries()["postgis_schema"]) is not None:
        return
    try:
        # Somebody else may create it at the same moment, and then it is there.
        with contextlib.suppress(asyncpg.UniqueViolationError):
            await connection.execute(queries()["postgis_create"])
    except asyncpg.PostgresError as error:
        raise NotSupported(f"The database has no PostGIS and it cannot be made: {error}") from error


async def _need_all_rows(connection: Connection) -> None:
    """A replica whose rows are still on their way would be given another name, and read in part."""
    table = await connection.fetchval(queries()["table_being_copied"])
    if table is not None:
        raise Unavailable(
            f"The replica is not complete: table {table!r} is still being copied; try again later"
        )


async def _bring_up_to_date(connection: Connection, steps: Steps) -> Steps:
    """Gives the steps that are to be done afterwards, online."""
    fresh = not await connection.fetchval(queries()["schema_installed"])
    done: set[str] = set()
    if not fresh:
        done = {row["name"] for row in await connection.fetch(queries()["migrations_done"])}
    check_version(done)
    names = {name for name, _ in steps}
    unknown = {name for name in done if not name.startswith(("schema:", _VERSION))} - names
    if unknown:
        raise NotSupported(f"The storage was upgraded by a newer Naksha (step {max(unknown)})")
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
    """NotSupported when a newer release has set the schema up; `done` are the recorded steps."""
    found = [int(name.removeprefix(_VERSION)) for name in done if name.startswith(_VERSION)]
    newest = max(found, default=0)
    if newest > SCHEMA_VERSION:
        raise NotSupported(
            f"The schema of the storage is of version {newest}, written by a newer Naksha; this "
            f"one knows version {SCHEMA_VERSION}. Upgrade Naksha"
        )


def _current() -> str:
    """What tells that the schema files of this version have run."""
    return "schema:" + _fingerprint()


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for name, text in schema_files():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]

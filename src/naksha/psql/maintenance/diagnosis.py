"""Diagnosis of a database: version, PostGIS, rights, locks, connections and clock."""

from __future__ import annotations

import math
from typing import Any, Final

from naksha.model.errors import Forbidden, NakshaError, NotFound, NotSupported
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked
from naksha.psql.schema.install import privileges_on
from naksha.psql.sql import ident, queries
from naksha.spi.diagnosis import (
    DiagnosisLoad,
    DiagnosisResult,
    Severity,
    absent,
    failed,
    ok,
    warning,
)

VERSION_MIN: Final = 15
_LOCK_SHARE_MAX: Final = 0.8
"""Part of the lock table that a backup, which locks every table, may take."""
_AS_SUPERUSER: Final = "  # as a superuser, in the database"
_AND_RESTART: Final = "  # as a superuser; then restart the server"
_SERVER: Final = "Check host, port, user and database; start the server if it is down"


async def diagnose(
    dsn: str, schema: str, load: DiagnosisLoad, *, postgis: bool
) -> list[DiagnosisResult]:
    """Check a database for a storage or a catalog in a schema; nothing is changed."""
    try:
        with translated():
            connection = await connect_checked(dsn)
    except (NakshaError, ValueError) as error:
        known = error if isinstance(error, NakshaError) else NotSupported(str(error))
        return [failed("connection", known, _SERVER)]
    try:
        with translated():
            found = [await _version(connection)]
            if postgis:
                found.append(await _postgis(connection))
            found += [
                await _rights(connection, schema, load, is_storage=postgis),
                await _locks(connection, schema),
                await _connections(connection, load),
                await _clock(connection, load),
            ]
            if postgis and all(one.severity is not Severity.ERROR for one in found):
                found += await _publication(connection, schema)
        return found
    finally:
        await connection.close()


async def _version(connection: Direct) -> DiagnosisResult:
    number = connection.get_server_version().major
    if number >= VERSION_MIN:
        return ok("version", f"PostgreSQL {number}")
    error = NotSupported(f"PostgreSQL {number} is too old; {VERSION_MIN} or later is needed")
    return failed("version", error, f"Upgrade the server to PostgreSQL {VERSION_MIN} or later")


async def _postgis(connection: Direct) -> DiagnosisResult:
    installed, available = await _row(connection, "diagnosis_postgis")
    if installed is not None:
        return ok("PostGIS", f"PostGIS {installed}")
    error = NotSupported("PostGIS is not installed in the database")
    fix = f"psql -c 'CREATE EXTENSION postgis' {_AS_SUPERUSER}"
    if available is None:
        fix = f"apt install postgresql-postgis   # on the server; then {fix}"
    return failed("PostGIS", error, fix)


async def _rights(
    connection: Direct, schema: str, load: DiagnosisLoad, *, is_storage: bool
) -> DiagnosisResult:
    role, may_create, exists, may_use = await _row(connection, "diagnosis_rights", schema)
    if not exists:
        if load.is_expected:
            return absent("schema", f"The schema {schema}", load)
        if may_create:
            return ok("rights", f"{role} may create the schema {schema}")
        error: NakshaError = Forbidden(f"The role {role} may not create the schema {schema}")
        database = await connection.fetchval(queries()["diagnosis_database"])
        statement = f"GRANT CREATE ON DATABASE {ident(database)} TO {ident(role)}"
        return failed("rights", error, f"psql -c '{statement}' {_AS_SUPERUSER}")
    if not may_use:
        error = Forbidden(f"The role {role} may not use the schema {schema}")
        fix = f"psql -c 'GRANT USAGE ON SCHEMA {ident(schema)} TO {ident(role)}' {_AS_SUPERUSER}"
        return failed("rights", error, fix)
    access = await privileges_on(connection, schema) if is_storage else None
    if is_storage and access is None:
        return failed(
            "rights",
            NotFound(f"The schema {schema} exists and holds no storage"),
            "Use another schema (option schema), or drop this one",
        )
    if access is not None and not access.maintains:
        return warning(
            "rights",
            f"{role} does not own the storage ({access.owner} does), so this process cannot "
            "maintain it",
            f"psql -c 'GRANT {ident(access.owner)} TO {ident(role)}' {_AS_SUPERUSER}",
        )
    return ok("rights", f"{role} may write and maintain")


async def _locks(connection: Direct, schema: str) -> DiagnosisResult:
    tables, slots, per = await _row(connection, "diagnosis_locks", schema)
    capacity = slots * per
    if tables <= capacity * _LOCK_SHARE_MAX:
        return ok("locks", f"{tables:,} tables, {capacity:,} locks")
    needed = math.ceil(tables / _LOCK_SHARE_MAX / slots)
    return warning(
        "locks",
        f"The schema has {tables:,} tables and the server has room for {capacity:,} locks; a "
        "backup, or a read of the log over many days, fails with 'out of shared memory'",
        f"psql -c 'ALTER SYSTEM SET max_locks_per_transaction = {needed}' {_AND_RESTART}",
    )


async def _connections(connection: Direct, load: DiagnosisLoad) -> DiagnosisResult:
    usable, used = await _row(connection, "diagnosis_connections")
    if load.connections <= usable:
        return ok("connections", f"{load.connections} needed, {usable} possible, {used} in use")
    reserved = await connection.fetchval(queries()["diagnosis_reserved"])
    return warning(
        "connections",
        f"This installation uses up to {load.connections} connections and the server accepts "
        f"{usable}",
        f"psql -c 'ALTER SYSTEM SET max_connections = {load.connections + reserved}' "
        f"{_AND_RESTART}",
    )


async def _clock(connection: Direct, load: DiagnosisLoad) -> DiagnosisResult:
    server_us = await connection.fetchval(queries()["diagnosis_clock"])
    seconds = (load.now_us - server_us) / 1_000_000
    if abs(seconds) <= load.skew_seconds_max:
        return ok("clock", f"{abs(seconds):.1f} s from this machine")
    side = "ahead of" if seconds > 0 else "behind"
    return warning(
        "clock",
        f"The clock of this machine is {abs(seconds):,.0f} s {side} the clock of the database; "
        f"above {load.skew_seconds_max:.0f} s, maintenance of the catalog deletes nothing",
        "timedatectl set-ntp true   # on the machine whose clock is wrong",
    )


async def _publication(connection: Direct, schema: str) -> list[DiagnosisResult]:
    access = await privileges_on(connection, schema)
    if access is None or not access.may_write:
        return []
    path = f"{ident(schema)}, public"
    await connection.fetchval(queries()["search_path_set"], path, False)
    unpublished, holder = await _row(connection, "diagnosis_publication")
    if not unpublished or holder is None:
        return [ok("publication", f"{unpublished} transactions wait")]
    fix = "psql -c 'SELECT pg_terminate_backend(PID)'   # a prepared one: ROLLBACK PREPARED"
    return [warning("publication", f"{unpublished:,} transactions wait for {holder}", fix)]


async def _row(connection: Direct, query: str, *values: str) -> tuple[Any, ...]:
    """Return the only row of a query."""
    row = await connection.fetchrow(queries()[query], *values)
    assert row is not None
    return tuple(row)

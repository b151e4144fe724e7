"""The same edits through the library and through a shell, and everything they leave behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from naksha.model.state import XYZ
from naksha.psql.connection.driver import Direct
from naksha.psql.read.statements import leaf_of
from naksha.spi.storage import WriteSession
from naksha.testing.servers.postgres import PostgresCluster

Feature = dict[str, Any]
Step = tuple[str, Sequence[Any]]
TIMES = ("createdAt", "updatedAt", "rtcts", "rtuts")


def feature(key: str, place: Sequence[float] | None, *tags: str, **properties: Any) -> Feature:
    """A feature with a 3D point, as the shell must write it."""
    geometry = None if place is None else {"type": "Point", "coordinates": [*place, 7.5]}
    xyz = {"tags": list(tags), "crid": properties.pop("crid", None)}
    return {
        "type": "Feature",
        "id": key,
        "geometry": geometry,
        "properties": {**properties, XYZ: {k: v for k, v in xyz.items() if v}},
    }


async def by_library(session: WriteSession, collection: str, step: Step) -> None:
    """One step through the library."""
    what, arguments = step
    if what == "insert":
        await session.create(collection, arguments)
    elif what == "update":
        await session.update(collection, arguments)
    else:
        await session.delete(collection, arguments)


def as_sql(collection: str, step: Step, *, leaves: bool = False) -> list[str]:
    """One step as statements, on the parent or on each leaf."""
    what, arguments = step
    keys = arguments if what == "delete" else [each["id"] for each in arguments]
    tables: dict[str, list[Any]] = {}
    for key, argument in zip(keys, arguments, strict=True):
        table = f"{collection}_p{leaf_of(key)}" if leaves else collection
        tables.setdefault(table, []).append(argument)
    return [_statement(what, table, part) for table, part in tables.items()]


def _statement(what: str, table: str, arguments: Sequence[Any]) -> str:
    if what == "insert":
        return _insert(table, arguments)
    return _update(table, arguments) if what == "update" else _delete(table, arguments)


def _insert(table: str, features: Sequence[Feature]) -> str:
    rows = ", ".join(f"({_geo(each)}, {_json(each)})" for each in features)
    return f'INSERT INTO "{table}" (geo, jsondata) VALUES {rows}'


def _update(table: str, features: Sequence[Feature]) -> str:
    rows = ", ".join(f"({quote(each['id'])}, {_geo(each)}, {_json(each)})" for each in features)
    return (
        f'UPDATE "{table}" AS head SET geo = new.geo, jsondata = new.jsondata '
        f"FROM (VALUES {rows}) AS new(id, geo, jsondata) WHERE head.jsondata->>'id' = new.id"
    )


def _delete(table: str, keys: Sequence[str]) -> str:
    return f"DELETE FROM \"{table}\" WHERE jsondata->>'id' IN ({', '.join(map(quote, keys))})"


def _geo(each: Feature) -> str:
    if each["geometry"] is None:
        return "NULL::geometry"
    return f"ST_SetSRID(ST_GeomFromGeoJSON({quote(json.dumps(each['geometry']))}), 4326)"


def _json(each: Feature) -> str:
    return quote(json.dumps({k: v for k, v in each.items() if k != "geometry"})) + "::jsonb"


def quote(text: str) -> str:
    """A literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def psql(cluster: PostgresCluster, dsn: str, script: str) -> str:
    """Run a script in the shell that people use; what it says comes back, errors too."""
    command = [cluster.install.program("psql"), "-XqAt", "-v", "VERBOSITY=verbose", "-d", dsn]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def left_behind(connection: Direct, collection: str) -> dict[str, Any]:
    """HEAD, deletion table, history and log of a collection, without what no two runs share:
    state ids become (id, version, number of the transaction), numbers count from 1, no times."""
    tables = {}
    for suffix in ("", "_del", "_hst"):
        tables[suffix] = await connection.fetch(
            f'SELECT i, ST_AsEWKT(geo) AS geo, jsondata::text FROM "{collection}{suffix}" '
            "ORDER BY i, jsondata->'properties'->'@ns:com:here:xyz'->>'txn_next'"
        )
    log = await connection.fetch(
        "SELECT txn, created, updated, deleted, purged, ST_AsText(bbox) AS bbox, app_id, author "
        "FROM naksha_tx WHERE action = 'MODIFY_FEATURES' AND id = $1 ORDER BY txn",
        collection,
    )
    numbers = {str(row["txn"]): n for n, row in enumerate(log, 1)} | {"0": 0}
    parsed = {
        suffix: [(row["geo"], json.loads(row["jsondata"])) for row in rows]
        for suffix, rows in tables.items()
    }
    names = {}
    for _, each in (state for states in parsed.values() for state in states):
        xyz = each["properties"][XYZ]
        names[xyz["uuid"]] = (each["id"], xyz["version"], numbers[xyz["txn"]])
    plain = _plain(names, numbers)
    found: dict[str, Any] = {
        suffix or "head": sorted(([geo, plain(each)] for geo, each in states), key=repr)
        for suffix, states in parsed.items()
    }
    return found | {"log": [tuple(row)[1:] for row in log]}


def _plain(names: Mapping[str, Any], numbers: Mapping[str, int]) -> Callable[[Feature], Feature]:
    def plain(each: Feature) -> Feature:
        xyz = each["properties"].pop(XYZ)
        for key in TIMES:
            assert isinstance(xyz.pop(key), int)
        for key in ("uuid", "puuid", "muuid"):
            xyz[key] = None if xyz[key] is None else names[xyz[key]]
        for key in ("txn", "txn_next"):
            xyz[key] = numbers[xyz[key]]
        return {"xyz": xyz, **each}

    return plain

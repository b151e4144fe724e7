"""Equality of numbers and identifiers in SQL and Python, thousands of values at a time."""

import math
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest
import shapely
from shapely.geometry import mapping

from naksha.model.geo.geometry import encode_geometries
from naksha.model.geo.quadkey import qrid, qrids
from naksha.model.identity import txn as txns
from naksha.model.identity.guid import Guid
from naksha.model.identity.uuids import (
    COLLECTION_NUMBER_MAX,
    OBJECT_ID_MAX,
    ROW_NUMBER_MAX,
    STORAGE_NUMBER_MAX,
    TYPE_MAX,
    YEAR_MAX,
    YEAR_MIN,
    Uuid,
)
from naksha.psql.connection.driver import Direct
from naksha.psql.read.statements import leaf_of
from naksha.psql.schema.install import install, search_path
from naksha.testing.fixtures import DatabaseFactory

COUNT = 4_000
FIRST_DAY = date(1, 1, 2)
LAST_DAY = date(txns.YEAR_MAX, 12, 31)
"""The driver takes the day before for minus infinity."""
DAYS = [FIRST_DAY, date(1999, 12, 31), date(2000, 2, 29), date(9223, 12, 31), date(2023, 1, 30)]
CODEC_DAYS = [date(YEAR_MIN, 1, 1), date(2000, 2, 29), date(2100, 2, 28), date(YEAR_MAX, 12, 31)]


@pytest.fixture(scope="module")
async def connection(database_factory: DatabaseFactory) -> AsyncIterator[Direct]:
    with database_factory.fresh() as dsn:
        opened = await asyncpg.connect(dsn)
        await install(opened, "naksha", "codecs", 7)
        await opened.execute(f"SET search_path = {await search_path(opened, 'naksha')}")
        yield opened
        await opened.close()


@pytest.fixture(params=range(3))
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def some_day(chance: random.Random, first: date, last: date) -> date:
    return first + timedelta(days=chance.randint(0, (last - first).days))


def some_int(chance: random.Random, most: int) -> int:
    """Small, large and middling numbers, both ends included."""
    kind = chance.random()
    if kind < 0.1:
        return chance.choice([0, 1, most - 1, most])
    return chance.getrandbits(chance.randint(1, most.bit_length())) % (most + 1)


def some_txn(chance: random.Random, days: Sequence[date]) -> int:
    day = chance.choice(days) if chance.random() < 0.1 else some_day(chance, days[0], days[-1])
    return txns.txn_of(day, some_int(chance, txns.SEQUENCE_MAX))


async def ask(connection: Direct, text: str, *columns: Sequence[Any]) -> list[Any]:
    """One value per row of the columns, which SQL sees as an array each."""
    rows = await connection.fetch(text, *columns)
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def same(sql: Sequence[Any], python: Sequence[Any], values: Iterable[Any]) -> None:
    """Says which values differ, not thousands that do not."""
    assert len(sql) == len(python)
    found = zip(sql, python, values, strict=True)
    assert [entry for entry in found if entry[0] != entry[1]][:5] == []


async def test_transaction_numbers_of_a_time_and_their_days(
    connection: Direct, chance: random.Random
) -> None:
    days = DAYS + [some_day(chance, FIRST_DAY, LAST_DAY) for _ in range(COUNT)]
    sequences = [some_int(chance, txns.SEQUENCE_MAX) for _ in days]
    edges = [timedelta(0), timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)]
    times = [
        datetime.combine(day, datetime.min.time(), UTC)
        + (chance.choice(edges) if chance.random() < 0.5 else timedelta(seconds=chance.random()))
        for day in days
    ]
    numbers = [txns.txn_of(day, n) for day, n in zip(days, sequences, strict=True)]
    for zone in ("UTC", "Asia/Kolkata", "America/Anchorage"):
        await connection.execute(f"SET TIME ZONE '{zone}'")
        drawn = await ask(
            connection,
            "SELECT naksha_txn(t, n) FROM unnest($1::timestamptz[], $2::int8[]) AS v(t, n)",
            times,
            sequences,
        )
        same(drawn, numbers, times)
    await connection.execute("RESET TIME ZONE")
    found = await ask(
        connection, "SELECT naksha_txn_day(n) FROM unnest($1::int8[]) AS v(n)", numbers
    )
    same(found, [txns.date_of(n) for n in numbers], numbers)
    firsts = await ask(connection, "SELECT naksha_day_txn(d) FROM unnest($1::date[]) AS v(d)", days)
    same(firsts, [txns.txn_of(day, 0) for day in days], days)


async def test_state_ids(connection: Direct, chance: random.Random) -> None:
    numbers = [some_txn(chance, [date(1, 1, 1), LAST_DAY]) for _ in range(COUNT)]
    rows = [some_int(chance, ROW_NUMBER_MAX) for _ in numbers]
    names = [chance.choice(["roads", "a", "a:b", "x:1:2:3:4", "q_-" + "z" * 29]) for _ in numbers]
    found = await ask(
        connection,
        "SELECT naksha_guid('my_storage', c, t, i)"
        " FROM unnest($1::text[], $2::int8[], $3::int8[]) AS v(c, t, i)",
        names,
        numbers,
        rows,
    )
    known = [Guid.of("my_storage", c, t, i) for c, t, i in zip(names, numbers, rows, strict=True)]
    same(found, [str(guid) for guid in known], known)
    assert [Guid.parse(text) for text in found] == known


async def test_uuids_and_their_parts(connection: Direct, chance: random.Random) -> None:
    numbers = [some_txn(chance, CODEC_DAYS) for _ in range(COUNT)]
    objects = [some_int(chance, OBJECT_ID_MAX) for _ in numbers]
    types = [chance.randint(0, TYPE_MAX) for _ in numbers]
    storages = [some_int(chance, STORAGE_NUMBER_MAX) for _ in numbers]
    known = [
        Uuid(o, day.year, day.month, day.day, t, s)
        for o, t, s, day in zip(objects, types, storages, map(txns.date_of, numbers), strict=True)
    ]
    found = await ask(
        connection,
        "SELECT naksha_uuid(o, n, t, s)"
        " FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::int8[]) AS v(o, n, t, s)",
        objects,
        numbers,
        types,
        storages,
    )
    same(found, [uuid.to_uuid() for uuid in known], known)
    parts = await ask(
        connection,
        "SELECT p.* FROM unnest($1::uuid[]) WITH ORDINALITY AS v(u, n),"
        " naksha_uuid_parts(u) AS p ORDER BY n",
        found,
    )
    same(parts, [(u.object_id, u.date, u.type, u.storage_number) for u in known], known)


async def test_uuids_of_transactions_and_states(connection: Direct, chance: random.Random) -> None:
    numbers = [some_txn(chance, CODEC_DAYS) for _ in range(COUNT)]
    collections = [some_int(chance, COLLECTION_NUMBER_MAX) for _ in numbers]
    rows = [some_int(chance, ROW_NUMBER_MAX) for _ in numbers]
    storages = [some_int(chance, STORAGE_NUMBER_MAX) for _ in numbers]
    found = await ask(
        connection,
        "SELECT naksha_tx_uuid(t, s), naksha_feature_uuid(c, i, t, s)"
        " FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::int8[]) AS v(t, c, i, s)",
        numbers,
        collections,
        rows,
        storages,
    )
    values = list(zip(numbers, collections, rows, storages, strict=True))
    python: list[tuple[UUID, UUID]] = [
        (Uuid.of_txn(t, s).to_uuid(), Uuid.of_state(t, c, i, s).to_uuid()) for t, c, i, s in values
    ]
    same(found, python, values)
    assert [Uuid.of_uuid(u).txn for u, _ in found] == numbers
    assert [(u.collection_number, u.i) for u in (Uuid.of_uuid(u) for _, u in found)] == list(
        zip(collections, rows, strict=True)
    )


def positions(chance: random.Random, count: int) -> list[tuple[float, float]]:
    """All over the world, and on and beside the borders of cells of every level."""
    found = [(lon, lat) for lon in (-180.0, 0.0, -0.0, 180.0) for lat in (-90.0, 0.0, -0.0, 90.0)]
    while len(found) < count:
        lon, lat = chance.uniform(-180, 180), chance.uniform(-90, 90)
        if chance.random() < 0.5:
            cells = 2 ** chance.randint(1, 18)
            lon = -180 + round((lon + 180) / 360 * cells) * 360 / cells
            lat = 90 - round((90 - lat) / 180 * cells) * 180 / cells
            nudge = chance.choice([-math.inf, math.inf, 0.0])
            if nudge:
                lon, lat = math.nextafter(lon, nudge), math.nextafter(lat, nudge)
        found.append((max(-180.0, min(lon, 180.0)), max(-90.0, min(lat, 90.0))))
    return found


async def test_quad_keys_of_positions(connection: Direct, chance: random.Random) -> None:
    places = positions(chance, COUNT)
    found = await ask(
        connection,
        "SELECT naksha_qrid(x, y) FROM unnest($1::float8[], $2::float8[]) AS v(x, y)",
        [lon for lon, _ in places],
        [lat for _, lat in places],
    )
    same(found, [qrid(lon, lat) for lon, lat in places], places)


async def test_quad_keys_of_geometries_also_when_stored(
    connection: Direct, chance: random.Random
) -> None:
    """A stored geometry keeps its box in float32, which must not be what counts."""
    places = iter(positions(chance, COUNT * 3))
    shapes = [
        shapely.Point(next(places))
        if n % 3 == 0
        else shapely.LineString([next(places), next(places)])
        for n in range(COUNT)
    ]
    shapes += [shapely.Point(*place, chance.uniform(-9e3, 9e3)) for place in places]
    prepared = encode_geometries([{"geometry": mapping(shape)} for shape in shapes])
    await connection.execute(
        "CREATE TEMP TABLE shapes (n int PRIMARY KEY, geo geometry(GeometryZ, 4326))"
    )
    try:
        await connection.execute(
            "INSERT INTO shapes SELECT n, ST_Force3D(ST_SetSRID(ST_GeomFromWKB(w), 4326))"
            " FROM unnest($1::bytea[]) WITH ORDINALITY AS v(w, n)",
            prepared.wkb,
        )
        found = await ask(connection, "SELECT naksha_qrid(geo) FROM shapes ORDER BY n")
    finally:
        await connection.execute("DROP TABLE shapes")
    same(found, prepared.qrid, shapes)


async def test_no_geometry_has_no_quad_key(connection: Direct) -> None:
    assert await connection.fetchval("SELECT naksha_qrid(NULL::geometry)") is None


async def test_the_sum_of_binary_numbers_is_the_quad_key(connection: Direct) -> None:
    """All borders of the finest level along both axes, in one go."""
    found = await ask(
        connection,
        "SELECT naksha_qrid(-180 + n * (360 / 262144.0::float8), 90 - n * (180 / 262144.0::float8))"
        " FROM generate_series(0, 262144, 7) AS n",
    )
    steps = np.arange(0, 262145, 7, dtype=np.float64)
    python = qrids(-180 + steps * (360 / 262144.0), 90 - steps * (180 / 262144.0))
    same(found, python, steps.tolist())


async def test_leaves(connection: Direct, chance: random.Random) -> None:
    ids = ["", "a", "é", "e\u0301", "👩‍👩‍👧", "\U0010ffff"]
    alphabet = "abz019:-_ äß地\U0001f600\u202e'\"\\"
    ids += ["".join(chance.choices(alphabet, k=chance.randint(1, 40))) for _ in range(COUNT)]
    found = await ask(connection, "SELECT naksha_leaf(i) FROM unnest($1::text[]) AS v(i)", ids)
    same(found, [leaf_of(i) for i in ids], ids)

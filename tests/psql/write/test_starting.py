"""The start of a plain SQL transaction: once, at a time that no session setting changes."""

from __future__ import annotations

import asyncpg
import pytest

from naksha.model.errors import ReadOnly
from naksha.psql.connection.errors import of_state, translated
from tests.psql.support import Connect, sign

AT = "2019-05-04 22:30:00.123456+00:00"


@pytest.mark.parametrize(
    "again", ["'desk', 'anna'", "'desk', 'ben'", "'other', 'anna'", "'desk', 'anna', now(), false"]
)
async def test_a_second_start_in_one_transaction_is_refused(connect: Connect, again: str) -> None:
    connection = await connect()
    await connection.execute("BEGIN; SELECT naksha_tx_start('desk', 'anna')")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await connection.execute(f"SELECT naksha_tx_start({again})")
    assert caught.value.sqlstate == "N0009"
    assert "already called in this transaction" in str(caught.value)
    await connection.execute("ROLLBACK")
    await connection.execute("BEGIN; SELECT naksha_tx_start('desk', 'ben')")
    await sign(connection)
    await connection.execute("COMMIT")


async def test_a_start_that_was_rolled_back_does_not_count(connect: Connect) -> None:
    connection = await connect()
    await connection.execute("BEGIN; SAVEPOINT s; SELECT naksha_tx_start('desk', 'anna')")
    await connection.execute("ROLLBACK TO s; SELECT naksha_tx_start('desk', 'ben')")
    await sign(connection)
    await connection.execute("COMMIT")
    assert await connection.fetchval("SELECT author FROM naksha_tx WHERE id = 'm'") == "ben"


async def test_an_injected_time_does_not_depend_on_the_session(connect: Connect) -> None:
    for style in ("ISO, MDY", "SQL, MDY", "German", "Postgres, MDY"):
        for zone in ("UTC", "Asia/Tokyo", "America/New_York", "Asia/Shanghai"):
            connection = await connect(DateStyle=style, TimeZone=zone)
            await connection.execute(f"BEGIN; SELECT naksha_tx_start('desk', NULL, '{AT}', false)")
            # What comes in between may set what it likes.
            await connection.execute("SET LOCAL DateStyle = 'SQL, DMY'")
            await connection.execute("SET LOCAL TimeZone = 'Europe/Paris'")
            txn = await sign(connection)
            await connection.execute("COMMIT")
            ts = await connection.fetchval("SELECT ts FROM naksha_tx WHERE txn = $1", txn)
            assert str(ts) == AT, (style, zone)


async def test_a_time_in_the_future_is_refused(connect: Connect) -> None:
    connection = await connect()
    await connection.execute("BEGIN")
    with pytest.raises(asyncpg.PostgresError, match="lies in the future") as caught:
        await connection.execute("SELECT naksha_tx_start('desk', NULL, now() + interval '1 hour')")
    assert caught.value.sqlstate == "N0000"


async def test_a_time_before_the_year_1_is_refused(connect: Connect) -> None:
    connection = await connect()
    await connection.execute("BEGIN")
    with pytest.raises(asyncpg.PostgresError, match="the year 1 or later"):
        await connection.execute("SELECT naksha_tx_start('desk', NULL, '0001-12-31 BC')")


async def test_years_before_2000_have_no_uuid(connect: Connect) -> None:
    connection = await connect()
    query = "SELECT naksha_tx_uuid($1, 1)"
    assert await connection.fetchval(query, 1999_12_31 * 10**11 + 1) is None
    assert await connection.fetchval(query, 2000_01_01 * 10**11 + 1) is not None


async def test_a_server_that_is_read_only_says_so(connect: Connect) -> None:
    connection = await connect(default_transaction_read_only="on")
    with pytest.raises(ReadOnly, match="read-only transaction"), translated():
        await connection.execute("CREATE TABLE anything ()")
    assert isinstance(of_state("25006", "read-only"), ReadOnly)

"""One round of publication: beside maintenance of the log, and in sessions with other settings."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.psql.support import Connect, begin, publish, published, sign, until_blocked


@pytest.mark.parametrize("style", ["SQL, DMY", "Postgres, MDY", "German"])
async def test_times_of_versions_do_not_depend_on_the_session(
    bare: str, connect: Connect, style: str
) -> None:
    """The abbreviation of the zone, IST, is read as that of another one."""
    publisher = await connect(DateStyle=style, TimeZone="Asia/Kolkata")
    for _ in range(3):
        await begin(publisher)
        await sign(publisher)
        await publisher.execute("COMMIT")
        await publish(publisher)
    late = await publisher.fetchval("SELECT max(seq_ts) - clock_timestamp() FROM naksha_version")
    assert late <= timedelta(0)


async def test_a_day_that_is_merged_during_a_round_is_published(
    bare: str, connect: Connect
) -> None:
    """The publisher has looked up the partition, and waits for the lock that the merge holds."""
    writer, merger, publisher = await connect(), await connect(), await connect()
    await begin(writer)
    await sign(writer)
    await writer.execute("COMMIT")
    await publish(writer)
    await begin(writer)
    txn = await sign(writer)
    await writer.execute("COMMIT")
    part = await writer.fetchval("SELECT naksha_partition_of('naksha_tx', $1)", txn)
    bound = await writer.fetchval(
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = $1::text::regclass", part
    )
    await merger.execute(
        f"BEGIN; CREATE TABLE merged (LIKE naksha_tx INCLUDING ALL);"
        f"SET LOCAL naksha.managed = 'on'; INSERT INTO merged SELECT * FROM {part};"
        f"ALTER TABLE naksha_tx DETACH PARTITION {part}; DROP TABLE {part};"
        f"ALTER TABLE naksha_tx ATTACH PARTITION merged {bound}"
    )
    publishing = asyncio.create_task(publish(publisher))
    await until_blocked(writer, publisher)
    await merger.execute("COMMIT")
    await publishing
    assert (await published(writer))[-1] == txn

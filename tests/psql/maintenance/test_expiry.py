"""Expiry by maintenance: old history, old log and dropped collections; and what is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Any

import msgspec
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import CollectionNotFound, Expired
from naksha.model.query import Query, States
from naksha.model.version import HEAD, AtSeq, Version
from naksha.psql.maintenance import rounds
from tests.psql.aging import Aging, aging_storage, ms, place
from tests.psql.support import by_force, connect_to

FIRST = date(2031, 3, 3)
TODAY = FIRST + timedelta(days=7)
FAR_MS = ms(date(2100, 1, 1))


@pytest.fixture
async def aging(database: str) -> AsyncIterator[Aging]:
    """Eight days of a collection that keeps three."""
    async with aging_storage(database, FIRST) as made:
        await made.create(max_age=3)
        await made.write_days(FIRST, 8)
        yield made


async def expect(aging: Aging, first_kept: int, before: list[dict[str, list[bytes]]]) -> None:
    """Versions are as they were from `first_kept` on; older ones are Expired and name it."""
    for n, version in enumerate(aging.versions):
        at = AtSeq(version.seq_number)
        if n < first_kept:
            with pytest.raises(Expired) as caught:
                await aging.at(version)
            assert caught.value.oldest == aging.versions[first_kept].seq_number
            continue
        for kind in (States.LIVE, States.DELETED):
            page = await aging.storage.page("roads", Query(states=kind), at)
            assert sorted(state.raw for state in page.states) == before[n][kind.name]


async def test_days_before_the_line_are_dropped(aging: Aging) -> None:
    before = await aging.everything()
    tombstones = before[-1]["DELETED"]
    await aging.storage.maintain()
    # What ended on the fourth day is gone, so the version of that day is the oldest.
    assert (await aging.partitions())[0] == "2031_03_07"
    await expect(aging, 3, before)
    assert (await aging.at(aging.versions[-1]))["DELETED"] == tombstones
    floor = await aging.plain.fetchval("SELECT floor_txn FROM naksha_collection")
    assert floor == aging.versions[3].txn


async def test_a_pin_keeps_what_it_needs(aging: Aging) -> None:
    before = await aging.everything()
    await aging.storage.pin("tag", aging.versions[1], "roads")
    await aging.storage.maintain()
    assert (await aging.partitions())[0] == "2031_03_05"
    await expect(aging, 1, before)
    await aging.storage.unpin("tag")
    await aging.storage.maintain()
    await expect(aging, 3, before)


async def test_a_pin_keeps_half_a_day(aging: Aging) -> None:
    """The rows that no pin needs go, so that versions before the pin are Expired, not wrong."""
    aging.clock.day = TODAY
    await aging.write()
    await aging.write()
    before = await aging.everything()
    await aging.storage.pin("position", aging.versions[-2])
    await aging.storage.maintain(ms(TODAY + timedelta(days=9)))
    await expect(aging, len(aging.versions) - 2, before)


async def test_expired_versions_cannot_be_pinned(aging: Aging) -> None:
    await aging.storage.maintain()
    with pytest.raises(Expired):
        await aging.storage.pin("late", aging.versions[0], "roads")
    assert await aging.plain.fetchval("SELECT count(*) FROM naksha_pin") == 0
    await aging.storage.pin("in time", aging.versions[3], "roads")


async def test_a_pin_and_expiry_exclude_each_other(aging: Aging) -> None:
    """An uncommitted pin holds expiry off; afterwards it counts."""
    before = await aging.everything()
    pinner = await connect_to(aging.dsn)
    try:
        await pinner.execute("BEGIN")
        await pinner.execute("SELECT naksha_pin_set('open', $1)", aging.versions[0].txn)
        await aging.storage.maintain()
        assert await aging.everything() == before
        await pinner.execute("COMMIT")
    finally:
        pinner.terminate()
    await aging.storage.maintain()
    assert await aging.everything() == before


async def test_a_detach_that_was_interrupted_is_finished(
    aging: Aging, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await aging.everything()
    monkeypatch.setattr(rounds, "DETACH_MS_MAX", 300)
    reader = await connect_to(aging.dsn)
    try:
        await reader.execute("BEGIN")
        await reader.fetchval("SELECT count(*) FROM roads_hst")
        await aging.storage.maintain()
        pending = await aging.plain.fetch("SELECT * FROM naksha_pending_detaches()")
        assert len(pending) == 1
        # The partition that is going is invisible already; the first one is empty.
        assert await aging.everything() == before
        await aging.write()
    finally:
        reader.terminate()
    monkeypatch.setattr(rounds, "DETACH_MS_MAX", 30_000)
    await aging.storage.maintain()
    assert pending[0]["part"] not in await aging.tables()
    await expect(aging, 3, [*before, await aging.at(aging.versions[-1])])


async def test_detached_partitions_are_dropped_later(aging: Aging) -> None:
    row = await aging.plain.fetchrow(
        "SELECT * FROM naksha_expire_next('roads', $1)", aging.clock.now_ms()
    )
    assert row is not None
    assert row["how"] == "detach"
    await aging.plain.execute(f"ALTER TABLE roads_hst DETACH PARTITION {row['part']}")
    # A table that was not detached by Naksha must not be dropped.
    await aging.plain.execute("ALTER TABLE roads_hst DETACH PARTITION roads_hst_2031_03_09")
    await aging.storage.maintain()
    assert row["part"] not in await aging.tables()
    assert "roads_hst_2031_03_09" in await aging.tables()
    await aging.plain.execute("DROP TABLE roads_hst_2031_03_09")


@pytest.mark.long
async def test_expiry_of_an_open_day_waits_for_its_writers(aging: Aging) -> None:
    later = ms(TODAY + timedelta(days=9))
    writer = await connect_to(aging.dsn)
    try:
        await writer.execute("BEGIN")
        await writer.execute("SELECT naksha_tx_start('slow', NULL, to_timestamp($1), false)", 0)
        await writer.execute(
            "SELECT naksha_upsert('roads', $1::jsonb)", json.dumps(place("always", 99))
        )
        await aging.storage.maintain(later)
        assert "2031_03_10" in await aging.partitions()
        await writer.execute("COMMIT")
    finally:
        writer.terminate()
    last = await aging.storage.resolve(HEAD)
    await aging.storage.maintain(later)
    assert "2031_03_10" not in await aging.partitions()
    with pytest.raises(Expired):
        await aging.at(aging.versions[-1])
    assert (await aging.at(last))["LIVE"]


async def test_the_last_version_stays_known_when_numbers_were_lost(aging: Aging) -> None:
    await aging.storage.keep_log(0)
    await aging.plain.execute("SELECT nextval('naksha_tx_object_id_seq')")
    await aging.plain.execute(
        "SELECT setval('naksha_tx_object_id_seq', naksha_day_txn('2031-06-01'))"
    )
    await aging.storage.maintain(ms(date(2031, 6, 20)))
    last = aging.versions[-1]
    assert await aging.storage.resolve(AtSeq(last.seq_number)) == last
    aging.clock.day = date(2031, 6, 21)
    assert (await aging.write()).seq_number == last.seq_number + 1


async def test_without_history_the_floor_is_kept_when_the_log_goes(aging: Aging) -> None:
    async def off(session: object) -> None:
        change = CollectionChange(history_enabled=False)
        await session.change_collection("roads", change)  # type: ignore[attr-defined]

    await aging.storage.run(off, "app")
    written: Version = await aging.write()
    aging.clock.day = TODAY + timedelta(days=30)
    await aging.storage.run(lambda s: s.message("m", "later"), "app")
    await aging.storage.keep_log(5)
    await aging.storage.maintain()
    floor = await aging.plain.fetchval("SELECT naksha_floor('roads')")
    assert floor == written.txn


async def test_dropped_collections_are_removed_when_due_and_not_pinned(aging: Aging) -> None:
    await aging.storage.pin("tag", aging.versions[-1])
    await aging.storage.run(lambda s: s.drop_collection("roads"), "app")
    await aging.storage.maintain()
    await aging.storage.collection("roads", dropped=True)
    await aging.storage.unpin("tag")
    after = await aging.storage.publication()
    await aging.storage.pin("later", await aging.storage.resolve(AtSeq(after.last_seq_number)))
    await aging.storage.maintain()
    with pytest.raises(CollectionNotFound):
        await aging.storage.collection("roads", dropped=True)
    assert not [name for name in await aging.tables() if name.startswith("roads")]


async def test_statistics_are_in_info_and_comment(aging: Aging) -> None:
    await aging.storage.maintain()
    info = await aging.storage.collection("roads")
    count = await aging.storage.count("roads", Query())
    largest = max(len(raw) for raw in (await aging.at(aging.versions[-1]))["LIVE"])
    assert info.estimated_feature_count == count
    assert info.byte_size == largest
    comment = await aging.plain.fetchval("SELECT obj_description('roads'::regclass, 'pg_class')")
    assert json.loads(comment)["byteSize"] == largest
    await aging.plain.execute("SELECT naksha_refresh_statistics('roads', 1)")
    assert (await aging.storage.collection("roads")).byte_size == largest


async def test_the_comment_is_the_whole_info_at_all_times(aging: Aging) -> None:
    """Of a collection with one feature, which is large and can be compressed."""

    async def same(**expected: object) -> CollectionInfo:
        text = await aging.plain.fetchval("SELECT obj_description('ways'::regclass, 'pg_class')")
        info = await aging.storage.collection("ways", dropped=True)
        assert json.loads(text) == msgspec.to_builtins(info)
        for name, value in expected.items():
            assert getattr(info, name) == value
        return info

    settings = {"max_age": 9, "id_prefix": "p:", "author": "ann", "points_only": True}
    await aging.create("ways", history_enabled=False, optimal_partitioning=True, **settings)
    await same(history_enabled=False, optimal_partitioning=True, delete_at=0, **settings)
    changed: dict[str, Any] = {
        "max_age": 8,
        "id_prefix": None,
        "author": "bob",
        "history_enabled": True,
    }
    change = CollectionChange(optimal_partitioning=False, **changed)
    await aging.storage.run(lambda s: s.change_collection("ways", change), "app")
    await same(optimal_partitioning=False, points_only=True, byte_size=-1, **changed)
    await aging.storage.run(lambda s: s.drop_collection("ways", FAR_MS), "app")
    await same(delete_at=FAR_MS, **changed)
    await aging.storage.run(lambda s: s.restore_collection("ways"), "app")
    await same(delete_at=0, **changed)
    large = place("x", 1)
    large["properties"]["text"] = "naksha " * 10_000
    await aging.storage.run(lambda s: s.create("ways", [large]), "app")
    await aging.storage.maintain()
    (state,) = (await aging.storage.page("ways", Query())).states
    info = await same(estimated_feature_count=1, byte_size=len(state.raw), **changed)
    stored = await aging.plain.fetchval("SELECT pg_column_size(jsondata) FROM ways")
    assert info.compressed_size == stored
    assert 0 < stored < info.byte_size / 10


async def test_tomorrow_is_prepared_only_where_today_is_used(aging: Aging) -> None:
    await aging.create("idle")
    await aging.storage.maintain()
    assert (await aging.partitions())[-1] == "2031_03_11"
    assert "2031_03_11" in await aging.partitions("naksha_tx")
    assert await aging.partitions("idle_hst") == []
    aging.clock.day = TODAY + timedelta(days=1)
    await aging.storage.maintain()
    assert (await aging.partitions())[-1] == "2031_03_11"


async def test_a_log_that_expires_is_not_called_wrong(aging: Aging) -> None:
    """Its versions expire first, its transactions once no reader needs them."""
    gone = aging.versions[3].seq_number
    await by_force(aging.plain, "DELETE FROM naksha_version WHERE seq_number < $1", gone)
    assert await aging.storage.mismatches("roads", 10) == []
    last = aging.versions[-1].seq_number
    statement = "UPDATE naksha_version SET seq_ts = seq_ts + interval '1 s' WHERE seq_number = $1"
    await by_force(aging.plain, statement, last)
    assert len(await aging.storage.mismatches("roads", 10)) == 1

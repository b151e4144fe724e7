"""Pins and horizons: history that is kept, and where it begins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from naksha.catalog.commit_log import CommitLog, LogCursor
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.maintenance import LogHorizon, LogHorizons, Retention, RetentionRule
from naksha.catalog.maintenance.log_horizon import read_log_horizons
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.model import limits
from naksha.model.errors import Expired, InvalidArgument, PointerNotFound, VersionNotFound
from naksha.spi.catalog import PointerRow
from tests.catalog.maintenance.support import GRACE, SHORT, Store


async def store_with_log(store: Store, commits: int = 20) -> Store:
    await store.realm()
    for number in range(commits):
        await store.put({"a": str(number)})
    store.time.passes(GRACE + 1)
    return store


async def log_of(store: Store) -> CommitLog[EntitiesCommit]:
    return CommitLog(await store.persistence(), "config", EntitiesCommit)


async def cursor_at(store: Store, seq: int) -> str:
    log = await log_of(store)
    return (await log.oldest_first(limit=seq)).cursor


async def seqs_after(store: Store, cursor: str) -> list[int]:
    # A node of its own, so that nothing is read from a cache.
    store.catalog.cache.evict_realm("maps")
    page = await (await log_of(store)).oldest_first(cursor, limit=1_000)
    return [commit.value.seq for commit in page.commits]


class TestPins:
    @pytest.mark.parametrize("seq", [1, 5, 19, 20])
    async def test_pins_retain_all_later_commits(self, store: Store, seq: int) -> None:
        await store_with_log(store)
        cursor = await cursor_at(store, seq)
        states = [await store.texts_of(commit) for commit in await store.log()]
        history = LogHorizons(await store.persistence())
        await history.pin("config", "search index", cursor)
        maintenance = await store.maintenance(rules=[SHORT])
        await maintenance.run()
        await maintenance.run()
        assert await seqs_after(store, cursor) == list(range(seq + 1, 21))
        kept = [await store.texts_of(commit) for commit in await store.log()]
        assert kept == states[: 20 - seq + 1]
        assert await store.is_consistent()

    async def test_the_oldest_one_counts(self, store: Store) -> None:
        await store_with_log(store)
        history = LogHorizons(await store.persistence())
        for consumer, seq in (("a", 12), ("b", 7), ("c", 15)):
            await history.pin("config", consumer, await cursor_at(store, seq))
        await (await store.maintenance(rules=[SHORT])).run()
        assert (await store.log())[-1].value.seq == 7

    async def test_a_pin_that_moves_on_releases_older_commits(self, store: Store) -> None:
        await store_with_log(store)
        history = LogHorizons(await store.persistence())
        await history.pin("config", "a", await cursor_at(store, 3))
        await history.pin("config", "a", await cursor_at(store, 10))
        await (await store.maintenance(rules=[SHORT])).run()
        assert (await store.log())[-1].value.seq == 10
        await history.unpin("config", "a")
        await history.unpin("config", "nobody")
        await (await store.maintenance(rules=[SHORT])).run()
        assert (await store.log())[-1].value.seq == 20

    async def test_without_a_pin_a_late_reader_gets_expired(self, store: Store) -> None:
        await store_with_log(store)
        cursor = await cursor_at(store, 5)
        await (await store.maintenance(rules=[SHORT])).run()
        with pytest.raises(Expired):
            await seqs_after(store, cursor)

    async def test_nothing_is_pinned_that_is_gone(self, store: Store) -> None:
        await store_with_log(store)
        cursors = {seq: await cursor_at(store, seq) for seq in (5, 14, 15, 16)}
        rule = RetentionRule("*", Retention(commits=5, seconds=0))
        await (await store.maintenance(rules=[rule])).run()
        history = LogHorizons(await store.persistence())
        for seq in (5, 14):
            with pytest.raises(Expired, match="begins at commit 16") as error:
                await history.pin("config", "late", cursors[seq])
            assert error.value.oldest == 16
        for seq in (15, 16):
            await history.pin("config", f"in time {seq}", cursors[seq])
            await (await store.maintenance(rules=[SHORT])).run()
            assert await seqs_after(store, cursors[seq]) == list(range(seq + 1, 21))
            assert await store.is_consistent()

    async def test_a_pin_of_a_consumer_long_gone_retains_nothing(self, store: Store) -> None:
        await store_with_log(store)
        history = LogHorizons(await store.persistence())
        await history.pin("config", "dead", await cursor_at(store, 3))
        store.time.passes(limits.HISTORY_PIN_SECONDS_MAX - 60)
        maintenance = await store.maintenance(rules=[SHORT])
        await maintenance.run()
        assert (await store.log())[-1].value.seq == 3
        store.time.passes(120)
        await maintenance.run()
        assert (await store.log())[-1].value.seq == 20
        state = await read_log_horizons(RealmReader(store.backend, "maps"))
        assert state.pins == ()

    async def test_a_consumer_may_want_less_time(self, store: Store) -> None:
        await store_with_log(store)
        history = LogHorizons(await store.persistence())
        cursor = await cursor_at(store, 3)
        for seconds in (0.0, limits.HISTORY_PIN_SECONDS_MAX + 1):
            with pytest.raises(InvalidArgument, match="seconds"):
                await history.pin("config", "a", cursor, seconds)
        await history.pin("config", "a", cursor, 600)
        store.time.passes(500)
        maintenance = await store.maintenance(rules=[SHORT])
        await maintenance.run()
        assert (await store.log())[-1].value.seq == 3
        store.time.passes(200)
        await maintenance.run()
        assert (await store.log())[-1].value.seq == 20

    async def test_a_pin_created_while_a_run_marks_is_respected(self, store: Store) -> None:
        """After the logs were walked, before they are cut."""
        await store_with_log(store)
        cursor = await cursor_at(store, 4)
        history = LogHorizons(await store.persistence())
        await history.pin("config", "other", await cursor_at(store, 18))
        real = store.backend.list_pointers
        listed = 0

        async def list_pointers(
            realm: str, prefix: str, after: str, limit: int
        ) -> list[PointerRow]:
            nonlocal listed
            rows = await real(realm, prefix, after, limit)
            if realm == "maps" and not rows:
                listed += 1
                await history.pin("config", "just in time", cursor)
            return rows

        store.between.list_pointers = list_pointers  # type: ignore[attr-defined]
        await (await store.maintenance(rules=[SHORT])).run()
        assert listed == 1
        assert await seqs_after(store, cursor) == list(range(5, 21))
        assert (await store.log())[-1].value.seq == 4
        assert await store.is_consistent()

    async def test_a_pin_created_while_a_run_sweeps_is_refused(self, store: Store) -> None:
        """The commits that the pin asks for are being deleted, although they still exist."""
        await store_with_log(store)
        cursor = await cursor_at(store, 4)
        history = LogHorizons(await store.persistence())
        errors: list[Expired] = []

        async def pin(rows: Sequence[object]) -> None:
            try:
                await history.pin("config", "too late", cursor)
            except Expired as error:
                errors.append(error)

        store.between.before_delete = pin
        await (await store.maintenance(rules=[SHORT])).run()
        assert errors

    async def test_pins_belong_to_one_life_of_the_pointer(self, store: Store) -> None:
        await store_with_log(store)
        history = LogHorizons(await store.persistence())
        old = LogCursor.parse(await cursor_at(store, 3))
        with pytest.raises(VersionNotFound):
            await history.pin("config", "a", str(LogCursor(old.created + 1, 3, old.id)))
        with pytest.raises(PointerNotFound):
            await history.pin("other", "a", str(old))
        await history.pin("config", "a", str(old))
        persistence = await store.persistence()
        assert await persistence.delete_pointer(await persistence.pointer_now("config"))
        await store.put({"b": "new"})
        await store.put({"b": "newer"})
        store.time.passes(GRACE + 1)
        await (await store.maintenance(rules=[SHORT])).run()
        assert [commit.value.seq for commit in await store.log()] == [2]

    @pytest.mark.parametrize("consumer", ["", "x" * (limits.CONSUMER_BYTES_MAX + 1)])
    async def test_a_consumer_has_a_name(self, store: Store, consumer: str) -> None:
        await store_with_log(store, 1)
        history = LogHorizons(await store.persistence())
        with pytest.raises(InvalidArgument, match="consumer"):
            await history.pin("config", consumer, await cursor_at(store, 1))


class TestHorizons:
    async def test_pins_never_move_back(self, store: Store) -> None:
        """Commits below a horizon may be partly deleted, so later rules cannot restore them."""
        await store_with_log(store)
        rule = RetentionRule("*", Retention(commits=5, seconds=0))
        await (await store.maintenance(rules=[rule])).run()
        maintenance = await store.maintenance()
        await maintenance.run()
        state = await read_log_horizons(RealmReader(store.backend, "maps"))
        created = (await (await store.persistence()).pointer_now("config")).created
        assert state.horizons == {"config": LogHorizon(pointer="config", created=created, seq=16)}
        assert len(await store.log()) == 5
        assert await store.is_consistent()

    async def test_a_realm_whose_logs_are_whole_has_none(self, store: Store) -> None:
        await store_with_log(store)
        await (await store.maintenance()).run()
        assert await store.backend.fetch_pointers("maps", ["history"]) == {}

    async def test_pins_of_removed_pointers_are_removed(self, store: Store) -> None:
        await store_with_log(store)
        maintenance = await store.maintenance(rules=[SHORT])
        await maintenance.run()
        persistence = await store.persistence()
        assert await persistence.delete_pointer(await persistence.pointer_now("config"))
        await maintenance.run()
        state = await read_log_horizons(RealmReader(store.backend, "maps"))
        assert "config" not in state.horizons

"""Conformance: the transaction log, its signals and messages, and publication."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

import msgspec
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Query
from naksha.model.transaction import MAIN, LogFilter, Signal, Transaction
from naksha.model.version import AtTxn, Version
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.models.json_values import same
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    feature,
    fresh_name,
    log_after,
    new_collection,
    one_transaction,
    point,
    published,
    rolled_back,
)


def signals_of(transaction: Transaction, action: str) -> dict[str, Signal]:
    return {s.id: s for s in transaction.signals if s.action == action}


def features_of(transaction: Transaction, handle: Handle) -> Signal:
    return signals_of(transaction, "MODIFY_FEATURES")[handle.name]


class TestLog:
    async def test_by_author_time_and_action(self, places: Handle) -> None:
        before = await places.published()
        await places.create(point("x"), app="my-app", author="me")
        transaction = await one_transaction(places.storage, before)
        assert (transaction.app_id, transaction.author) == ("my-app", "me")
        assert transaction.seq_number == before.seq_number + 1
        state = await places.get("x")
        assert transaction.txn == state.txn
        assert transaction.started_ms == state.xyz["updatedAt"]
        assert transaction.published_ms is not None
        version = await places.storage.resolve(AtTxn(transaction.txn))
        assert version.published_ms == transaction.published_ms
        assert await places.storage.transaction(transaction.txn) == transaction

    async def test_without_author_there_is_none(self, places: Handle) -> None:
        before = await places.published()
        await places.create(point("x"))
        assert (await one_transaction(places.storage, before)).author is None

    async def test_counts(self, places: Handle) -> None:
        await places.create(point("u", n=1), point("same"), point("d"), point("r"), point("p"))
        await places.delete("r", "p")
        before = await places.published()

        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("a"), point("b"), point("c")])
            await session.update(places.name, [point("u", n=2), point("same")])
            await session.delete(places.name, ["d", "nobody"])
            await session.restore(places.name, ["r"])
            await session.purge(places.name, ["p", "nobody"])

        await places.write(work)
        signal = features_of(await one_transaction(places.storage, before), places)
        counts = (signal.created, signal.updated, signal.deleted, signal.purged)
        assert counts == (3, 2, 1, 1)

    async def test_one_signal_per_collection(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        before = await published(storage)
        async with storage.write(APP) as session:
            for n in range(3):
                await session.create(one.name, [point(f"x{n}")])
                await session.create(two.name, [point(f"y{n}"), point(f"z{n}")])
        transaction = await one_transaction(storage, before)
        assert len(transaction.signals) == 2
        assert features_of(transaction, one).created == 3
        assert features_of(transaction, two).created == 6

    async def test_the_box_covers_old_and_new_geometries(self, places: Handle) -> None:
        line = {"type": "LineString", "coordinates": [[1, 2], [3, 5]]}
        await places.create(feature("x", line), point("y", -10, -20), point("z", 90, 80))
        before = await places.published()

        async def work(session: WriteSession) -> None:
            await session.update(places.name, [point("x", 7.125, 4)])
            await session.delete(places.name, ["y"])
            await session.create(places.name, [feature("nowhere")])

        await places.write(work)
        signal = features_of(await one_transaction(places.storage, before), places)
        assert signal.bbox == (-10, -20, 7.125, 5)

    @pytest.mark.parametrize(
        ("made", "box"),
        [
            (point("x", 8.1, 50.2), (8.1, 50.2, 8.1, 50.2)),
            (feature("x"), None),
            (feature("x", {"type": "Point", "coordinates": [1, 2, 9]}), (1, 2, 1, 2)),
            (point("x", 180.0, -90.0), (180.0, -90.0, 180.0, -90.0)),
        ],
    )
    async def test_the_box_of_one_feature(
        self, places: Handle, made: dict[str, Any], box: tuple[float, ...] | None
    ) -> None:
        before = await places.published()
        await places.create(made)
        signal = features_of(await one_transaction(places.storage, before), places)
        assert signal.bbox == box

    async def test_writes_without_changes_are_not_in_the_log(self, places: Handle) -> None:
        await places.create(point("x"))
        before = await places.published()
        await places.upsert(point("x"))
        await places.delete("nobody")
        async with places.storage.write(APP):
            pass
        await rolled_back(places.storage, lambda s: s.create(places.name, [point("y")]))
        assert await log_after(places.storage, before) == []

    async def test_pages_of_the_log(self, places: Handle) -> None:
        before = await places.published()
        for n in range(7):
            await places.upsert(point("x", n=n))
        whole = await log_after(places.storage, before)
        assert len(whole) == 7
        found: list[Transaction] = []
        while page := await places.storage.transactions(
            found[-1].seq_number or 0 if found else before.seq_number, 3
        ):
            assert len(page) <= 3
            found += page
        assert found == whole


class TestLogOfCollections:
    async def test_changes_of_collections(self, storage: Storage) -> None:
        before = await published(storage)
        name = fresh_name()

        async def make(session: WriteSession) -> None:
            await session.create_collection(CollectionInfo(id=name))
            await session.change_collection(name, CollectionChange(author="me"))

        await storage.run(make, APP)
        await storage.run(lambda s: s.drop_collection(name), APP)
        await storage.run(lambda s: s.restore_collection(name), APP)
        log = await log_after(storage, before)
        assert len(log) == 3
        for transaction in log:
            assert [(s.action, s.id) for s in transaction.signals] == [("MODIFY_COLLECTION", name)]


class EditedCollection(NamedTuple):
    """Transactions of all kinds by several authors on two collections; the log after `before`."""

    one: Handle
    two: Handle
    before: Version
    log: list[Transaction]

    @property
    def storage(self) -> Storage:
        return self.one.storage

    def named(self, where: LogFilter) -> LogFilter:
        """Return the filter with the names of the collections."""
        if where.collections is None:
            return where
        names = {"one": self.one.name, "two": self.two.name}
        named = tuple(names.get(name, name) for name in where.collections)
        return msgspec.structs.replace(where, collections=named)

    async def found(self, where: LogFilter) -> list[Transaction]:
        return await self.storage.transactions(self.before.seq_number, 1000, self.named(where))

    def wanted(self, where: LogFilter) -> list[Transaction]:
        return [t for t in self.log if log_matches(t, self.named(where))]


@pytest.fixture(scope="class")
async def edited(storage: Storage) -> EditedCollection:
    one, two = await new_collection(storage), await new_collection(storage)
    before = await published(storage)

    async def both(session: WriteSession) -> None:
        await session.create(one.name, [point("far", 50, 50)])
        await session.create(two.name, [point("far", 60, 60)])
        await session.message("about", "nothing", json={"fixed": True})

    async def fix(session: WriteSession) -> None:
        await session.create(one.name, [point("a", 1, 1), point("b", 2, 2)])
        await session.message("about", "Fixed the BRÜCKE, 100% sure")
        await session.message("more", "two messages")

    async def nowhere(session: WriteSession) -> None:
        await session.create(one.name, [feature("nowhere")])
        await session.message(one.name, "fixed it")

    await storage.run(fix, "app-a", "ann")
    await two.create(point("b", 10, 10), app="app-a", author="bob")
    await storage.run(both, "app-b", "ann")
    await one.write(lambda s: s.change_collection(one.name, CollectionChange(author="me")), "app-a")
    await storage.run(nowhere, "app-b", "bob")
    await storage.run(lambda s: s.message("note", "A NOTE_of ann"), "app-a", "ann")
    await two.create(point("e", 179.5, 5), app="app-a")
    await two.create(point("w", -179.5, 5), app="app-c", author="bob")
    await one.update(point("a", 3, 3), app="app-a", author="ann")
    return EditedCollection(one, two, before, await log_after(storage, before))


def log_matches(transaction: Transaction, where: LogFilter) -> bool:
    """Evaluate a filter on a transaction, independently of the storage."""
    changes = [s for s in transaction.signals if s.action != "MESSAGE"]
    if where.collections is not None:
        changes = [s for s in changes if s.id in where.collections]
    texts = [s.text or "" for s in transaction.signals if s.action == "MESSAGE"]
    at = transaction.published_ms or 0
    return all(
        (
            where.overlays is None or transaction.overlay in where.overlays,
            where.authors is None
            or transaction.author in where.authors
            or (where.unsigned and transaction.author is None),
            where.app_ids is None or transaction.app_id in where.app_ids,
            where.collections is None or changes != [],
            where.text is None or any(where.text.lower() in text.lower() for text in texts),
            where.bbox is None or any(_meets(s, where.bbox) for s in changes),
            (where.from_ms or 0) <= at < (where.to_ms or math.inf),
            (where.started_from or 0) <= transaction.started_ms < (where.started_to or math.inf),
        )
    )


def _meets(signal: Signal, box: Bbox) -> bool:
    if signal.bbox is None:
        return False
    west, south, east, north = signal.bbox
    if south > box.north or north < box.south:
        return False
    if box.west <= box.east:
        return west <= box.east and east >= box.west
    return east >= box.west or west <= box.east


FILTERS = {
    "all": LogFilter(),
    "everywhere": LogFilter(overlays=None),
    "an author": LogFilter(authors=("ann",)),
    "authors": LogFilter(authors=("ann", "bob")),
    "an author or none": LogFilter(authors=("bob",), unsigned=True),
    "an author that is not": LogFilter(authors=("an", "Ann", "%")),
    "no author at all": LogFilter(authors=()),
    "an application": LogFilter(app_ids=("app-b",)),
    "applications": LogFilter(app_ids=("app-c", "app-b")),
    "a collection": LogFilter(collections=("one",)),
    "collections": LogFilter(collections=("two", "one")),
    "no collection": LogFilter(collections=()),
    "what is only a message's id": LogFilter(collections=("note", "about")),
    "author and application": LogFilter(authors=("ann",), app_ids=("app-b",)),
    "author and collection": LogFilter(authors=("bob",), collections=("one",)),
    "text": LogFilter(text="fixed"),
    "text in another case": LogFilter(text="fIXED THE brücke"),
    "text with signs": LogFilter(text="100% s"),
    "text that only looks like a pattern": LogFilter(text="note%of"),
    "text that is nowhere": LogFilter(text="nowhere"),
    "any text": LogFilter(text=""),
    "text and collection": LogFilter(text="fixed", collections=("one",)),
    "text and another collection": LogFilter(text="fixed", collections=("two",)),
    "text and box": LogFilter(text="nothing", bbox=Bbox(40.0, 40.0, 55.0, 55.0)),
    "text and author": LogFilter(text="note", authors=("ann",)),
    "box": LogFilter(bbox=Bbox(0.0, 0.0, 5.0, 5.0)),
    "box that touches": LogFilter(bbox=Bbox(2.0, 2.0, 9.0, 9.0)),
    "box beside": LogFilter(bbox=Bbox(3.0000001, 3.0, 9.0, 9.0)),
    "box over the date line": LogFilter(bbox=Bbox(179.0, 0.0, -179.0, 9.0)),
    "box of the world": LogFilter(bbox=Bbox(-180.0, -90.0, 180.0, 90.0)),
    "box and collection": LogFilter(bbox=Bbox(40.0, 40.0, 70.0, 70.0), collections=("two",)),
    "box of the other collection": LogFilter(
        bbox=Bbox(55.0, 55.0, 70.0, 70.0), collections=("one",)
    ),
    "everything at once": LogFilter(
        bbox=Bbox(0.0, 0.0, 5.0, 5.0),
        collections=("one",),
        authors=("ann", "eve"),
        app_ids=("app-a",),
        text="brücke",
        from_ms=1,
        to_ms=4_000_000_000_000,
    ),
    "an overlay that is not": LogFilter(overlays=(123_456, -1, 2**40)),
    "main and an overlay": LogFilter(overlays=(MAIN, 123_456)),
    "no overlay": LogFilter(overlays=()),
    "far past": LogFilter(to_ms=1),
    "started at any time": LogFilter(started_from=-(2**62), started_to=2**62),
    "started in the far past": LogFilter(started_to=1),
    "started in the far future": LogFilter(started_from=4_000_000_000_000),
    "started after all time": LogFilter(started_from=2**62),
    "far future": LogFilter(from_ms=4_000_000_000_000),
    "beyond all time": LogFilter(from_ms=2**62, to_ms=2**63),
}
NOTHING = {
    "an author that is not",
    "no author at all",
    "no collection",
    "what is only a message's id",
    "text that only looks like a pattern",
    "text that is nowhere",
    "text and another collection",
    "box beside",
    "box of the other collection",
    "an overlay that is not",
    "no overlay",
    "far past",
    "started in the far past",
    "started in the far future",
    "started after all time",
    "far future",
    "beyond all time",
}


class TestLogFilters:
    @pytest.mark.parametrize("name", FILTERS)
    async def test_filter(self, edited: EditedCollection, name: str) -> None:
        wanted = edited.wanted(FILTERS[name])
        assert (wanted == []) == (name in NOTHING)
        assert await edited.found(FILTERS[name]) == wanted

    async def test_transactions_on_main_are_marked(self, edited: EditedCollection) -> None:
        assert {t.overlay for t in edited.log} == {MAIN}

    async def test_times(self, edited: EditedCollection) -> None:
        times = sorted({t.published_ms or 0 for t in edited.log})
        for first in (times[0], times[len(times) // 2], times[-1] + 1):
            for last in (times[0], times[-1], times[-1] + 1):
                where = LogFilter(from_ms=first, to_ms=last)
                assert await edited.found(where) == edited.wanted(where)
        assert await edited.found(LogFilter(from_ms=times[0])) == edited.log
        assert await edited.found(LogFilter(to_ms=times[0])) == []

    async def test_starts(self, edited: EditedCollection) -> None:
        """The start of a transaction equals the `updatedAt` of its states."""
        (state,) = [s async for s in edited.storage.states(edited.one.name, Query(ids=("a",)))]
        updated = state.xyz["updatedAt"]
        last = edited.log[-1]
        assert updated == last.started_ms
        assert last in await edited.found(LogFilter(started_from=updated))
        assert last not in await edited.found(LogFilter(started_from=updated + 1))
        assert last not in await edited.found(LogFilter(started_to=updated))
        times = sorted({t.started_ms for t in edited.log})
        for first in (times[0], times[len(times) // 2], times[-1] + 1):
            for end in (times[0], times[-1], times[-1] + 1):
                where = LogFilter(started_from=first, started_to=end)
                assert await edited.found(where) == edited.wanted(where)

    @pytest.mark.parametrize("name", ["all", "an author", "a collection", "text", "box"])
    async def test_pages(self, edited: EditedCollection, name: str) -> None:
        where = edited.named(FILTERS[name])
        found: list[Transaction] = []
        after = edited.before.seq_number
        while page := await edited.storage.transactions(after, 2, where):
            assert len(page) <= 2
            found += page
            after = page[-1].seq_number or 0
        assert found == edited.wanted(where)

    @pytest.mark.parametrize("name", ["all", "an author", "a collection", "text", "box"])
    async def test_newest_first(self, edited: EditedCollection, name: str) -> None:
        where = edited.named(FILTERS[name])
        wanted = edited.wanted(where)[::-1]
        end = (edited.log[-1].seq_number or 0) + 1
        assert await self.downwards(edited, end, where) == wanted
        middle = edited.log[4].seq_number or 0
        assert await self.downwards(edited, middle, where) == [
            t for t in wanted if (t.seq_number or 0) < middle
        ]

    async def downwards(
        self, edited: EditedCollection, after: int, where: LogFilter
    ) -> list[Transaction]:
        """Read the log in pages, newest first, from a version down to the first edit."""
        found: list[Transaction] = []
        while page := await edited.storage.transactions(after, 2, where, newest_first=True):
            assert len(page) <= 2
            mine = [t for t in page if (t.seq_number or 0) > edited.before.seq_number]
            found += mine
            if len(mine) < len(page):
                break
            after = page[-1].seq_number or 0
        return found

    async def test_newest_first_begins_at_the_end_of_the_log(
        self, edited: EditedCollection
    ) -> None:
        await edited.one.write(lambda s: s.message("last", "the end"))
        await published(edited.storage)
        (last,) = await edited.storage.transactions(0, 1, newest_first=True)
        assert signals_of(last, "MESSAGE")["last"].text == "the end"
        assert await edited.storage.transactions(1, 10, newest_first=True) == []

    @pytest.mark.parametrize(
        ("where", "field"),
        [
            (LogFilter(bbox=Bbox(0.0, math.nan, 1.0, 1.0)), "bbox"),
            (LogFilter(bbox=Bbox(0.0, 2.0, 1.0, 1.0)), "bbox"),
            (LogFilter(text="\0"), "text"),
            (LogFilter(authors=("\ud800",)), "authors"),
        ],
    )
    async def test_an_invalid_filter_is_named(
        self, edited: EditedCollection, where: LogFilter, field: str
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await edited.found(where)
        assert caught.value.field == field


class TestMessages:
    async def test_text_json_and_binary(self, places: Handle) -> None:
        before = await places.published()
        attachment = {"k": [1, 2.5, None, True, "ü", {"it's": "\\"}]}
        async with places.storage.write(APP) as session:
            await session.message("text", "Fixed the \\ 'bridge' ü\n👍")
            await session.message("json", json=attachment)
            await session.message("binary", binary=bytes(range(256)))
            await session.message("all", "t", json=[1], binary=b"\0")
        transaction = await one_transaction(places.storage, before)
        messages = signals_of(transaction, "MESSAGE")
        assert len(transaction.signals) == 4
        assert messages["text"].text == "Fixed the \\ 'bridge' ü\n👍"
        assert same(messages["json"].json, attachment)
        assert messages["binary"].binary == bytes(range(256))
        all_ = messages["all"]
        assert (all_.text, all_.json, all_.binary) == ("t", [1], b"\0")
        assert (messages["text"].json, messages["text"].binary) == (None, None)

    async def test_the_same_id_replaces(self, places: Handle) -> None:
        before = await places.published()
        async with places.storage.write(APP) as session:
            await session.message("note", "first", json={"n": 1}, binary=b"1")
            await session.create(places.name, [point("x")])
            await session.message("note", "second")
        transaction = await one_transaction(places.storage, before)
        (message,) = signals_of(transaction, "MESSAGE").values()
        assert (message.text, message.json, message.binary) == ("second", None, None)

    async def test_hostile_ids_and_texts(self, places: Handle) -> None:
        before = await places.published()
        async with places.storage.write(APP) as session:
            for text in NASTY_TEXTS:
                await session.message(text, text, json={text: text})
        messages = signals_of(await one_transaction(places.storage, before), "MESSAGE")
        assert {key: m.text for key, m in messages.items()} == {t: t for t in NASTY_TEXTS}
        assert all(m.json == {key: key} for key, m in messages.items())

    async def test_the_same_id_in_another_transaction_is_another_message(
        self, places: Handle
    ) -> None:
        before = await places.published()
        for text in ("one", "two"):
            await places.write(lambda s, t=text: s.message("note", t))  # type: ignore[misc]
        log = await log_after(places.storage, before)
        assert [signals_of(t, "MESSAGE")["note"].text for t in log] == ["one", "two"]


class TestPublication:
    async def test_numbers_are_dense_from_one(self, empty_storage: Storage) -> None:
        assert await empty_storage.transactions() == []
        handle = await new_collection(empty_storage)
        for n in range(5):
            await handle.upsert(point("x", n=n))
            await rolled_back(empty_storage, lambda s: s.create(handle.name, [point("y")]))
        await handle.published()
        log = await empty_storage.transactions()
        assert [t.seq_number for t in log] == [1, 2, 3, 4, 5, 6]
        assert [t.txn for t in log] == sorted(t.txn for t in log)

    async def test_an_empty_storage_is_at_version_zero(self, empty_storage: Storage) -> None:
        assert (await published(empty_storage)).seq_number == 0
        status = await empty_storage.publication()
        assert (status.last_seq_number, status.unpublished) == (0, 0)

    async def test_a_write_can_be_waited_for(self, places: Handle) -> None:
        await places.create(point("x"))
        txn = (await places.get("x")).txn
        version = await places.storage.wait_published(txn)
        assert version is not None
        assert version.txn == txn
        assert await places.storage.wait_published(txn, 0) == version

    async def test_without_unpublished_transactions_the_last_one_is_published(
        self, places: Handle
    ) -> None:
        """It holds even if the transaction is published between the two calls."""
        for n in range(40):
            await places.upsert(point("x", n=n))
            txn = (await places.get("x")).txn
            status = await places.storage.publication()
            while status.unpublished:
                status = await places.storage.publication()
            assert status.last_txn >= txn

    async def test_waiting_for_an_open_transaction_ends(self, places: Handle) -> None:
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("x")])
            assert session.txn is not None
            assert await places.storage.wait_published(session.txn, 0.2) is None

    async def test_an_open_transaction_holds_back_later_ones_and_is_named(
        self, storage: Storage
    ) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        before = await published(storage)
        async with storage.write(APP) as session:
            await session.create(one.name, [point("x")])
            await two.create(point("y"))
            later = (await two.get("y")).txn
            if session.txn is not None and later > session.txn:
                assert await storage.wait_published(later, 0.3) is None
                status = await storage.publication()
                assert (status.last_txn, status.unpublished) == (before.txn, 1)
                assert status.held_back_by
            first = session.txn
        log = await log_after(storage, before)
        assert [t.txn for t in log] == [first, later]

    async def test_every_instance_publishes_what_others_wrote(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        second = await make_storage(beside=places.storage)
        await places.create(point("x"))
        txn = (await places.get("x")).txn
        version = await second.wait_published(txn)
        assert version is not None
        assert await places.storage.wait_published(txn) == version

    async def test_transactions_left_by_a_closed_instance_are_published_by_the_next(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        first = await make_storage(beside=places.storage)
        txns = []
        for n in range(5):
            async with first.write(APP) as session:
                await session.create(places.name, [point(f"x{n}")])
                txns.append(session.txn)
        await first.close()
        second = await make_storage(beside=places.storage)
        version = await second.wait_published(txns[-1] or 0)
        assert version is not None
        assert version.txn == txns[-1]

    async def test_two_instances_share_one_dense_log(
        self, empty_storage: Storage, make_storage: StorageMaker
    ) -> None:
        second = await make_storage(beside=empty_storage)
        handle = await new_collection(empty_storage)
        hands = (handle, Handle(second, handle.name))
        await asyncio.gather(
            *(hands[n % 2].create(point(f"x{n}")) for n in range(20)),
        )
        await published(empty_storage)
        await published(second)
        log = await empty_storage.transactions()
        assert log == await second.transactions()
        assert [t.seq_number for t in log] == list(range(1, 22))
        assert [t.txn for t in log] == sorted(t.txn for t in log)

    async def test_both_instances_are_the_same_storage(
        self, storage: Storage, make_storage: StorageMaker
    ) -> None:
        second = await make_storage(beside=storage)
        assert (second.id, second.number) == (storage.id, storage.number)
        assert 0 <= storage.number < 2**40

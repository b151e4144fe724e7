"""The change feed, compared with the model for any page sizes and filter."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.model import query as q
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Expired, InvalidArgument, NotYetPublished
from naksha.model.query import Bbox, Op, Query, States
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import DAY_MS, SUITE_CHECKS_OFF, fresh_name, published
from naksha.versioning import (
    Attribution,
    FeedFilter,
    FeedPosition,
    FeedTransaction,
    Line,
    NameScope,
    create_branch,
    line_of,
    open_branch,
    read_feed,
    rebase,
)
from tests.versioning.feed.feed_model import (
    Content,
    Effect,
    ExpectedItem,
    FeedModel,
    LoggedTransaction,
    Script,
    queries,
    scripts,
)
from tests.versioning.town import ANN, BOB, delete, make, place, put

ALL = FeedFilter()
WHOLE = {"transactions_max": 1000, "features_max": 10_000}


async def main_of(storage: Storage) -> Line:
    return await line_of(storage, "main")


async def whole(
    line: Line, where: FeedFilter = ALL, *, after: FeedPosition | int = 0, **sizes: int
) -> list[FeedTransaction]:
    """The rest of the feed, page by page; every page keeps to its limits, and goes on."""
    position = FeedPosition(after) if isinstance(after, int) else after
    items: list[FeedTransaction] = []
    sizes = {**WHOLE, **sizes}
    while True:
        page = await read_feed(
            line,
            position,
            where,
            transactions_max=sizes["transactions_max"],
            features_max=sizes["features_max"],
        )
        assert sum(len(item.changes) for item in page.items) <= sizes["features_max"]
        assert len(page.items) <= sizes["transactions_max"]
        items += page.items
        if page.position == FeedPosition(page.last):
            return items
        assert page.position != position
        position = FeedPosition.parse(str(page.position))


def joined(items: list[FeedTransaction]) -> list[ExpectedItem]:
    """The items with their parts joined."""
    found: list[ExpectedItem] = []
    part = 0
    for item in items:
        seq = item.changeset.version.seq_number
        assert item.part == part
        if item.part == 0:
            assert not found or found[-1].seq_number < seq
            found.append(ExpectedItem(seq, [], []))
        assert found[-1].seq_number == seq
        found[-1].changes.extend(
            (c.collection, c.state.id, c.action, c.state.feature["properties"]["n"])
            for c in item.changes
        )
        found[-1].without.extend(item.without_states)
        part = 0 if item.is_last else part + 1
    assert part == 0
    return found


# ---- Against the model ---------------------------------------------------------------------------


class Town:
    """Two collections, the first of them also on a branch, and what was done to them."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.model = FeedModel()
        self.names = sorted((fresh_name("a"), fresh_name("b")))
        self.branch = fresh_name("fix")
        self.scope = NameScope(collections=(self.names[0],))
        self.live: dict[str, dict[tuple[str, str], Content]] = {"main": {}, "fix": {}}
        self.dead: dict[tuple[str, str], Content] = {}
        self.begin = 0

    async def open(self) -> None:
        async with self.storage.write("app") as session:
            for name in self.names:
                await session.create_collection(CollectionInfo(id=name))
        await create_branch(self.storage, self.branch, ANN, scope=self.scope)
        self.begin = (await published(self.storage)).seq_number

    async def line(self, line: str) -> Line:
        if line == "main":
            return await main_of(self.storage)
        return await open_branch(self.storage, self.branch, scope=self.scope)

    async def play(self, step: Script) -> None:
        await getattr(self, f"_{step.kind}")(step)

    async def _end(self, line: str, effects: list[Effect], *changed: str) -> None:
        seq = (await published(self.storage)).seq_number
        assert seq == self.begin + len(self.model.log) + 1
        self.model.add(LoggedTransaction(seq, line, effects, list(changed)))

    async def _message(self, step: Script) -> None:
        async with self.storage.write("app", step.author) as session:
            await session.message("message", "hello")
        await self._end("main", [])

    async def _switch(self, step: Script) -> None:
        name = self.names[1]
        turned = CollectionChange(history_enabled=name in self.model.off)
        async with self.storage.write("app", step.author) as session:
            await session.change_collection(name, turned)
        self.model.off ^= {name}
        await self._end("main", [], name)

    async def _purge(self, step: Script) -> None:
        gone = sorted(id_ for name, id_ in self.dead if name == self.names[0])
        if gone:
            async with self.storage.write("app", step.author) as session:
                await session.purge(self.names[0], gone)
            self.dead = {key: c for key, c in self.dead.items() if key[0] != self.names[0]}
            # Told in the changeset only.
            await self._end("main", [], self.names[0])

    async def _edit(self, step: Script) -> None:
        live = self.live[step.line]
        effects: list[Effect] = []
        storage = (await self.line(step.line)).storage
        async with storage.write("app", step.author) as session:
            for (number, id_), wanted in step.edits.items():
                key = (self.names[number], id_)
                if step.line == "fix" and number == 1:
                    continue
                effect = await self._do(session, step, key, wanted, live.get(key))
                if effect is None:
                    continue
                effects.append(effect)
                if effect.action == "DELETE":
                    live.pop(key)
                else:
                    live[key] = effect.now
                if step.line == "main":
                    self.dead.pop(key, None)
                    if effect.action == "DELETE":
                        self.dead[key] = effect.now
        if effects:
            await self._end(step.line, effects)

    async def _do(
        self,
        session: WriteSession,
        step: Script,
        key: tuple[str, str],
        wanted: tuple[int, int, str] | None,
        before: Content | None,
    ) -> Effect | None:
        name, id_ = key
        if wanted is not None:
            now = Content(*wanted, author=step.author)
            if before is not None and before[:3] == now[:3]:
                return None
            await session.upsert(name, [now.feature(id_)])
            return Effect(name, id_, "CREATE" if before is None else "UPDATE", now, before)
        if before is not None:
            await session.delete(name, [id_])
            return Effect(name, id_, "DELETE", before._replace(author=step.author), before)
        if step.restores and step.line == "main" and key in self.dead:
            await session.restore(name, [id_])
            now = self.dead[key]._replace(author=step.author)
            return Effect(name, id_, "UPDATE", now, None)
        return None


@settings(max_examples=5, derandomize=True, deadline=None, suppress_health_check=SUITE_CHECKS_OFF)
@given(steps=scripts, data=st.data())
async def test_the_feed_is_what_was_done(
    storage: Storage, steps: list[Script], data: st.DataObject
) -> None:
    await check_feed(storage, steps, data, 8)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=150, deadline=None, suppress_health_check=SUITE_CHECKS_OFF)
@given(steps=scripts, data=st.data())
async def test_the_feed_is_what_was_done_at_length(
    storage: Storage, steps: list[Script], data: st.DataObject
) -> None:
    await check_feed(storage, steps, data, 40)


async def check_feed(
    storage: Storage, steps: list[Script], data: st.DataObject, readings: int
) -> None:
    town = Town(storage)
    await town.open()
    for step in steps:
        await town.play(step)
    for _ in range(readings):
        line = data.draw(st.sampled_from(("main", "main", "fix")), label="line")
        where = FeedFilter(
            collections=data.draw(st.none() | st.sampled_from([(n,) for n in town.names])),
            actions=data.draw(
                st.none()
                | st.sets(st.sampled_from(("CREATE", "UPDATE", "DELETE")), min_size=1).map(tuple)
            ),
            query=data.draw(st.just(Query()) | queries()),
        )
        sizes = {
            "transactions_max": data.draw(st.sampled_from((1, 2, 5, 100))),
            "features_max": data.draw(st.sampled_from((1, 2, 3, 7, 100))),
        }
        items = await whole(await town.line(line), where, after=town.begin, **sizes)
        assert joined(items) == town.model.feed(line, where)
        for item in items:
            await check_states(await town.line(line), item)


async def check_states(line: Line, item: FeedTransaction) -> None:
    """States are as they were when they were made, whatever came later."""
    version = item.changeset.version
    own: dict[str, Any] = {"states": States.ALL, "txn_from": version.txn}
    for name in {change.collection for change in item.changes}:
        found = line.storage.states(name, Query(**own), AtSeq(version.seq_number))
        then = {state.id: state.raw async for state in found}
        for change in item.changes:
            if change.collection == name:
                assert change.state.raw == then[change.state.id]


# ---- Single cases --------------------------------------------------------------------------------


async def test_a_large_transaction_comes_in_parts(storage: Storage) -> None:
    await make(storage, "places", "roads")
    async with storage.write(ANN.app_id, ANN.author) as session:
        await session.upsert("roads", [place(f"r{n:03}", n=n) for n in range(7)])
        await session.upsert("places", [place(f"p{n:03}", n=n) for n in range(25)])
    await put(storage, place("after", n=1))
    items = await whole(await main_of(storage), after=1, features_max=10)
    assert [(i.part, i.is_last, len(i.changes)) for i in items] == [
        (0, False, 10),
        (1, False, 10),
        (2, False, 10),
        (3, True, 2),
        (0, True, 1),
    ]
    reported = [(c.collection, c.state.id) for i in items[:4] for c in i.changes]
    assert reported == [("places", f"p{n:03}") for n in range(25)] + [
        ("roads", f"r{n:03}") for n in range(7)
    ]
    page = await read_feed(
        await main_of(storage), FeedPosition(1), ALL, transactions_max=9, features_max=32
    )
    assert [(i.part, i.is_last, len(i.changes)) for i in page.items] == [(0, True, 32)]
    assert page.position == FeedPosition(2)


async def test_a_filter_is_kept_to_within_parts(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(f"p{n:03}", n=n % 3) for n in range(60)))
    await put(storage, *(place(f"p{n:03}", n=n % 2) for n in range(60)))
    where = FeedFilter(query=Query(where=q.Test(("properties", "n"), Op.EQ, 2)))
    items = await whole(await main_of(storage), where, features_max=7)
    # The first made twenty such features, the second replaced these.
    reported = joined(items)
    assert [(each.seq_number, len(each.changes)) for each in reported] == [(2, 20), (3, 20)]
    assert {change[3] for change in reported[0].changes} == {2}
    assert {change[1] for change in reported[1].changes} == {c[1] for c in reported[0].changes}
    assert {change[3] for change in reported[1].changes} == {0, 1}


async def test_a_feature_that_leaves_an_area_is_in_the_feed(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("x", 1.0, 1.0, n=0), place("y", 50.0, 1.0, n=0))
    await put(storage, place("x", 50.0, 1.0, n=0))
    await put(storage, place("x", 51.0, 1.0, n=0))
    await put(storage, place("y", 1.0, 1.0, n=0))
    await delete(storage, "y")
    where = FeedFilter(query=Query(spatial=Bbox(0, 0, 2, 2)))
    for size in (1000, 1):
        items = await whole(await main_of(storage), where, transactions_max=size)
        reported = [
            (i.changeset.version.seq_number, c.state.id, c.action) for i in items for c in i.changes
        ]
        assert reported == [
            (2, "x", "CREATE"),
            (3, "x", "UPDATE"),
            (5, "y", "UPDATE"),
            (6, "y", "DELETE"),
        ]


async def test_transactions_without_features_are_in_the_feed_unless_it_is_filtered(
    storage: Storage,
) -> None:
    await make(storage)
    async with storage.write(ANN.app_id) as session:
        await session.message("message", "hello")
    await published(storage)
    line = await main_of(storage)
    made, greeted = await whole(line)
    assert made.changeset.collections_changed == ("places",)
    assert greeted.changeset.message == "hello"
    assert [len(item.changes) for item in (made, greeted)] == [0, 0]
    assert len(await whole(line, FeedFilter(collections=("places",)))) == 1
    assert await whole(line, FeedFilter(actions=("CREATE",))) == []


async def test_signals_are_asked_for_by_the_names_of_the_document(storage: Storage) -> None:
    await make(storage)  # 1
    async with storage.write(ANN.app_id) as session:  # 2
        await session.message("message", "hello")
    await published(storage)
    await put(storage, place("x"))  # 3
    await put(storage, place("y"), by=BOB, message="touch")  # 4
    await delete(storage, "x")  # 5
    async with storage.write(ANN.app_id) as session:  # 6
        await session.purge("places", ["x"])
    await published(storage)
    line = await main_of(storage)
    of_places = {"collections": ("places",)}
    found: list[tuple[tuple[str, ...], dict[str, Any], list[int], list[str]]] = [
        (("TxComment",), {}, [2, 4], []),
        (("TxComment",), of_places, [4], []),
        (("TxComment",), {"query": Query(authors=("bob",))}, [4], []),
        (("TxComment",), {"query": Query(tags=(("red",),))}, [], []),
        (("TxModifyCollection",), {}, [1], []),
        (("TxModifyCollection",), {"collections": ("others",)}, [], []),
        (("TxModifyFeatures",), of_places, [3, 4, 5, 6], ["x", "y", "x"]),
        (("TxComment", "TxModifyCollection"), {}, [1, 2, 4], []),
        (("DELETE", "TxComment"), {}, [2, 4, 5], ["x"]),
        (("CREATE", "TxModifyCollection"), {}, [1, 3, 4], ["x", "y"]),
    ]
    for actions, more, versions, ids in found:
        where = FeedFilter(actions=actions, **more)
        for size in (1000, 1):
            items = await whole(line, where, transactions_max=size, features_max=size)
            assert [item.changeset.version.seq_number for item in items] == versions, where
            assert [change.state.id for item in items for change in item.changes] == ids


async def test_positions_pass_over_what_does_not_match(storage: Storage) -> None:
    await make(storage)
    for n in range(5):
        await put(storage, place("x", n=n))
    where = FeedFilter(query=Query(where=q.Test(("properties", "n"), Op.EQ, 99)))
    page = await read_feed(
        await main_of(storage), FeedPosition(0), where, transactions_max=3, features_max=10
    )
    assert (page.items, page.position, page.last) == ([], FeedPosition(3), 6)


async def test_changes_of_a_dropped_collection_are_not_skipped_silently(
    storage: Storage,
) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("x"))
    await put(storage, place("x"), into="roads")
    async with storage.write(ANN.app_id) as session:
        await session.drop_collection("places")
    await published(storage)
    for where in (ALL, FeedFilter(query=Query(where=q.Test(("id",), Op.EQ, "x")))):
        items = await whole(await main_of(storage), where)
        reported = {
            i.changeset.version.seq_number: (i.without_states, len(i.changes)) for i in items
        }
        assert reported[2] == (("places",), 0)
        assert reported[3] == ((), 1)


async def test_a_version_that_is_gone_is_expired(storage: Storage) -> None:
    async with storage.write("setup", at_ms=1_500_000_000_000) as session:
        await session.create_collection(CollectionInfo(id="places"))
    await put(storage, place("x", n=1))
    await storage.keep_log(1)
    await storage.maintain()
    line = await main_of(storage)
    with pytest.raises(Expired) as caught:
        await whole(line)
    assert caught.value.oldest == 2
    assert [reported.seq_number for reported in joined(await whole(line, after=1))] == [2]


@pytest.mark.parametrize("features_max", [10_000, 1])
async def test_expired_history_is_expired_even_if_the_log_has_it(
    storage: Storage, features_max: int
) -> None:
    """A reader that continues from the reported oldest version receives all later changes."""
    now_ms = time.time_ns() // 1_000_000
    async with storage.write("setup", at_ms=now_ms - 40 * DAY_MS) as session:
        await session.create_collection(CollectionInfo(id="places", max_age=1))
    for days in (30, 20, 10):
        async with storage.write("app", at_ms=now_ms - days * DAY_MS) as session:
            await session.upsert("places", [place("x", n=days), place("y", n=days)])
    await put(storage, place("x", n=0))
    await storage.maintain(now_ms)
    line, everything = await main_of(storage), Query(where=q.Test(("id",), Op.NE, "z"))
    for where, oldest in ((ALL, [4]), (FeedFilter(query=everything), [4, 5])):
        after = 0
        for version in oldest:
            with pytest.raises(Expired) as caught:
                await whole(line, where, after=after, features_max=features_max)
            assert caught.value.oldest == version
            after = version - 1
        found = joined(await whole(line, where, after=after, features_max=features_max))
        assert [each.seq_number for each in found] == list(range(oldest[-1], 6))
        assert all(each.changes and not each.without for each in found)


async def test_writes_without_history_are_signals(storage: Storage) -> None:
    """Also when it is on again: it is not too old, it has never been kept."""
    await make(storage)
    for enabled, n in ((True, 1), (False, 2), (False, 3), (True, 4), (True, 5)):

        async def switch(session: WriteSession, enabled: bool = enabled) -> None:
            await session.change_collection("places", CollectionChange(history_enabled=enabled))

        await storage.run(switch, "app")
        await put(storage, place("x", n=n))
    items = joined(await whole(await main_of(storage)))
    reported = [(each.without, [n for *_, n in each.changes]) for each in items]
    with_features = [each for each in reported if each != ([], [])]
    # What is oldest was written without history too, but it is still there.
    lost: tuple[list[str], list[int]] = (["places"], [])
    assert with_features == [lost, lost, ([], [3]), ([], [4]), ([], [5])]


async def test_positions_that_are_none(storage: Storage) -> None:
    await make(storage)
    line = await main_of(storage)
    for text in ("", "x", "-1", "1~", "1~ä", "1~0.places.\n", "00", "9" * 19, "1 ", " 1", "1~a~b"):
        with pytest.raises(InvalidArgument, match="position"):
            FeedPosition.parse(text)
    for text in ("0~x", "0~0.Places.", "0~1.places.!"):
        with pytest.raises(InvalidArgument):
            await whole(line, after=_position(text))
    with pytest.raises(InvalidArgument, match="not a position"):
        await whole(line, after=FeedPosition.parse("1~0.places."))
    with pytest.raises(NotYetPublished):
        await whole(line, after=2)


def _position(text: str) -> FeedPosition:
    number, _, within = text.partition("~")
    return FeedPosition(int(number), within)


def test_filters_that_are_none() -> None:
    for query in (Query(limit=1), Query(states=States.ALL), Query(txn_from=1), Query(space="s")):
        with pytest.raises(InvalidArgument) as caught:
            FeedFilter(query=query)
        assert caught.value.field == "query"
    for actions in ((), ("MOVE",)):
        with pytest.raises(InvalidArgument):
            FeedFilter(actions=actions)


async def test_a_rebased_branch_has_all_its_changes_in_the_feed(
    storage: Storage,
) -> None:
    await make(storage)
    await put(storage, place("x", n=1))
    await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    await put(fix.storage, place("x", n=2), place("y", n=2))
    await put(storage, place("z", n=3))
    await rebase(storage, "fix", Attribution("editor"))
    fix = await open_branch(storage, "fix")
    await put(fix.storage, place("y", n=4), place("z", n=4))
    for size in (1000, 1):
        reported = joined(await whole(fix, ALL, transactions_max=size, features_max=size))
        assert [c[1:] for c in reported[0].changes] == [("x", "UPDATE", 2), ("y", "CREATE", 2)]
        assert [c[1:] for c in reported[-1].changes] == [("y", "UPDATE", 4), ("z", "UPDATE", 4)]
        own = {item.seq_number for item in reported}
        items = await whole(await main_of(storage))
        assert own.isdisjoint({item.changeset.version.seq_number for item in items})


async def test_content_that_looks_like_the_end_of_a_state_stays(storage: Storage) -> None:
    await make(storage)
    first = await put(storage, place("x"))
    ends = [{"txn_next": str(first.txn + n)} for n in (1, 2, 3)]
    await put(storage, place("x", ends=ends, text=f'"txn_next":"{first.txn + 2}"'))
    last = await delete(storage, "x")
    assert last.txn == first.txn + 2
    [item] = [
        item
        for item in await whole(await main_of(storage))
        if item.changeset.version.seq_number == first.seq_number + 1
    ]
    [change] = item.changes
    assert change.state.feature["properties"]["ends"] == ends
    assert change.state.xyz["txn_next"] == "0"

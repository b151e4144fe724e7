"""Conformance: calls that commit, several kinds of changes at once, and resolved collections."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureExists,
    FeatureNotFound,
    InvalidArgument,
    Retryable,
)
from naksha.model.query import Query
from naksha.model.state import WriteOutcome
from naksha.spi.changes import Change, Delete, Put, Restore
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    fresh_name,
    log_after,
    new_collection,
    one_transaction,
    point,
    published,
    with_xyz,
)


def actions(outcomes: list[list[WriteOutcome]]) -> list[list[str]]:
    return [[outcome.action for outcome in each] for each in outcomes]


class TestCommittingCalls:
    async def test_the_call_is_the_whole_transaction(self, places: Handle) -> None:
        before = await published(places.storage)
        async with places.storage.write(APP) as session:
            (outcome,) = await session.create(places.name, [point("x")], commit=True)
            assert outcome.action == "CREATED"
            txn = session.txn
            # It is committed before the session is left.
            assert (await places.get("x")).uuid == outcome.uuid
        transaction = await one_transaction(places.storage, before)
        assert transaction.txn == txn
        assert transaction.app_id == APP
        assert (await places.get("x")).txn == txn

    async def test_no_other_call_may_follow(self, places: Handle) -> None:
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("x")], commit=True)
            with pytest.raises(InvalidArgument, match="committed"):
                await session.delete(places.name, ["x"])
            with pytest.raises(InvalidArgument, match="committed"):
                await session.page(places.name, Query())
        assert [state.id for state in await places.live()] == ["x"]

    async def test_it_commits_what_came_before(self, places: Handle) -> None:
        before = await published(places.storage)
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("x")])
            await session.message("why", "because")
            await session.delete(places.name, ["x"], commit=True)
        (transaction,) = await log_after(places.storage, before)
        assert [each.text for each in transaction.signals if each.action == "MESSAGE"] == [
            "because"
        ]
        assert await places.live() == []

    @pytest.mark.parametrize("commit", [False, True])
    @pytest.mark.parametrize("json", [None, {"a": 1}])
    async def test_a_message_may_depend_on_a_change(
        self, places: Handle, commit: bool, json: object
    ) -> None:
        before = await published(places.storage)
        for _ in range(2):  # The second time, nothing is changed.
            async with places.storage.write(APP) as session:
                await session.message("why", "because", json=json, if_changed=True)
                await session.upsert(places.name, [point("x")], commit=commit)
        (transaction,) = await log_after(places.storage, before)
        message = {signal.id: signal for signal in transaction.signals}["why"]
        assert (message.action, message.text, message.json) == ("MESSAGE", "because", json)

    async def test_an_exception_afterwards_undoes_nothing(self, places: Handle) -> None:
        calls = 0

        async def work(session: WriteSession) -> None:
            nonlocal calls
            calls += 1
            await session.create(places.name, [point(f"x{calls}")], commit=True)
            raise Retryable("not repeated, for it is committed")

        with pytest.raises(Retryable, match="not repeated"):
            await places.storage.run(work, APP)
        assert calls == 1
        assert [state.id for state in await places.live()] == ["x1"]

    async def test_a_failed_call_writes_nothing(self, places: Handle) -> None:
        await places.create(point("x"))
        before = await published(places.storage)
        with pytest.raises(FeatureExists) as caught:
            await places.create(point("w"), point("x"))
        assert caught.value.feature_id == "x"
        assert await log_after(places.storage, before) == []
        assert [state.id for state in await places.live()] == ["x"]

    async def test_a_call_without_effect_has_no_transaction(self, places: Handle) -> None:
        await places.create(point("x"))
        before = await published(places.storage)
        async with places.storage.write(APP) as session:
            (outcome,) = await session.update(places.name, [point("x")], commit=True)
            assert (outcome.action, session.txn) == ("RETAINED", None)
        assert await log_after(places.storage, before) == []


class TestSeveralChanges:
    async def test_all_kinds_are_one_transaction(self, places: Handle) -> None:
        await places.create(point("a", n=0), point("b"), point("c"))
        await places.delete("c")
        before = await published(places.storage)
        changes: list[Change] = [
            Delete(["b", "absent"]),
            Put("create", [point("z"), point("d")]),
            Put("update", [point("a", n=1)]),
            Restore(["c"]),
            Put("upsert", [point("e")]),
        ]
        for commit in (False, True):
            async with places.storage.write(APP) as session:
                outcomes = await session.apply(places.name, changes, commit=commit)
            expected = [["DELETED", "RETAINED"], ["CREATED"] * 2, ["UPDATED"], ["RESTORED"]]
            assert actions(outcomes) == [*expected, ["CREATED"]]
            assert [o.id for o in outcomes[1]] == ["z", "d"]
            transaction = await one_transaction(places.storage, before)
            (changed,) = transaction.signals
            assert (changed.created, changed.updated, changed.deleted) == (3, 2, 1)
            assert [s.id for s in await places.live()] == ["a", "c", "d", "e", "z"]
            assert {s.txn for s in await places.live()} == {transaction.txn}
            await places.delete("c", "d", "e", "z")
            await places.upsert(point("a", n=0), point("b"))
            before = await published(places.storage)

    async def test_all_or_nothing(self, places: Handle) -> None:
        await places.create(point("a"), point("b"))
        with pytest.raises(FeatureNotFound):
            await places.storage.run(
                lambda s: s.apply(
                    places.name, [Delete(["a"]), Put("update", [point("x")])], commit=True
                ),
                APP,
            )
        assert [s.id for s in await places.live()] == ["a", "b"]

    async def test_a_feature_is_changed_once(self, places: Handle) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await places.storage.run(
                lambda s: s.apply(places.name, [Put("create", [point("a")]), Delete(["b", "a"])]),
                APP,
            )
        assert caught.value.feature_id == "a"

    async def test_each_feature_has_its_own_lock(self, places: Handle) -> None:
        first = await places.create(point("a"), point("b"))
        await places.update(point("a", n=1))
        stale = with_xyz(point("a", n=2), uuid=first[0].uuid)
        with pytest.raises(Conflict) as caught:
            await places.storage.run(
                lambda s: s.apply(
                    places.name, [Delete(["b"], [first[1].uuid]), Put("upsert", [stale])]
                ),
                APP,
            )
        assert caught.value.feature_id == "a"
        assert len(await places.live()) == 2

    async def test_a_locked_deletion_of_an_absent_feature_is_a_conflict(
        self, places: Handle
    ) -> None:
        (made,) = await places.create(point("a"))
        await places.delete("a")
        with pytest.raises(Conflict):
            await places.delete("a", uuids=[made.uuid])


class TestFeaturesParsedFromJson:
    """`Put.is_json` saves a check of values that JSON does not express, and nothing else."""

    @pytest.mark.parametrize(
        ("value", "action"),
        [
            (1, "RETAINED"),
            (1.0, "RETAINED"),
            (True, "UPDATED"),
            ("1", "UPDATED"),
            (None, "UPDATED"),
        ],
    )
    async def test_an_equal_feature_is_retained(
        self, places: Handle, value: object, action: str
    ) -> None:
        await places.create(point("x", n=1))
        put = Put("update", [with_xyz(point("x", n=value), version=1)], is_json=True)
        async with places.storage.write(APP) as session:
            ((outcome,),) = await session.apply(places.name, [put], commit=True)
        assert outcome.action == action
        (state,) = await places.live()
        assert state.feature["properties"]["n"] == value

    @pytest.mark.parametrize(
        "bad",
        [
            point("x", n="\0"),
            point("x", n=msgspec.json.decode("[" * 200 + "]" * 200)),
            {"id": "x"},
            point("x", n="\ud800"),
        ],
    )
    async def test_all_else_is_checked(self, places: Handle, bad: dict[str, object]) -> None:
        with pytest.raises(InvalidArgument):
            async with places.storage.write(APP) as session:
                await session.apply(places.name, [Put("upsert", [bad], is_json=True)])
        assert await places.live() == []


class TestResolvedCollections:
    async def test_a_change_since_then_is_noticed(self, places: Handle) -> None:
        with pytest.raises(Retryable, match="was changed since"):
            async with places.storage.write(APP) as session:
                info = await session.resolve_collection(places.name)
                assert info.id_prefix is None
                await places.change(id_prefix="p:")
                await session.create(places.name, [point("p:x")])
        assert await places.live() == []

    @pytest.mark.parametrize("commit", [False, True])
    @pytest.mark.parametrize("kind", ["upsert", "delete", "restore", "purge"])
    async def test_a_change_by_another_instance_is_noticed(
        self, places: Handle, make_storage: StorageMaker, kind: str, commit: bool
    ) -> None:
        """`run` does not use an info that it remembers but that has changed."""
        await places.create(point("x"), point("y"))
        if kind in ("restore", "purge"):
            await places.delete("x")
        await published(places.storage)
        other = await make_storage(beside=places.storage)
        await Handle(other, places.name).change(id_prefix="p:")
        what = [point("p:x", n=1)] if kind == "upsert" else ["p:x"]

        async def work(session: WriteSession) -> list[WriteOutcome]:
            outcomes: list[WriteOutcome] = await getattr(session, kind)(
                places.name, what, commit=commit
            )
            return outcomes

        (outcome,) = await places.storage.run(work, APP)
        expected = {"upsert": "UPDATED", "delete": "DELETED", "restore": "RESTORED"}
        assert (outcome.id, outcome.action) == ("x", expected.get(kind, "PURGED"))

    async def test_work_is_repeated_with_the_current_info(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        await places.create(point("x"))
        other = await make_storage(beside=places.storage)
        await Handle(other, places.name).change(id_prefix="p:")
        prefixes = []

        async def work(session: WriteSession) -> None:
            prefix = (await session.resolve_collection(places.name)).id_prefix
            prefixes.append(prefix)
            await session.upsert(places.name, [point(f"{prefix or ''}new")], commit=True)

        await places.storage.run(work, APP)
        assert prefixes[-1] == "p:"
        assert [state.id for state in await places.live()] == ["new", "x"]

    @pytest.mark.parametrize("fails", [False, True])
    async def test_work_that_writes_nothing_sees_the_current_info(
        self, places: Handle, make_storage: StorageMaker, fails: bool
    ) -> None:
        await places.create(point("x"))
        await Handle(await make_storage(beside=places.storage), places.name).change(id_prefix="p:")

        async def work(session: WriteSession) -> str | None:
            prefix = (await session.resolve_collection(places.name)).id_prefix
            if prefix is None and fails:
                raise InvalidArgument("the prefix is missing")
            return prefix

        assert await places.storage.run(work, APP) == "p:"

    async def test_an_error_of_the_work_is_raised_once(self, places: Handle) -> None:
        await places.create(point("x"))
        calls = 0

        async def work(session: WriteSession) -> None:
            nonlocal calls
            calls += 1
            await session.resolve_collection(places.name)
            raise InvalidArgument("for other reasons")

        with pytest.raises(InvalidArgument, match="for other reasons"):
            await places.storage.run(work, APP)
        assert calls == 1

    async def test_a_collection_dropped_and_created_again(
        self, storage: Storage, make_storage: StorageMaker
    ) -> None:
        places = await new_collection(storage, points_only=True)
        await places.create(point("x"))
        other = await make_storage(beside=storage)
        await other.run(lambda s: s.drop_collection(places.name), APP)
        with pytest.raises(CollectionNotFound):
            await places.create(point("y"))
        await other.run(lambda s: s.restore_collection(places.name), APP)
        await places.create(point("z"))
        assert [state.id for state in await places.live()] == ["x", "z"]

    async def test_a_collection_that_does_not_exist(self, storage: Storage) -> None:
        name = fresh_name()
        async with storage.write(APP) as session:
            with pytest.raises(CollectionNotFound):
                await session.resolve_collection(name)

    async def test_the_own_changes_of_a_session_are_known(self, places: Handle) -> None:
        await places.create(point("x"))
        async with places.storage.write(APP) as session:
            await session.resolve_collection(places.name)
            await session.change_collection(places.name, CollectionChange(id_prefix="p:"))
            (outcome,) = await session.upsert(places.name, [point("p:y")])
        assert outcome.id == "y"

    async def test_writers_beside_changes_of_the_collection(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        """Each writes by the prefix that is valid when it writes."""
        other = await make_storage(beside=places.storage)
        is_done = False

        async def change() -> None:
            n = 0
            while not is_done:
                n += 1
                await Handle(other, places.name).change(id_prefix=f"p{n % 2}:")
                await asyncio.sleep(0.01)

        async def write(worker: int) -> None:
            for n in range(10):

                async def work(session: WriteSession, id: str = f"{worker}-{n}") -> None:
                    prefix = (await session.resolve_collection(places.name)).id_prefix or ""
                    await session.create(places.name, [point(prefix + id)], commit=True)

                await places.storage.run(work, APP)

        changing = asyncio.create_task(change())
        await asyncio.gather(*(write(worker) for worker in range(4)))
        is_done = True
        await changing
        expected = sorted(f"{worker}-{n}" for worker in range(4) for n in range(10))
        assert sorted(state.id for state in await places.live()) == expected

"""Conformance: of a feature's writes in one transaction only the last is visible."""

from __future__ import annotations

from collections.abc import Sequence

from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.spi.storage import WriteSession
from naksha.testing.storage.suite_support import Handle, content, ids_of, point, seq


def numbers(states: Sequence[State]) -> list[object]:
    return [content(state)["properties"].get("n") for state in states]


class TestSeveralWritesInOneTransaction:
    async def test_two_updates_are_one_visible_state(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        first = await places.published()

        async def work(session: WriteSession) -> None:
            await session.update(places.name, [point("x", n=2)])
            await session.update(places.name, [point("x", n=3)])

        await places.write(work)
        second = await places.published()
        assert second.seq_number == first.seq_number + 1
        assert numbers(await places.all()) == [1, 3]
        assert numbers(await places.live(seq(first))) == [1]
        assert numbers(await places.live(seq(second))) == [3]

    async def test_the_last_update_takes_the_place_of_the_first(self, places: Handle) -> None:
        """The visible chain has no gaps: `version` and `puuid` link states of transactions.

        The overwritten state has its own id, by which it is still found.
        """
        await places.create(point("x", n=1))
        first = await places.get("x")

        async def work(session: WriteSession) -> str | None:
            (outcome,) = await session.update(places.name, [point("x", n=2)])
            await session.update(places.name, [point("x", n=3)])
            return outcome.uuid

        uuid = await places.write(work)
        state = await places.get("x")
        xyz = state.xyz
        assert (xyz["action"], xyz["version"], xyz["puuid"]) == ("UPDATE", 2, first.uuid)
        assert uuid not in (None, state.uuid)
        overwritten = await places.storage.state(uuid or "")
        assert content(overwritten)["properties"] == {"n": 2}
        assert overwritten.xyz["txn_next"] == overwritten.xyz["txn"] == state.xyz["txn"]

    async def test_created_and_updated(self, places: Handle) -> None:
        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x", n=1)])
            await session.update(places.name, [point("x", n=2)])

        await places.write(work)
        assert numbers(await places.all()) == [2]
        xyz = (await places.get("x")).xyz
        assert (xyz["action"], xyz["version"], xyz["puuid"]) == ("CREATE", 1, None)
        assert xyz["createdAt"] == xyz["updatedAt"]

    async def test_created_and_deleted_leaves_a_tombstone_only(self, places: Handle) -> None:
        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x")])
            await session.delete(places.name, ["x"])

        await places.write(work)
        version = await places.published()
        assert await places.live() == await places.live(seq(version)) == []
        assert ids_of(await places.deleted()) == ["x"]
        assert ids_of(await places.deleted(seq(version))) == ["x"]
        assert [s.xyz["action"] for s in await places.all()] == ["DELETE"]

    async def test_deleted_and_created_is_one_create_over_the_old_state(
        self, places: Handle
    ) -> None:
        await places.create(point("x", n=1))
        first = await places.published()

        async def work(session: WriteSession) -> None:
            await session.delete(places.name, ["x"])
            await session.create(places.name, [point("x", n=2)])

        await places.write(work)
        second = await places.published()
        assert [(s.xyz["action"], s.xyz["puuid"]) for s in await places.all()] == [
            ("CREATE", None),
            ("CREATE", None),
        ]
        assert numbers(await places.live(seq(first))) == [1]
        assert numbers(await places.live(seq(second))) == [2]
        assert (await places.get("x")).xyz["version"] == 3
        assert await places.deleted() == []
        assert await places.deleted(seq(second)) == []

    async def test_deleted_and_restored(self, places: Handle) -> None:
        await places.create(point("x", n=1))

        async def work(session: WriteSession) -> str | None:
            (deleted,) = await session.delete(places.name, ["x"])
            await session.restore(places.name, ["x"])
            return deleted.uuid

        tombstone = await places.write(work)
        state = await places.get("x")
        assert (state.xyz["action"], state.xyz["puuid"]) == ("UPDATE", tombstone)
        assert [s.xyz["action"] for s in await places.all()] == ["CREATE", "UPDATE"]

    async def test_created_over_a_tombstone_and_deleted_again(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        await places.delete("x")
        first = await places.published()

        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x", n=2)])
            await session.delete(places.name, ["x"])

        await places.write(work)
        second = await places.published()
        assert numbers(await places.deleted(seq(first))) == [1]
        assert numbers(await places.deleted(seq(second))) == [2]
        assert [s.xyz["action"] for s in await places.all()] == ["CREATE", "DELETE", "DELETE"]
        assert await places.live(seq(second)) == []

    async def test_updated_and_deleted(self, places: Handle) -> None:
        await places.create(point("x", n=1))

        async def work(session: WriteSession) -> None:
            await session.update(places.name, [point("x", n=2)])
            await session.delete(places.name, ["x"])

        await places.write(work)
        assert numbers(await places.all()) == [1, 2]
        assert numbers(await places.deleted()) == [2]

    async def test_back_to_the_old_content_is_still_a_state(self, places: Handle) -> None:
        """Each write is compared with the state the session sees, not with the one before it."""
        await places.create(point("x", n=1))

        async def work(session: WriteSession) -> list[str]:
            changes = [await session.update(places.name, [point("x", n=n)]) for n in (2, 2, 1, 1)]
            return [outcome.action for (outcome,) in changes]

        assert await places.write(work) == ["UPDATED", "RETAINED", "UPDATED", "RETAINED"]
        assert numbers(await places.all()) == [1, 1]

    async def test_the_session_itself_sees_one_state_too(self, places: Handle) -> None:
        await places.create(point("x", n=1))

        async def work(session: WriteSession) -> list[object]:
            await session.update(places.name, [point("x", n=2)])
            await session.update(places.name, [point("x", n=3)])
            page = await session.page(places.name, Query(states=States.ALL, limit=9))
            return numbers(page.states)

        assert await places.write(work) == [1, 3]

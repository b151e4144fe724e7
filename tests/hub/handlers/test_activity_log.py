"""The activity log: every state of another space, with the patch that reverts it."""

from typing import Any

import pytest

from naksha.hub.handlers.activity_log import LOG
from naksha.hub.pipeline.requests import DeleteFeatures
from naksha.hub.pipeline.version_requests import ReadChangesets
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotImplementedHere, ReadOnly
from naksha.model.query import Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import State
from tests.hub.handlers.support import CONTEXT, HubUnderTest, feature


def log_of(state: State) -> dict[str, Any]:
    found: dict[str, Any] = state.feature["properties"][LOG]
    return found


def in_time(states: list[State]) -> list[State]:
    return sorted(states, key=lambda state: state.txn)


async def history(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.space("log", ("activity-log", {"spaceId": "roads"}))
    await hub.put("roads", feature("a", n=1, old=True))
    await hub.put("roads", feature("a", n=2, new=[1], tags=["x"]))
    await hub.delete("roads", "a")
    await hub.put("roads", feature("a", n=3))


class TestActivityLog:
    async def test_every_state_can_be_taken_back(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await history(hub)
        states = in_time(await hub.states("log"))
        assert [log_of(state)["action"] for state in states] == [
            *("CREATE", "UPDATE", "DELETE", "CREATE")
        ]
        assert {log_of(state)["id"] for state in states} == {"a"}
        created, updated, deleted, again = map(log_of, states)
        assert "diff" not in created
        assert "diff" not in again
        assert updated["diff"]["ops"] == [
            {"op": "replace", "path": "/properties/@ns:com:here:xyz/tags", "value": []},
            {"op": "replace", "path": "/properties/n", "value": 1},
            {"op": "remove", "path": "/properties/new"},
            {"op": "add", "path": "/properties/old", "value": True},
        ]
        assert {kind: updated["diff"][kind] for kind in ("add", "remove", "replace")} == {
            "add": 1,
            "remove": 1,
            "replace": 2,
        }
        assert deleted["diff"]["ops"] == []

    async def test_the_state_before_is_found_though_a_query_does_not(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await history(hub)
        query = Query(where=PropertyTest(("properties", "n"), Op.EQ, 2))
        states = in_time(await hub.states("log", query))
        assert len(states) == 2
        assert log_of(states[0])["diff"]["add"] == 1
        assert await hub.count("log", query) == 2

    async def test_in_pages_and_chunks(
        self, hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("naksha.hub.handlers.activity_log.LOG_CHUNK_STATES", 2)
        await hub.space("roads")
        await hub.space("log", ("activity-log", {"spaceId": "roads"}))
        for n in range(5):
            await hub.put("roads", *(feature(id, n=n) for id in "abc"))
        states = await hub.states("log")
        assert len(states) == 15
        for state in states:
            before = state.feature["properties"]["n"] - 1
            ops = log_of(state).get("diff", {}).get("ops")
            wanted = [{"op": "replace", "path": "/properties/n", "value": before}]
            assert ops == (None if before < 0 else wanted)
        assert [len(page) for page in await hub.pages("log", Query(limit=4))] == [4, 4, 4, 3]
        assert limits.LOG_CHUNK_STATES > 2

    async def test_it_can_only_be_read(self, hub: HubUnderTest) -> None:
        await history(hub)
        with pytest.raises(ReadOnly):
            await hub.put("log", feature("a"))
        with pytest.raises(ReadOnly):
            await hub.realm.send("log", DeleteFeatures(), CONTEXT)
        with pytest.raises(NotImplementedHere):
            await hub.realm.send("log", ReadChangesets(), CONTEXT)
        with pytest.raises(InvalidArgument):
            await hub.space("none", ("activity-log", {}))

"""Delivery of changes to subscribers, in order and in the configured form."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from naksha.hub.config.objects import Connector
from naksha.hub.subscriptions.changes import (
    create_subscription,
    remove_subscription,
    reset_subscription,
)
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.progress import ProgressTable
from naksha.hub.subscriptions.service import SubscriptionService
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Expired, Forbidden, InUse, InvalidArgument
from naksha.model.version import AtSeq
from naksha.spi.storage import WriteSession
from tests.hub.handlers.support import ACTOR, feature
from tests.hub.realms import an_actor
from tests.hub.subscriptions.support import DeliveringHub, eventually, has_no_leftovers

EAST = {"type": "Point", "coordinates": [20.0, 50.0]}
AROUND_FRANKFURT = {
    "type": "Polygon",
    "coordinates": [[[8, 50], [9, 50], [9, 51], [8, 51], [8, 50]]],
}
OF_ROADS = {"source": {"spaceId": "roads"}}
DAY_MS = 86_400_000


async def test_published_changes_are_delivered_in_order(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("before"))
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a", speed=30), feature("b"))
    await hub.put("roads", feature("a", speed=50))
    await hub.delete("roads", "b")
    await hub.caught_up(found)
    assert hub.told("s") == [
        [("CREATE", "a"), ("CREATE", "b")],
        [("UPDATE", "a")],
        [("DELETE", "b")],
    ]
    lines = hub.lines("s")
    versions = [line["version"] for line in lines]
    assert versions == sorted(versions)
    assert lines[1]["features"][0]["feature"]["properties"]["speed"] == 50
    assert lines[1]["features"][0]["feature"]["properties"]["@ns:com:here:xyz"]["space"] == "roads"
    assert lines[0]["appId"] == "tests"


@pytest.mark.parametrize("start", ["beginning", "now", 2])
async def test_it_starts_where_it_shall(hub: DeliveringHub, start: Any) -> None:
    await hub.space("roads")
    ids = [f"r{n}" for n in range(4)]
    versions = {}
    for id in ids:
        versions[id] = (await hub.put("roads", feature(id))).version
    found = await hub.subscribe("s", **OF_ROADS, start=start)
    await hub.put("roads", feature("last"))
    await hub.caught_up(found)
    expected = {
        "beginning": ids,
        "now": [],
        2: [id for id in ids if (versions[id] or 0) > 2],
    }[start]
    assert [id for line in hub.told("s") for _, id in line] == [*expected, "last"]


async def test_a_storage_subscription_covers_all_collections(hub: DeliveringHub) -> None:
    for space in ("roads", "places"):
        await hub.space(space)
    everything = await hub.subscribe("all", source={"storageId": "default"})
    some = await hub.subscribe("some", source={"storageId": "default", "collections": ["places"]})
    await hub.put("roads", feature("a"))
    await hub.put("places", feature("b"))
    await hub.caught_up(everything)
    await hub.caught_up(some)
    assert [id for line in hub.told("all") for _, id in line] == ["a", "b"]
    assert [id for line in hub.told("some") for _, id in line] == ["b"]
    told = hub.lines("some")[-1]
    assert told["features"][0]["collection"] == "places"
    assert told["collections"][0]["created"] == 1


async def test_filters_limit_deliveries(hub: DeliveringHub) -> None:
    await hub.space("roads")
    filters: dict[str, dict[str, Any]] = {
        "actions": {"actions": ["DELETE"]},
        "tags": {"tags": "open+paved"},
        "properties": {"properties": "p.speed>40"},
        "path": {"jsonPath": "$.properties[?@ > 40]"},
        "area": {"spatialFilter": {"geometry": AROUND_FRANKFURT}},
        "authors": {"authors": ["nobody"]},
    }
    found = [await hub.subscribe(name, **OF_ROADS, filter=told) for name, told in filters.items()]
    await hub.put("roads", feature("a", tags=["open", "paved"], speed=30), feature("b", speed=50))
    away = {"geometry": EAST}
    await hub.put("roads", {**feature("a", tags=["closed"], speed=60), **away})
    await hub.put("roads", {**feature("a", tags=["closed"], speed=70), **away})
    await hub.delete("roads", "b")
    for each in found:
        await hub.caught_up(each)
    assert hub.told("actions") == [[("DELETE", "b")]]
    # A feature that no longer matches is delivered once more, because it matched before.
    assert hub.told("tags") == [[("CREATE", "a")], [("UPDATE", "a")]]
    assert hub.told("properties") == [
        [("CREATE", "b")],
        [("UPDATE", "a")],
        [("UPDATE", "a")],
        [("DELETE", "b")],
    ]
    assert hub.told("area") == [
        [("CREATE", "a"), ("CREATE", "b")],
        [("UPDATE", "a")],
        [("DELETE", "b")],
    ]
    assert hub.told("path") == hub.told("properties")
    assert hub.told("authors") == []


async def test_comments_and_changes_of_collections_are_delivered_in_order(
    hub: DeliveringHub,
) -> None:
    found = [
        await hub.subscribe(name, source={"storageId": "default"}, filter={"actions": actions})
        for name, actions in {
            "signals": ["TxComment", "TxModifyCollection"],
            "comments": ["TxComment"],
            "features": ["TxModifyFeatures"],
            "deleted": ["DELETE", "TxComment"],
        }.items()
    ]
    await hub.space("roads")
    changed = await hub.subscribe("space", **OF_ROADS, filter={"actions": ["TxModifyCollection"]})
    await hub.put("roads", feature("a"))
    storage = await hub.realm.storage("default")
    async with storage.write("tests") as session:
        await session.message("message", "hello")
    await hub.delete("roads", "a")
    async with storage.write("tests") as session:
        await session.change_collection("roads", CollectionChange(max_age=100))
    await hub.put("roads", feature("b"))
    for each in (*found, changed):
        await hub.caught_up(each)

    def events(id: str) -> list[Any]:
        return [
            line.get("message")
            or [one["feature"]["id"] for one in line["features"]]
            or [each["id"] for each in line["collections"] if each.get("changed")]
            for line in hub.lines(id)
        ]

    assert events("signals") == [["roads"], "hello", ["roads"]]
    assert events("comments") == ["hello"]
    assert events("features") == [["a"], ["a"], ["b"]]
    assert events("deleted") == ["hello", ["a"]]
    assert events("space") == [["roads"], ["roads"]]


@pytest.mark.parametrize("action", ["TxComment", "TxModifyCollection"])
@pytest.mark.parametrize(
    "more",
    [
        {"tags": "open"},
        {"properties": "p.speed>40"},
        {"jsonPath": "$.properties[?@ > 40]"},
        {"spatialFilter": {"geometry": AROUND_FRANKFURT}},
    ],
)
def test_filters_on_features_do_not_go_with_signals_that_have_none(
    action: str, more: dict[str, Any]
) -> None:
    told = {"id": "s", **OF_ROADS, "eventHandlerIds": ["x"]}
    with pytest.raises(InvalidArgument, match=action) as caught:
        Subscription.from_json({**told, "filter": {"actions": ["CREATE", action], **more}}).check()
    assert caught.value.field == "filter.actions"
    for fine in (
        {"actions": ["TxModifyFeatures"], **more},
        {"actions": [action], "authors": ["a"]},
    ):
        Subscription.from_json({**told, "filter": fine}).check()


async def test_each_granularity(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    found = [
        await hub.subscribe(name, **OF_ROADS, granularity=name)
        for name in ("PER_FEATURE", "PER_TRANSACTION", "CONTENT_CHANGE")
    ]
    await hub.put("roads", feature("a"), feature("b"))
    await hub.put("roads", feature("b", speed=1))
    for each in found:
        await hub.caught_up(each)
    assert hub.told("PER_FEATURE") == [[("CREATE", "a")], [("CREATE", "b")], [("UPDATE", "b")]]
    assert hub.told("PER_TRANSACTION") == [[("CREATE", "a"), ("CREATE", "b")], [("UPDATE", "b")]]
    assert hub.told("CONTENT_CHANGE") == [[], []]
    assert hub.lines("CONTENT_CHANGE")[0]["collections"][0]["created"] == 2


async def test_features_are_cut_at_the_border_of_the_area(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    area = {"geometry": AROUND_FRANKFURT, "clip": True}
    found = await hub.subscribe("s", **OF_ROADS, filter={"spatialFilter": area})
    line = {"type": "LineString", "coordinates": [[8.5, 50.5], [10.5, 50.5]]}
    await hub.put("roads", {**feature("a"), "geometry": line})
    await hub.put("roads", {**feature("a"), "geometry": EAST})
    await hub.caught_up(found)
    told = [line["features"][0]["feature"]["geometry"] for line in hub.lines("s")]
    assert told == [{"type": "LineString", "coordinates": [[8.5, 50.5], [9, 50.5]]}, EAST]


async def test_a_target_space_mirrors_its_source(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.space("copy")
    await hub.put("roads", feature("old", speed=1), feature("gone"))
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    found = await hub.subscribe("s", **OF_ROADS, start="beginning", eventHandlerIds=[to])
    await hub.put("roads", feature("new", tags=["x"], speed=2))
    await hub.put("roads", feature("old", speed=3))
    await hub.delete("roads", "gone")
    await hub.caught_up(found)
    assert await hub.read("copy") == {"new": {"speed": 2}, "old": {"speed": 3}}
    tags = {state.id: state.xyz["tags"] for state in await hub.states("copy")}
    assert tags["new"] == ["x"]


async def test_a_transaction_in_parts_reaches_the_other_space_whole(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.FEED_FEATURES_MAX", 7)
    await hub.space("roads")
    await hub.space("copy")
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
    lines = await hub.subscribe("lines", **OF_ROADS)
    features = [feature(f"f{n:02}", n=n) for n in range(30)]
    await hub.put("roads", *features)
    await hub.caught_up(found)
    await hub.caught_up(lines)
    assert await hub.read("copy") == {f"f{n:02}": {"n": n} for n in range(30)}
    told = hub.lines("lines")
    assert [one["part"] for one in told] == list(range(len(told)))
    assert [one["isLast"] for one in told] == [*[False] * (len(told) - 1), True]
    assert len(told) > 3


async def test_repeated_deliveries_are_not_written_again(hub: DeliveringHub) -> None:
    """A repeated delivery, and a late one of an instance that lost the lease."""
    await hub.space("roads")
    await hub.space("copy")
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
    await hub.put("roads", feature("a", speed=1))
    await hub.put("roads", feature("a", speed=2))
    await hub.caught_up(found)
    table = ProgressTable(hub.realm.opened.persistence)
    storage = await hub.realm.storage("default")
    before = (await storage.publication()).last_seq_number

    def back(old: Any) -> Any:
        position = type(old.position)(found.started_after)
        return type(old)(
            **{**_members(old), "position": position, "term": old.term + 1, "holder": ""}
        )

    await table.change(found.progress_id, back)
    await hub.caught_up(found)
    assert await hub.read("copy") == {"a": {"speed": 2}}
    assert (await storage.publication()).last_seq_number == before


def _members(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__struct_fields__}


async def test_the_position_is_saved_now_and_then_and_when_it_is_given_back(
    file_hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = file_hub
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_SAVE_SECONDS", 60)
    await hub.space("roads")
    await hub.put("roads", feature("before"))
    found = await hub.subscribe("s", **OF_ROADS)
    begun = (await hub.status(found))["version"]
    for number in range(3):
        await hub.put("roads", feature(f"r{number}"))

        async def is_there(count: int = number + 1) -> bool:
            return len(hub.lines("s")) == count

        # It rests in between, and does not save for that.
        await eventually(is_there)
        assert (await hub.status(found))["version"] == begun
    assert hub.service is not None
    await hub.service.close()
    assert (await hub.status(found))["version"] == begun + 3


async def test_the_position_is_saved_while_nothing_happens(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("before"))
    found = await hub.subscribe("s", **OF_ROADS)
    begun = (await hub.status(found))["version"]
    for number in range(5):
        await hub.put("roads", feature(f"r{number}"))
    await hub.caught_up(found)
    assert (await hub.status(found))["version"] == begun + 5
    assert (await hub.status(found))["delivered"] == 5


async def test_reset_and_replay(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.space("copy")
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    copy = await hub.subscribe("copy", **OF_ROADS, start="beginning", eventHandlerIds=[to])
    lines = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a", speed=1))
    await hub.put("roads", feature("a", speed=2))
    for each in (copy, lines):
        await hub.caught_up(each)
    await hub.delete("copy", "a")
    for each in (copy, lines):
        await reset_subscription(hub.realm, each.id, each.started_after, ACTOR)
        await hub.caught_up(each)
    assert await hub.read("copy") == {"a": {"speed": 2}}
    assert hub.told("s") == [[("CREATE", "a")], [("UPDATE", "a")]] * 2


async def test_a_paused_one_goes_on_where_it_was(hub: DeliveringHub) -> None:
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    await hub.realm.registry.change(type(found), "s", lambda old: _with(old, active=False), ACTOR)
    assert (await hub.comes_to(found, "paused"))["state"] == "paused"
    await hub.put("roads", feature("b"))
    storage = await hub.realm.storage("default")
    assert (await hub.status(found))["version"] < (await storage.publication()).last_seq_number
    await hub.realm.registry.change(type(found), "s", lambda old: _with(old, active=True), ACTOR)
    await hub.caught_up(found)
    assert hub.told("s") == [[("CREATE", "a")], [("CREATE", "b")]]


def _with(old: Any, **changes: Any) -> Any:
    return type(old)(**{**_members(old), **changes})


async def test_a_failing_subscription_reports_why_and_blocks_no_other(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.space("checked", ("read-only", {}), ("storage", {}))
    to = await hub.connector("to-checked", "to-space", spaceId="checked")
    failing = await hub.subscribe("failing", **OF_ROADS, eventHandlerIds=[to])
    other = await hub.subscribe("other", **OF_ROADS)
    await hub.put("roads", feature("a"))
    told = await hub.comes_to(failing, "failing")
    assert "read-only" in told["stateReason"]
    await hub.put("roads", feature("b"))
    await hub.caught_up(other)
    assert len(hub.told("other")) == 2
    connector = "checked-0-read-only"
    await hub.realm.registry.change(
        Connector, connector, lambda old: _with(old, active=False), ACTOR
    )
    await hub.caught_up(failing)
    assert (await hub.status(failing))["state"] == "active"
    assert list(await hub.read("checked")) == ["a", "b"]


async def test_without_history_there_are_signals_only(hub: DeliveringHub) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a"))
    storage = await hub.realm.storage("default")

    async def off(session: WriteSession) -> None:
        await session.change_collection("roads", CollectionChange(history_enabled=False))

    found = await hub.subscribe("s", **OF_ROADS)
    await storage.run(off, "tests")
    await hub.put("roads", feature("a", speed=1))
    await hub.put("roads", feature("a", speed=2))
    await hub.caught_up(found)
    changed = [line for line in hub.lines("s") if line["collections"][0].get("updated")]
    assert len(changed) == 2
    for line in changed:
        assert (line["collections"][0]["statesKept"], line["features"]) == (False, [])


async def test_expired_changes_are_not_skipped(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept for a while for who is behind, and then it is said that it is not."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_PIN_SECONDS", 0.05)
    storage = await hub.realm.storage("default")
    now = time.time_ns() // 1_000_000
    for days in (30, 20, 10):
        async with storage.write("tests", at_ms=now - days * 86_400_000) as session:
            await session.create_collection(CollectionInfo(id=f"c{days}"))
            await session.create(f"c{days}", [feature("a")])
    await storage.keep_log(1)
    of_all = {"storageId": "default"}
    found = await hub.subscribe("s", source=of_all, start="beginning", active=False)
    await storage.maintain(now)
    assert (await storage.resolve(AtSeq(1))).seq_number == 1
    await hub.realm.registry.change(type(found), "s", lambda old: _with(old, keep_days=0), ACTOR)

    async def is_gone() -> bool:
        await storage.maintain(now)
        try:
            await storage.resolve(AtSeq(1))
        except Expired:
            return True
        return False

    await eventually(is_gone)
    await hub.realm.registry.change(type(found), "s", lambda old: _with(old, active=True), ACTOR)
    told = await hub.comes_to(found, "expired")
    assert "has expired" in told["stateReason"]
    assert hub.told("s") == []
    await reset_subscription(hub.realm, "s", "now", ACTOR)
    async with storage.write("tests") as session:
        await session.create("c10", [feature("b")])
    await hub.caught_up(found)
    assert hub.told("s") == [[("CREATE", "b")]]


@pytest.mark.parametrize("active", [True, False])
async def test_changes_expired_in_one_collection_are_not_skipped(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch, active: bool
) -> None:
    """The log still has the counts of the expired changes, but a copy would miss the changes. A
    paused subscription becomes expired, too."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_PIN_SECONDS", 0.05)
    storage = await hub.realm.storage("default")
    now = time.time_ns() // 1_000_000
    async with storage.write("tests", at_ms=now - 40 * DAY_MS) as session:
        await session.create_collection(CollectionInfo(id="roads", max_age=1))
    for days in (30, 20, 10):
        async with storage.write("tests", at_ms=now - days * DAY_MS) as session:
            await session.upsert("roads", [feature("a", n=days), feature(f"b{days}")])
    await storage.maintain(now)
    await hub.space("roads")
    await hub.space("copy")
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    found = await hub.subscribe(
        "s", **OF_ROADS, start="beginning", keepDays=0, active=active, eventHandlerIds=[to]
    )
    told = await hub.comes_to(found, "expired")
    assert "has expired" in told["stateReason"]
    assert await hub.read("copy") == {}
    if active:
        await reset_subscription(hub.realm, "s", 3, ACTOR)
        await hub.caught_up(found)
        assert await hub.read("copy") == {"a": {"n": 10}, "b10": {}}


async def test_nothing_is_left_of_one_that_is_removed(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_LEFTOVER_SECONDS", 0)
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    await remove_subscription(hub.realm, "s", ACTOR)
    table = ProgressTable(hub.realm.opened.persistence)
    assert await table.get(found.progress_id) is None
    await eventually(partial(has_no_leftovers, hub))
    assert hub.service is not None
    await eventually(_nothing_held(hub.service))
    again = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=["s-file"])
    await hub.put("roads", feature("b"))
    await hub.caught_up(again)
    assert hub.told("s") == [[("CREATE", "a")], [("CREATE", "b")]]


def _nothing_held(service: SubscriptionService) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return not service.held()

    return holds


async def test_a_subscribed_source_is_in_use(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    await hub.subscribe("s", **OF_ROADS)
    with pytest.raises(InUse, match="subscription 's'"):
        await hub.realm.registry.remove_space("roads", ACTOR)
    with pytest.raises(InUse, match="subscription 's'"):
        await hub.realm.registry.remove(Connector, "s-file", ACTOR)


async def test_delivery_cycles_are_rejected(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    to = await hub.connector("to-roads", "to-space", spaceId="roads")
    for source in ({"spaceId": "roads"}, {"storageId": "default"}):
        with pytest.raises(InvalidArgument, match="endlessly"):
            await hub.subscribe("s", source=source, eventHandlerIds=[to])


async def test_subscribing_requires_the_rights_of_the_delivery(file_hub: DeliveringHub) -> None:
    hub = file_hub
    for space in ("roads", "copy"):
        await hub.space(space)
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    thing = Subscription.from_json({"id": "s", **OF_ROADS, "eventHandlerIds": [to]})
    rights: dict[str, Any] = {
        "manageSubscriptions": [{}],
        "useConnectors": [{}],
        "useSpaces": [{}],
        "readFeatures": [{"spaceId": "roads"}],
        "createFeatures": [{"spaceId": "copy"}],
        "updateFeatures": [{"spaceId": "copy"}],
        "deleteFeatures": [{"spaceId": "copy"}],
    }
    for missing in rights:
        given = {name: value for name, value in rights.items() if name != missing}
        with pytest.raises(Forbidden):
            await create_subscription(hub.realm, thing, an_actor("eve", **given))
    some = {**rights, "readFeatures": [{"spaceId": "roads", "tags": ["open"]}]}
    with pytest.raises(Forbidden, match="some"):
        await create_subscription(hub.realm, thing, an_actor("eve", **some))
    await create_subscription(hub.realm, thing, an_actor("eve", **rights))
    await hub.put("roads", feature("a"))
    made = await hub.realm.registry.get(Subscription, "s")
    await hub.caught_up(made)
    (state,) = await hub.states("copy")
    assert state.xyz["appId"] == "eve"

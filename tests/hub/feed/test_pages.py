"""The change feed of spaces and storages: its content, its readers and its timing."""

import asyncio
from typing import Any

import msgspec
import pytest

from naksha.hub.auth.rights import Right, parse_rights
from naksha.hub.config.objects import Space
from naksha.hub.feed import pages
from naksha.hub.feed.log_tail import LogTail
from naksha.hub.feed.storage_feed import read_storage_changes
from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.pipeline.version_requests import ForgetVersions, ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.collection import CollectionChange
from naksha.model.errors import Expired, Forbidden, InvalidArgument, NotImplementedHere
from naksha.model.query import Query
from naksha.model.version import HEAD
from naksha.spi.storage import WriteSession
from naksha.versioning import FeedPage, read_feed
from tests.hub.handlers.support import ACTOR, CONTEXT, HubUnderTest, feature

Told = list[tuple[str, str, int | None]]


async def changes(hub: HubUnderTest, space: str, after: str = "0", **asked: Any) -> Changes:
    return await hub.realm.send(space, ReadChanges(after=after, **asked), CONTEXT)


def told(page: Changes) -> Told:
    """Action, id and n of all changes."""
    return [
        (change.action, change.state.id, change.state.feature["properties"].get("n"))
        for item in page.items
        for change in item.changes
    ]


async def test_a_space_feed_has_its_own_changes_in_order(any_hub: HubUnderTest) -> None:
    hub = any_hub
    for name in ("roads", "rails"):
        await hub.space(name)
    await hub.put("roads", feature("a", n=1), feature("b", n=1))
    await hub.put("rails", feature("a", n=9))
    await hub.put("roads", feature("a", n=2))
    await hub.delete("roads", "b")
    page = await changes(hub, "roads")
    assert told(page) == [
        ("CREATE", "a", 1),
        ("CREATE", "b", 1),
        ("UPDATE", "a", 2),
        ("DELETE", "b", 1),
    ]
    spaces = {change.state.xyz["space"] for item in page.items for change in item.changes}
    assert spaces == {"roads"}
    assert (page.position, page.storage) == (str(page.last), "default")
    assert {each.collection for item in page.items for each in item.changeset.touched} == {"roads"}
    assert (await changes(hub, "roads", page.position)).items == []
    assert told(await changes(hub, "roads", actions=("DELETE",))) == [("DELETE", "b", 1)]


async def test_without_a_position_it_begins_now(any_hub: HubUnderTest) -> None:
    hub = any_hub
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1))
    page = await changes(hub, "roads", "")
    assert (page.items, page.position) == ([], str(page.last))
    await hub.put("roads", feature("a", n=2))
    assert told(await changes(hub, "roads", page.position)) == [("UPDATE", "a", 2)]


async def test_long_polls_return_on_matching_changes_only(
    any_hub: HubUnderTest,
) -> None:
    hub = any_hub
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1))
    begin = (await changes(hub, "roads", "")).position
    asked = {"query": Query(ids=("b",)), "wait_seconds": 60.0}
    waiting = asyncio.create_task(changes(hub, "roads", begin, **asked))
    await hub.put("roads", feature("a", n=2))
    await hub.put("roads", feature("b", n=3))
    assert told(await waiting) == [("CREATE", "b", 3)]
    page = await changes(hub, "roads", begin, query=Query(ids=("c",)), wait_seconds=0.05)
    assert (page.items, page.position) == ([], str(page.last))


async def test_long_polls_read_changes_of_their_collection_only(
    any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, looks = any_hub, 0
    for name in ("roads", "rails"):
        await hub.space(name)
        await hub.put(name, feature("a", n=0))

    async def read(*arguments: Any, **named: Any) -> FeedPage:
        nonlocal looks
        looks += 1
        return await read_feed(*arguments, **named)

    monkeypatch.setattr(pages, "read_feed", read)
    begin = (await changes(hub, "roads", "")).position
    waiting = asyncio.create_task(changes(hub, "roads", begin, wait_seconds=60.0))
    others = asyncio.create_task(changes(hub, "roads", begin, wait_seconds=60.0))
    for n in range(20):
        await hub.put("rails", feature("a", n=n + 1))
    before = looks
    await hub.put("roads", feature("a", n=1))
    for each in (waiting, others):
        assert told(await each) == [("UPDATE", "a", 1)]
    # Once each; one of them may have begun before what the other one has kept.
    assert 3 <= before <= 4
    assert looks == before + 2


async def test_a_gap_before_the_log_tail_is_read(
    any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail of one transaction, and a beginning that is always too far behind."""
    hub = any_hub
    monkeypatch.setattr(limits, "FEED_TAIL_TRANSACTIONS", 1)
    for name in ("roads", "rails"):
        await hub.space(name)
        await hub.put(name, feature("a", n=0))
    storage = await hub.realm.storage("default")
    tail, last = LogTail(), (await storage.resolve(HEAD)).seq_number
    assert await tail.untouched(storage, last - 2, last, ("roads",)) == last - 2
    assert await tail.untouched(storage, last - 1, last, ("roads",)) == last
    assert await tail.untouched(storage, last - 1, last, ("rails",)) == last - 1
    monkeypatch.setattr(limits, "FEED_TRANSACTIONS_MAX", 1)
    for n in range(5):
        await hub.put("rails", feature("a", n=n + 1))
    assert await tail.untouched(storage, last + 3, last + 5, ("roads",)) == last + 3
    assert await tail.untouched(storage, last + 4, last + 5, ("roads",)) == last + 5


async def test_the_feed_of_a_filtered_space_has_visible_changes_only(
    any_hub: HubUnderTest,
) -> None:
    hub = any_hub
    await hub.space("all", ("storage", {"collection": "c"}))
    await hub.space(
        "some", ("tag-filter", {"contains": ["open"]}), ("storage", {"collection": "c"})
    )
    await hub.put("all", feature("a", n=1, tags=["open"]), feature("b", n=1), feature("c", n=1))
    await hub.put("all", feature("b", n=2))
    await hub.put("all", feature("a", n=3, tags=["closed"]))
    await hub.put("all", feature("a", n=4, tags=["closed"]))
    page = await changes(hub, "some")
    # What it is by then is not for those who see only this space.
    assert told(page) == [("CREATE", "a", 1), ("DELETE", "a", None)]
    assert all(b"closed" not in one.state.raw for item in page.items for one in item.changes)
    # Nor does it tell how many others there were, and where.
    (touched,) = page.items[0].changeset.touched
    assert (touched.created, touched.bbox) == (1, None)
    (left,) = page.items[1].changeset.touched
    assert (left.updated, left.deleted) == (0, 1)
    assert (await changes(hub, "all")).items[0].changeset.touched[0].created == 3


async def test_views_and_transformed_spaces_tell_no_changes(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.space("view", ("view", {"spaceIds": ["roads"]}))
    rename = {"op": "rename", "from": "properties.a", "to": "properties.b"}
    await hub.space("otherwise", ("transform", {"onRead": [rename]}), ("storage", {}))
    for space in ("view", "otherwise"):
        with pytest.raises(NotImplementedHere):
            await changes(hub, space)


async def test_versions_that_the_owner_gave_up_are_expired(any_hub: HubUnderTest) -> None:
    hub = any_hub
    await hub.space("roads")
    versions = [(await hub.put("roads", feature("a", n=n))).version for n in range(3)]
    assert versions[1] is not None
    await hub.realm.send("roads", ForgetVersions(older_than=versions[1]), CONTEXT)
    await hub.realm.registry.change(
        Space, "roads", lambda space: space.without_versions_before(versions[1] or 0), ACTOR
    )
    with pytest.raises(Expired) as caught:
        await changes(hub, "roads", "0")
    assert caught.value.oldest == versions[1]
    assert len((await changes(hub, "roads", str(versions[1] - 1))).items) == 2


async def test_a_right_to_some_features_is_not_enough(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1))
    some = {"useSpaces": [{}], "readFeatures": [{"id": "a"}]}
    actor = Actor(app_id="tests", rights=parse_rights({"naksha": some}))
    with pytest.raises(Forbidden):
        await hub.realm.send(
            "roads", ReadChanges(after="0"), msgspec.structs.replace(CONTEXT, actor=actor)
        )


@pytest.mark.parametrize("asked", [{"limit": 0}, {"limit": 10**6}, {"after": "x"}])
async def test_requests_that_make_no_sense(hub: HubUnderTest, asked: dict[str, Any]) -> None:
    await hub.space("roads")
    with pytest.raises(InvalidArgument):
        await hub.realm.send("roads", ReadChanges(**asked), CONTEXT)


# ---- Storages ------------------------------------------------------------------------------------

READ = Right.READ_FEATURES.value
USE = Right.USE_STORAGES.value


async def stored(
    hub: HubUnderTest, *collections: str, actor: Actor = ACTOR, after: str = "0"
) -> Changes:
    return await read_storage_changes(
        hub.realm, "default", collections, ReadChanges(after=after), actor
    )


async def test_a_storage_feed_has_the_changes_of_all_collections(any_hub: HubUnderTest) -> None:
    hub = any_hub
    for name in ("roads", "rails"):
        await hub.space(name)
        await hub.put(name, feature("a", n=len(name)))
    assert told(await stored(hub)) == [("CREATE", "a", 5), ("CREATE", "a", 5)]
    page = await stored(hub, "rails")
    assert [c.collection for item in page.items for c in item.changes] == ["rails"]
    assert "space" not in page.items[-1].changes[0].state.xyz


@pytest.mark.parametrize(
    ("granted", "collections", "is_allowed"),
    [
        ({USE: [{}], READ: [{}]}, (), True),
        ({USE: [{"id": "default"}], READ: [{"storageId": "default"}]}, (), True),
        ({USE: [{}], READ: [{"collectionId": "roads"}]}, ("roads",), True),
        ({USE: [{}], READ: [{"collectionId": "roads"}]}, ("roads", "rails"), False),
        ({USE: [{}], READ: [{"collectionId": "roads"}]}, (), False),
        ({USE: [{}], READ: [{"spaceId": "roads"}]}, ("roads",), False),
        ({USE: [{}], READ: [{"tags": "open"}]}, (), False),
        ({USE: [{}], READ: [{"storageId": "other"}]}, (), False),
        ({USE: [{}]}, (), False),
        ({READ: [{}]}, (), False),
        ({USE: [{"id": "other"}], READ: [{}]}, (), False),
    ],
)
async def test_it_takes_the_rights_to_the_storage_and_to_all_features(
    hub: HubUnderTest, granted: dict[str, Any], collections: tuple[str, ...], is_allowed: bool
) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1))
    actor = Actor(app_id="tests", rights=parse_rights({"naksha": granted}))
    if is_allowed:
        assert told(await stored(hub, *collections, actor=actor)) == [("CREATE", "a", 1)]
    else:
        with pytest.raises(Forbidden):
            await stored(hub, *collections, actor=actor)


# ---- JSON ----------------------------------------------------------------------------------------


async def test_a_published_transaction_as_json(any_hub: HubUnderTest) -> None:
    hub = any_hub
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1), message="two\nlines")
    (item,) = (await changes(hub, "roads")).items[-1:]
    raw = published_json(item, "default")
    (change,) = item.changes
    assert change.state.raw in raw
    body = msgspec.json.decode(raw)
    version = item.changeset.version
    (own,) = body.pop("collections")
    assert {own.pop(name) for name in ("id", "changed")} <= {"roads", True}
    assert own == {
        "created": 1,
        "updated": 0,
        "deleted": 0,
        "statesKept": True,
        "bbox": [8.6, 50.1, 8.6, 50.1],
    }
    assert body == {
        "type": "Changes",
        "storage": "default",
        "version": version.seq_number,
        "txn": str(version.txn),
        "publishedAt": version.published_ms,
        "startedAt": item.changeset.started_ms,
        "appId": "tests",
        "message": "two\nlines",
        "part": 0,
        "isLast": True,
        "features": [{"action": "CREATE", "collection": "roads", "feature": change.state.feature}],
    }


async def test_collections_without_history_say_so(any_hub: HubUnderTest) -> None:
    hub = any_hub
    await hub.space("roads")
    await hub.put("roads", feature("a", n=1))

    async def off(session: WriteSession) -> None:
        await session.change_collection("roads", CollectionChange(history_enabled=False))

    await (await hub.realm.storage("default")).run(off, "tests")
    begin = (await changes(hub, "roads", "")).position
    await hub.put("roads", feature("a", n=2))
    (item,) = (await changes(hub, "roads", begin)).items
    body = msgspec.json.decode(published_json(item, "default"))
    assert body["features"] == []
    assert (body["collections"][0]["statesKept"], body["collections"][0]["updated"]) == (False, 1)


async def test_many_changes_come_in_parts(
    hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_FEATURES_MAX", 3)
    await hub.space("roads")
    await hub.put("roads", *(feature(f"f{n}", n=n) for n in range(7)))
    position, sizes = "0", []
    while True:
        page = await changes(hub, "roads", position)
        sizes += [len(item.changes) for item in page.items if item.changes]
        if page.position == str(page.last):
            break
        position = page.position
    assert sizes == [3, 3, 1]

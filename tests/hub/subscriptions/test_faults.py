"""Destinations that misbehave, and a configuration that changes under a subscription."""

import asyncio
import fcntl
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.catalog.realms import RealmStatus
from naksha.hub.config.objects import Connector, Space, StorageChoice
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.subscriptions.changes import remove_subscription, reset_subscription
from naksha.hub.subscriptions.objects import Granularity, Subscription
from naksha.hub.subscriptions.pins import pin_name
from naksha.hub.subscriptions.progress import ProgressTable, SubscriptionProgress
from naksha.hub.subscriptions.service import begin
from naksha.model.errors import Expired, Fenced, Forbidden, InvalidArgument, NakshaError
from naksha.model.version import AtSeq
from tests.hub.handlers.support import ACTOR, feature
from tests.hub.realms import an_actor
from tests.hub.subscriptions.handlers import Chosen
from tests.hub.subscriptions.support import (
    DeliveringHub,
    a_delivering_hub,
    eventually,
    has_no_leftovers,
)

OF_ROADS = {"source": {"spaceId": "roads"}}


async def to_chosen(hub: DeliveringHub, **told: Any) -> Subscription:
    await hub.space("roads")
    to = await hub.connector("to", "tests:chosen")
    return await hub.subscribe("s", **{**OF_ROADS, **told}, eventHandlerIds=[to])


class _Odd(Exception):
    """An unexpected error."""


@pytest.mark.parametrize("error", [_Odd(), Expired("its own"), Fenced("by others")], ids=repr)
async def test_destination_errors_are_reported_and_retried(
    file_hub: DeliveringHub, chosen: type[Chosen], error: Exception
) -> None:
    hub = file_hub
    is_over = asyncio.Event()

    async def fails(_: Event) -> None:
        if not is_over.is_set():
            raise error

    chosen.behaviour = staticmethod(fails)
    found = await to_chosen(hub)
    await hub.put("roads", feature("a"))
    assert (await hub.comes_to(found, "failing"))["stateReason"]
    is_over.set()
    await hub.caught_up(found)
    assert (await hub.comes_to(found, "active")).get("stateReason") is None
    assert len(chosen.taken) == 1


async def test_why_a_destination_fails_is_in_the_log(
    file_hub: DeliveringHub, chosen: type[Chosen], caplog: pytest.LogCaptureFixture
) -> None:
    hub = file_hub

    async def fails(_: Event) -> None:
        raise _Odd("the disk is full")

    chosen.behaviour = staticmethod(fails)
    found = await to_chosen(hub)
    await hub.put("roads", feature("a"))
    told = (await hub.comes_to(found, "failing"))["stateReason"]
    assert "finds the reason in its log" in told
    assert "the disk is full" not in told
    assert "the disk is full" in caplog.text


async def test_a_silent_destination_is_reported_and_retried(
    file_hub: DeliveringHub, chosen: type[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_DELIVERY_SECONDS_MAX", 0.1)
    hub = file_hub
    is_over = asyncio.Event()

    async def waits(_: Event) -> None:
        await is_over.wait()

    chosen.behaviour = staticmethod(waits)
    found = await to_chosen(hub)
    await hub.put("roads", feature("a"))
    assert "did not finish the delivery" in (await hub.comes_to(found, "failing"))["stateReason"]
    is_over.set()
    await hub.caught_up(found)


async def test_a_delivery_that_does_not_stop_blocks_no_other(
    file_hub: DeliveringHub, chosen: type[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_STOP_SECONDS", 0.1)
    hub = file_hub
    is_over, has_begun = asyncio.Event(), asyncio.Event()

    async def goes_on(_: Event) -> None:
        has_begun.set()
        while not is_over.is_set():
            try:
                await is_over.wait()
            except asyncio.CancelledError:
                continue

    chosen.behaviour = staticmethod(goes_on)
    await to_chosen(hub)
    await hub.put("roads", feature("a"))
    await has_begun.wait()
    try:
        await remove_subscription(hub.realm, "s", ACTOR)
        found = await hub.subscribe("lines", **OF_ROADS)
        await hub.put("roads", feature("b"))
        await hub.caught_up(found)
    finally:
        is_over.set()


@pytest.mark.parametrize("what", ["destination", "connector"])
async def test_nothing_is_kept_for_ever_for_one_that_fails(
    file_hub: DeliveringHub, chosen: type[Chosen], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Neither when it is not taken, nor when it cannot even be tried."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_PIN_SECONDS", 0.05)
    hub = file_hub

    async def fails(_: Event) -> None:
        raise _Odd

    chosen.behaviour = staticmethod(fails)
    found = await to_chosen(hub, keepDays=0)
    if what == "connector":
        thing = await hub.realm.registry.get(Connector, "to")
        broken = msgspec.structs.replace(thing, class_name="nothing:such")
        await hub.realm.registry.restore(broken, thing, ACTOR)
    assert await pins(hub) == [pin_name("default", found.progress_id)]
    await hub.put("roads", feature("a"))
    await hub.comes_to(found, "failing")

    async def is_dropped() -> bool:
        return not await pins(hub)

    await eventually(is_dropped)


async def pins(hub: DeliveringHub, storage_id: str = "default") -> list[str]:
    """Return the names of the stored objects of a storage."""
    storage: Any = await hub.realm.storage(storage_id)
    rows = await storage._writer.task(
        lambda connection: connection.execute("SELECT name FROM naksha_pin").fetchall()
    )
    return sorted(row[0] for row in rows if row[0].startswith("subscription/"))


async def test_a_space_that_is_put_into_another_storage_is_not_read_on_there(
    file_hub: DeliveringHub,
) -> None:
    """The other storage has other versions: the subscription must be reset to a version of it, or
    be removed."""
    hub = file_hub
    await hub.storage("elsewhere", f"file:{hub.files}/elsewhere.naksha")
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    for number in range(5):
        await hub.put("roads", feature(f"f{number}"))
    await hub.caught_up(found)

    def moved(old: Space) -> Space:
        return msgspec.structs.replace(old, storage=StorageChoice(id="elsewhere"))

    await hub.realm.registry.change(Space, "roads", moved, ACTOR)
    for number in range(8):
        await hub.put("roads", feature(f"g{number}"))
    assert "elsewhere" in (await hub.comes_to(found, "expired"))["stateReason"]
    assert (len(hub.told("s")), await pins(hub)) == (5, [])
    await reset_subscription(hub.realm, "s", "beginning", ACTOR)
    elsewhere = await hub.realm.storage("elsewhere")

    async def is_there() -> bool:
        return bool((await hub.status(found))["version"] == await elsewhere.wait_beyond(0, 0))

    await eventually(is_there)
    told = [id for line in hub.told("s") for _, id in line]
    assert told == [f"f{n}" for n in range(5)] + [f"g{n}" for n in range(8)]
    await hub.realm.registry.change(
        Space, "roads", lambda old: msgspec.structs.replace(old, storage=None), ACTOR
    )
    await remove_subscription(hub.realm, "s", ACTOR)
    assert await pins(hub, "elsewhere") == []


async def test_a_recreated_subscription_has_no_leftovers(
    file_hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an instance that has not heard of it yet."""
    hub = file_hub
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    await remove_subscription(hub.realm, "s", ACTOR)
    assert await pins(hub) == []
    table = ProgressTable(hub.realm.opened.persistence)
    storage = await hub.realm.storage("default")
    await begin(table, found)
    last = (await storage.publication()).last_seq_number
    await storage.pin(pin_name("default", found.progress_id), await storage.resolve(AtSeq(last)))
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_LEFTOVER_SECONDS", 0)
    await eventually(partial(has_no_leftovers, hub))
    assert (await pins(hub), await table.get(found.progress_id)) == ([], None)


async def test_a_dead_holder_whose_clock_was_far_ahead_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_DRIFT_SECONDS", 0.1)
    async with a_delivering_hub(f"file:{tmp_path}/{{realm}}.naksha", tmp_path) as hub:
        await hub.space("roads")
        found = await hub.subscribe("s", **OF_ROADS)
        await hub.caught_up(found)
        table = ProgressTable(hub.realm.opened.persistence)
        until_ms = table.now_ms + 3_600_000

        def taken(old: SubscriptionProgress) -> SubscriptionProgress:
            return msgspec.structs.replace(
                old, holder="dead", term=old.term + 1, until_ms=until_ms, lease_ms=200
            )

        await table.change(found.progress_id, taken)
        await hub.put("roads", feature("a"))
        await hub.caught_up(found)


async def test_a_realm_that_does_not_serve_delivers_nothing(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    assert hub.service is not None
    realms = hub.hub.catalog.realms
    await realms.update(await realms.get("default"), RealmStatus.INACTIVE)

    async def is_given_up() -> bool:
        return not hub.service.held()  # type: ignore[union-attr]

    await eventually(is_given_up)


async def test_a_new_granularity_restarts_the_transaction(
    file_hub: DeliveringHub, chosen: type[Chosen]
) -> None:
    """Part numbers then have another meaning and must not be compared with recorded ones."""
    hub = file_hub
    taken: list[Any] = []

    async def three(event: Event) -> None:
        if len(taken) == 3:
            raise _Odd
        taken.append(event.request)

    chosen.behaviour = staticmethod(three)
    found = await to_chosen(hub, granularity="PER_FEATURE")
    await hub.put("roads", *(feature(f"f{n}") for n in range(5)))
    await hub.comes_to(found, "failing")

    def changed(old: Subscription) -> Subscription:
        return msgspec.structs.replace(old, granularity=Granularity.PER_TRANSACTION)

    old = await progress_of(hub, found)
    await hub.realm.registry.change(Subscription, "s", changed, ACTOR)

    async def is_cut_anew() -> bool:
        return (await progress_of(hub, found)).cut != old.cut

    await eventually(is_cut_anew)
    chosen.behaviour = staticmethod(lambda _: asyncio.sleep(0))
    await hub.caught_up(found)
    (whole,) = chosen.taken[3:]
    assert len(whole.read().features) == 5
    assert whole.fence.passes(taken[-1].fence)


async def progress_of(hub: DeliveringHub, subscription: Subscription) -> SubscriptionProgress:
    """How far it is, as it is kept."""
    kept = await ProgressTable(hub.realm.opened.persistence).get(subscription.progress_id)
    assert kept is not None
    return kept.value


async def test_two_subscriptions_do_not_go_round_in_circles(file_hub: DeliveringHub) -> None:
    hub = file_hub
    for space in ("roads", "copy"):
        await hub.space(space)
        await hub.connector(f"to-{space}", "to-space", spaceId=space)
    await hub.subscribe("there", **OF_ROADS, eventHandlerIds=["to-copy"])
    back = {"source": {"spaceId": "copy"}, "eventHandlerIds": ["to-roads"]}
    with pytest.raises(InvalidArgument, match="endlessly"):
        await hub.subscribe("back", **back)
    await hub.space("third")
    to = await hub.connector("to-third", "to-space", spaceId="third")
    await hub.subscribe("on", source={"spaceId": "copy"}, eventHandlerIds=[to])

    def to_roads(old: Connector) -> Connector:
        return msgspec.structs.replace(old, properties={"spaceId": "roads"})

    with pytest.raises(InvalidArgument, match="endlessly"):
        await hub.realm.registry.change(Connector, "to-third", to_roads, ACTOR)


async def test_changing_the_target_needs_the_right_to_read_the_source(
    file_hub: DeliveringHub,
) -> None:
    hub = file_hub
    await hub.space("roads")
    await hub.subscribe("s", **OF_ROADS)
    mallory = an_actor("mallory", manageConnectors=[{}])

    def elsewhere(old: Connector) -> Connector:
        return msgspec.structs.replace(old, properties={"path": "mine.jsonl"})

    with pytest.raises(Forbidden, match="readFeatures"):
        await hub.realm.registry.change(Connector, "s-file", elsewhere, mallory)
    titled = await hub.realm.registry.change(
        Connector, "s-file", lambda old: msgspec.structs.replace(old, title="mine"), mallory
    )
    assert titled.title == "mine"


async def test_a_process_that_was_stopped_while_it_wrote_is_not_waited_for(
    file_hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.EXPORT_LOCK_SECONDS_MAX", 0.05)
    hub = file_hub
    await hub.space("roads")
    found = await hub.subscribe("s", **OF_ROADS)
    path = hub.files / "exports" / "default" / "s.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await hub.put("roads", feature("a"))
        assert "another process" in (await hub.comes_to(found, "failing"))["stateReason"]
    await hub.caught_up(found)
    assert hub.told("s") == [[("CREATE", "a")]]


async def test_signals_and_last_parts_are_delivered_for_any_matching_part(
    file_hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.FEED_FEATURES_MAX", 4)
    hub = file_hub
    await hub.space("roads")
    wanted = {"filter": {"jsonPath": "$.properties.wanted"}}
    found = [
        await hub.subscribe(name, **OF_ROADS, **wanted, granularity=name)
        for name in ("CONTENT_CHANGE", "PER_TRANSACTION", "PER_FEATURE")
    ]
    features = [feature(f"f{n:02}") for n in range(12)]
    await hub.put(
        "roads", feature("f00", wanted=1), feature("f05", wanted=1), *features[1:5], *features[6:]
    )
    for each in found:
        await hub.caught_up(each)
    assert hub.told("CONTENT_CHANGE") == [[]]
    told = [[("CREATE", "f00")], [("CREATE", "f05")], []]
    for name in ("PER_TRANSACTION", "PER_FEATURE"):
        assert hub.told(name) == told
        assert [line["isLast"] for line in hub.lines(name)] == [False, False, True]


@pytest.mark.parametrize("since", [-1, 2**63, "17th"])
async def test_where_it_cannot_go_on(file_hub: DeliveringHub, since: Any) -> None:
    hub = file_hub
    await hub.space("roads")
    await hub.subscribe("s", **OF_ROADS)
    with pytest.raises(InvalidArgument):
        await reset_subscription(hub.realm, "s", since, ACTOR)


async def test_where_it_is_not_yet(file_hub: DeliveringHub) -> None:
    hub = file_hub
    await hub.space("roads")
    await hub.subscribe("s", **OF_ROADS)
    with pytest.raises(NakshaError):
        await reset_subscription(hub.realm, "s", 10**6, ACTOR)

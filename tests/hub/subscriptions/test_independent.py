"""Independence of subscriptions: none delays another, and one instance delivers each."""

import asyncio
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.catalog.catalog import Tuning
from naksha.hub import leases
from naksha.hub.config.objects import Connector, StorageObject
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.remote import client
from naksha.hub.storages.changes import replace_storage
from naksha.hub.subscriptions import cleanup
from naksha.hub.subscriptions.changes import remove_subscription, reset_subscription
from naksha.hub.subscriptions.cleanup import Leftover
from naksha.hub.subscriptions.progress import ProgressTable, SubscriptionProgress
from naksha.model import limits
from naksha.spi.clock import boot_seconds
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers._private_server import free_port
from tests.hub.handlers.support import ACTOR, feature
from tests.hub.subscriptions.handlers import Chosen
from tests.hub.subscriptions.receiver import Delivery, a_receiver
from tests.hub.subscriptions.support import DeliveringHub, a_delivering_hub, eventually

OF_ROADS = {"source": {"spaceId": "roads"}}


@pytest.mark.postgres
async def test_a_reset_subscription_has_one_delivering_instance(
    tmp_path: Path,
    database_factory: DatabaseFactory,
    chosen: type[Chosen],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another instance wants the lease, and the holder does not know it yet."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_SAVE_SECONDS", 60)
    is_open = asyncio.Event()
    under_way: list[Any] = []
    together: list[list[Any]] = []

    async def slow(event: Event) -> None:
        await is_open.wait()
        under_way.append(event.request)
        together.append([one.fence for one in under_way])
        try:
            await asyncio.sleep(0.02)
        finally:
            under_way.remove(event.request)

    chosen.behaviour = staticmethod(slow)
    with database_factory.fresh() as dsn:
        async with (
            a_delivering_hub(dsn, tmp_path, catalog=dsn) as hub,
            a_delivering_hub(dsn, tmp_path, catalog=dsn, tuning=Tuning(pointer_seconds=0.1)),
        ):
            await hub.space("roads")
            to = await hub.connector("to", "tests:chosen")
            found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
            for number in range(100):
                await hub.put("roads", feature("a", n=number))
            is_open.set()
            await eventually(_has_taken(chosen, 20))
            first = chosen.taken[0].fence.life
            await reset_subscription(hub.realm, "s", found.started_after, ACTOR)
            await eventually(_has_taken(chosen, 100, beyond=first))
    assert [each for each in together if len(each) > 1] == []
    lives = [one.fence.life for one in chosen.taken]
    assert lives == sorted(lives)
    assert len(set(lives)) == 2
    again = [one.fence.seq_number for one in chosen.taken if one.fence.life == lives[-1]]
    assert again == list(range(again[0], again[0] + 100))


def _has_taken(chosen: type[Chosen], number: int, *, beyond: int = 0) -> Any:
    async def holds() -> bool:
        return sum(bool(one.fence.life > beyond) for one in chosen.taken) >= number

    return holds


async def test_pauses_between_attempts_grow_up_to_a_limit_for_ever(
    file_hub: DeliveringHub, chosen: type[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_RETRY_SECONDS_MAX", 0.4)
    hub = file_hub
    tried: list[float] = []

    async def fails(_: Event) -> None:
        tried.append(time.monotonic())
        if len(tried) < 8:
            raise ConnectionError("no connection")

    chosen.behaviour = staticmethod(fails)
    await hub.space("roads")
    to = await hub.connector("to", "tests:chosen")
    found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    pauses = [after - before for before, after in pairwise(tried)]
    # They differ a little by chance; no upper limits, since the machine may be busy.
    wanted = [0.05, 0.1, 0.2, 0.4, 0.4, 0.4, 0.4]
    assert [pause >= 0.8 * least for pause, least in zip(pauses, wanted, strict=True)] == [True] * 7
    assert len(chosen.taken) == 1


async def test_a_receiver_that_was_away_gets_what_it_has_missed(tmp_path: Path) -> None:
    """For a while, no process listens on its port."""
    port = free_port()
    storage, url = f"file:{tmp_path}/{{realm}}.naksha", f"http://127.0.0.1:{port}/changes"
    async with a_delivering_hub(storage, tmp_path, remote_handlers=[url]) as hub:
        await hub.space("roads")
        to = await hub.connector("to", "webhook", url=url)
        found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
        with a_receiver(port) as receiver:
            versions = [(await hub.put("roads", feature("a"))).version]
            await hub.caught_up(found)
            assert receiver.versions() == versions
        versions = [(await hub.put("roads", feature(id))).version for id in ("b", "c", "d")]
        told = await hub.comes_to(found, "failing")
        assert "webhook 'to' failed" in told["stateReason"]
        with a_receiver(port) as receiver:
            await hub.caught_up(found)
            assert receiver.versions() == versions


async def test_a_webhook_stopped_while_connecting_posts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up with a connection, and another instance has the subscription by then."""
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_DRIFT_SECONDS", 0.1)
    slept, connect = [0.0], client._AllowedNetwork.connect_tcp
    seconds = boot_seconds
    monkeypatch.setattr(leases, "boot_seconds", lambda: seconds() + slept[0])
    with a_receiver() as receiver:
        storage = f"file:{tmp_path}/{{realm}}.naksha"
        async with a_delivering_hub(storage, tmp_path, remote_handlers=[receiver.url]) as hub:
            await hub.space("roads")
            to = await hub.connector("to", "webhook", url=receiver.url)
            found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
            table = ProgressTable(hub.realm.opened.persistence)
            terms: list[int] = []

            def taken(old: SubscriptionProgress) -> SubscriptionProgress:
                terms.append(old.term)
                return msgspec.structs.replace(
                    old, holder="other", term=old.term + 1, until_ms=table.now_ms, lease_ms=1
                )

            async def stops(*given: Any, **more: Any) -> Any:
                connected = await connect(*given, **more)
                if not slept[0]:
                    slept[0] = 60
                    await table.change(found.progress_id, taken)
                return connected

            monkeypatch.setattr(client._AllowedNetwork, "connect_tcp", stops)
            await hub.put("roads", feature("a"))
            await hub.caught_up(found)
            assert [one.term for one in receiver.taken] == [terms[-1] + 2]


async def test_webhooks_that_hang_take_no_connection_from_others(tmp_path: Path) -> None:
    """Not even from one at the same server, and not from handlers that requests wait for."""
    is_over = threading.Event()
    hanging = limits.REMOTE_CONNECTIONS_PER_TARGET_MAX + 3

    def hangs(delivery: Delivery) -> int:
        if delivery.subscription.startswith("hangs"):
            is_over.wait(60)
        return 200

    with a_receiver() as receiver:
        receiver.answers = hangs
        storage = f"file:{tmp_path}/{{realm}}.naksha"
        async with a_delivering_hub(storage, tmp_path, remote_handlers=[receiver.url]) as hub:
            try:
                await hub.space("roads")
                to = await hub.connector("to", "webhook", url=receiver.url)
                for number in range(hanging):
                    await hub.subscribe(f"hangs-{number}", **OF_ROADS, eventHandlerIds=[to])
                await hub.put("roads", feature("a"))
                await asyncio.to_thread(receiver.wait, lambda one: one.asked >= hanging)
                good = await hub.subscribe("good", **OF_ROADS, eventHandlerIds=[to])
                await hub.put("roads", feature("b"))
                await hub.caught_up(good)
                assert [one.subscription for one in receiver.taken] == ["good"]
            finally:
                is_over.set()


async def test_leftovers_of_a_removed_subscription_in_an_unavailable_storage(
    file_hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other subscriptions do not wait for it."""
    hub = file_hub
    has_begun = asyncio.Event()

    async def hangs(_: RealmHub, __: Leftover) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    await hub.space("roads")
    await hub.subscribe("removed", **OF_ROADS)
    await remove_subscription(hub.realm, "removed", ACTOR)
    monkeypatch.setattr(cleanup, "clear", hangs)
    monkeypatch.setattr("naksha.model.limits.SUBSCRIPTION_LEFTOVER_SECONDS", 0)
    await has_begun.wait()
    found = await hub.subscribe("s", **OF_ROADS)
    await hub.put("roads", feature("a"))
    await hub.caught_up(found)
    assert hub.told("s") == [[("CREATE", "a")]]


@pytest.mark.parametrize("of", ["space", "storage"])
async def test_another_storage_in_the_place_of_its_own_is_not_read_on(
    file_hub: DeliveringHub, of: str
) -> None:
    """It is called the same, and has other versions."""
    hub = file_hub
    await hub.storage("maps", f"file:{hub.files}/maps.naksha")
    await hub.space("roads", storage="maps")
    source = {"spaceId": "roads"} if of == "space" else {"storageId": "maps"}
    found = await hub.subscribe("s", source=source)
    await hub.put("roads", feature("a"))
    old = await hub.realm.storage("maps")
    await eventually(_is_at(hub, found, await old.wait_beyond(0, 0)))

    elsewhere = {"location": f"file:{hub.files}/others.naksha"}
    await replace_storage(hub.realm, StorageObject(id="maps", properties=elsewhere), ACTOR)
    for number in range(5):
        await hub.put("roads", feature(f"b{number}"))
    assert "another one" in (await hub.comes_to(found, "expired"))["stateReason"]
    assert [id for line in hub.told("s") for _, id in line] == ["a"]
    await reset_subscription(hub.realm, "s", "beginning", ACTOR)
    new = await hub.realm.storage("maps")
    await eventually(_is_at(hub, found, await new.wait_beyond(0, 0)))
    told = [id for line in hub.told("s") for _, id in line]
    assert told == ["a", *(f"b{number}" for number in range(5))]


def _is_at(hub: DeliveringHub, found: Any, version: int) -> Any:
    async def holds() -> bool:
        status = await hub.status(found)
        return status["state"] == "active" and status.get("version") == version

    return holds


async def test_a_space_with_other_content_restarts_the_transaction(
    file_hub: DeliveringHub, chosen: type[Chosen]
) -> None:
    """Parts are numbered by what it shows: the numbers of before mean other features then."""
    hub = file_hub
    is_open = False

    async def two(event: Event) -> None:
        if len(chosen.taken) == 2 and not is_open:
            raise ConnectionError("no connection")

    chosen.behaviour = staticmethod(two)
    kept = {"collection": {"id": "all"}}
    await hub.space("roads", ("tag-filter", {"contains": ["x"]}), ("storage", kept))
    await hub.space("all", ("storage", kept))
    to = await hub.connector("to", "tests:chosen")
    found = await hub.subscribe("s", **OF_ROADS, granularity="PER_FEATURE", eventHandlerIds=[to])
    features = [feature(f"f{n}", tags=["x" if n > 1 else "y"]) for n in range(5)]
    await hub.put("all", *features)
    await hub.comes_to(found, "failing")
    last = chosen.taken[-1].fence

    def other(old: Connector) -> Connector:
        return msgspec.structs.replace(old, properties={"contains": ["y"]})

    await hub.realm.registry.change(Connector, "roads-0-tag-filter", other, ACTOR)

    async def is_begun_anew() -> bool:
        return bool((await hub.status(found))["term"] > last.term)

    await eventually(is_begun_anew)
    is_open = True
    await hub.caught_up(found)
    new = [one for one in chosen.taken if one.fence.term > last.term]
    ids = [msgspec.json.decode(one.read().features[0].feature)["id"] for one in new]
    assert ids == ["f0", "f1"]
    assert all(one.fence.passes(last) for one in new)

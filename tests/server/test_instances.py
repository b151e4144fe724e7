"""Several hubs on one database and one catalog: written to, killed and stopped at random, and in
the end everything is there, in order, everywhere."""

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from naksha.model.transaction import Transaction
from naksha.spi.opening import open_storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.hub_server import HubServer
from tests.hub.subscriptions.receiver import Delivery, Receiver, a_receiver

LEASE = 2
HUBS = 3
WRITERS = 3


class Acknowledged(NamedTuple):
    """A write that a hub has answered."""

    feature: str
    value: int
    version: int | None


class Cluster:
    """The hubs, each of which may be dead or stopped."""

    def __init__(self, directory: Path, dsn: str, receiver: Receiver) -> None:
        self.hubs: list[HubServer] = []
        for number in range(HUBS):
            own = directory / str(number)
            own.mkdir()
            arguments = ["--remote-handlers", receiver.url, "--data", str(own)]
            arguments += ["--subscription-seconds", str(LEASE)]
            self.hubs.append(HubServer(own, storage=dsn, catalog=dsn, arguments=arguments))
        starting = [threading.Thread(target=hub.start) for hub in self.hubs]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()

    def disturb(self, chance: random.Random, times: int) -> None:
        """Kill one and start it again, or stop one, perhaps for longer than it may have a
        subscription; again and again."""
        for _ in range(times):
            hub = chance.choice(self.hubs)
            if chance.random() < 0.5:
                hub.kill()
                time.sleep(chance.uniform(0, 0.5))
                hub.start()
            else:
                os.kill(hub.process.pid, signal.SIGSTOP)
                time.sleep(chance.uniform(0.2, LEASE + 3))
                os.kill(hub.process.pid, signal.SIGCONT)
            time.sleep(chance.uniform(0, 0.5))

    def close(self) -> None:
        for hub in self.hubs:
            os.kill(hub.process.pid, signal.SIGCONT)
            hub.kill()


class Writer(threading.Thread):
    """Writes to whatever hub answers, and notes what was acknowledged."""

    def __init__(self, number: int, cluster: Cluster, seed: int) -> None:
        super().__init__()
        self.acknowledged: list[Acknowledged] = []
        self.ended = threading.Event()
        self._number = number
        self._cluster = cluster
        self._chance = random.Random(seed)

    def run(self) -> None:
        value = 0
        while not self.ended.is_set():
            value += 1
            # Nobody else writes it, so that it is known what must be there in the end.
            id = f"w{self._number}-{self._chance.randrange(20)}"
            hub = self._chance.choice(self._cluster.hubs)
            feature = {"type": "Feature", "geometry": None, "properties": {"value": value}}
            try:
                answer = httpx.put(
                    f"{hub.url}/hub/spaces/roads/features",
                    json={"type": "FeatureCollection", "features": [{**feature, "id": id}]},
                    timeout=2,
                )
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                version = answer.json().get("version")
                self.acknowledged.append(Acknowledged(id, value, version))


def set_up(url: str, receiver: Receiver) -> None:
    with httpx.Client(base_url=f"{url}/hub", timeout=60) as client:
        for space in ("roads", "copy"):
            client.post("/spaces", json={"id": space}).raise_for_status()
        webhook = {"id": "hook", "className": "webhook", "properties": {"url": receiver.url}}
        to_copy = {"id": "to-copy", "className": "to-space", "properties": {"spaceId": "copy"}}
        for connector in (webhook, to_copy):
            client.post("/connectors", json=connector).raise_for_status()
        of_roads = {"source": {"spaceId": "roads"}}
        subscriptions: list[dict[str, Any]] = [
            {"id": "hooked", **of_roads, "eventHandlerIds": ["hook"], "start": "beginning"},
            {"id": "copied", **of_roads, "eventHandlerIds": ["to-copy"], "start": "beginning"},
            {
                "id": "some",
                "source": {"storageId": "default", "collections": ["roads"]},
                "filter": {"properties": "p.value>0", "actions": ["UPDATE"]},
                "granularity": "PER_FEATURE",
                "eventHandlerIds": ["hook"],
            },
        ]
        for each in subscriptions:
            client.post("/subscriptions", json=each).raise_for_status()


async def whole_log(dsn: str) -> list[Transaction]:
    async with open_storage(dsn) as storage:
        found: list[Transaction] = []
        while True:
            part = await storage.transactions(found[-1].seq_number or 0 if found else 0, 1_000)
            if not part:
                return found
            found += part


def touches(transaction: Transaction, collection: str) -> bool:
    return any(
        signal.id == collection and signal.action == "MODIFY_FEATURES"
        for signal in transaction.signals
    )


def once(deliveries: list[Delivery]) -> list[Delivery]:
    """Without what came again, and what came late, by the rule that the guide gives."""
    kept: list[Delivery] = []
    for each in deliveries:
        last = kept[-1] if kept else None
        if last is None or (each.version, each.part) > (last.version, last.part):
            assert last is None or each.term >= last.term, (last, each)
            kept.append(each)
    return kept


def features_of(client: httpx.Client, space: str) -> dict[str, int]:
    answer = client.get(f"/spaces/{space}/search", params={"limit": 100_000}).raise_for_status()
    return {one["id"]: one["properties"]["value"] for one in answer.json()["features"]}


@pytest.mark.postgres
@pytest.mark.parametrize("times", [5, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_three_hubs_of_which_some_die_lose_nothing(
    tmp_path: Path, database_factory: DatabaseFactory, times: int
) -> None:
    seed = times
    with database_factory.fresh() as dsn, a_receiver() as receiver:
        cluster = Cluster(tmp_path, dsn, receiver)
        try:
            set_up(cluster.hubs[0].url, receiver)
            writers = [Writer(number, cluster, seed + number) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            cluster.disturb(random.Random(seed), times)
            for writer in writers:
                writer.ended.set()
                writer.join()
            check_all(dsn, cluster, receiver, writers)
        finally:
            cluster.close()


def check_all(dsn: str, cluster: Cluster, receiver: Receiver, writers: list[Writer]) -> None:
    log = asyncio.run(whole_log(dsn))
    assert [each.seq_number for each in log] == list(range(1, len(log) + 1))
    wanted = [each.seq_number for each in log if touches(each, "roads")]
    acknowledged = [one for writer in writers for one in writer.acknowledged]
    assert len(acknowledged) > 10
    versions = {one.version for one in acknowledged if one.version is not None}
    assert versions <= {*wanted}

    def has_all(found: Receiver) -> bool:
        return {*wanted} <= {one.version for one in found.taken if one.subscription == "hooked"}

    receiver.wait(has_all, 90)
    hooked = once([one for one in receiver.taken if one.subscription == "hooked"])
    assert [one.version for one in hooked if one.changes["features"]] == wanted
    told = {
        change["feature"]["id"]: change["feature"]["properties"]["value"]
        for one in hooked
        for change in one.changes["features"]
    }
    with httpx.Client(base_url=f"{cluster.hubs[0].url}/hub", timeout=60) as client:
        roads = features_of(client, "roads")
        # A write that nobody has acknowledged may have come true; an acknowledged one is there.
        for writer in writers:
            last = {one.feature: one.value for one in writer.acknowledged}
            assert all(roads[id] >= value for id, value in last.items())
        assert told == roads
        deadline = time.monotonic() + 90
        while features_of(client, "copy") != roads:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    expected = [
        (one.version, change["feature"]["id"])
        for one in hooked
        for change in one.changes["features"]
        if change["action"] == "UPDATE"
    ]
    receiver.wait(lambda found: len(updated(found)) >= len(expected), 90)
    assert updated(receiver) == expected


def updated(receiver: Receiver) -> list[tuple[int, str]]:
    """What the subscription to updates was told."""
    return [
        (one.version, change["feature"]["id"])
        for one in once([one for one in receiver.taken if one.subscription == "some"])
        for change in one.changes["features"]
    ]

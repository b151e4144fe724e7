"""Several hubs on one database and one catalog.

They are written to, killed and stopped at random; in the end every instance has every change, in
order.
"""

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
from naksha.spi.storage_factory import open_storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.hub.subscriptions.receiver import Delivery, Receiver, a_receiver

LEASE = 2
HUBS = 3
WRITERS = 3


class Write(NamedTuple):
    """Writes of a client, with the versions of the acknowledged ones where known."""

    feature: str
    value: int
    is_deletion: bool
    version: int | None = None


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
            if hub.process.poll() is None:
                os.kill(hub.process.pid, signal.SIGCONT)
                hub.kill()


class Writer(threading.Thread):
    """Write to any hub that responds, and record the acknowledged writes."""

    def __init__(self, number: int, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.asked: list[Write] = []
        self.acknowledged: list[Write] = []
        self.ended = threading.Event()
        self._number = number
        self._cluster = cluster
        self._chance = random.Random(number)

    def run(self) -> None:
        value = 0
        while not self.ended.is_set():
            value += 1
            # No other writer uses this id, so that the expected final state is known.
            id = f"w{self._number}-{self._chance.randrange(20)}"
            hub = self._chance.choice(self._cluster.hubs)
            write = Write(id, value, self._chance.random() < 0.2)
            self.asked.append(write)
            try:
                answer = _send(f"{hub.url}/hub/spaces/roads/features", write)
            except httpx.HTTPError:
                continue
            if answer.is_success:
                version = None if write.is_deletion else answer.json().get("version")
                self.acknowledged.append(write._replace(version=version))

    def check(self, found: dict[str, int]) -> None:
        """The last acknowledged write is stored; unacknowledged ones may be stored too."""
        for id, last in {one.feature: one for one in self.acknowledged}.items():
            later = [one for one in self.asked if one.feature == id and one.value >= last.value]
            if id in found:
                assert found[id] in [one.value for one in later if not one.is_deletion]
            else:
                assert any(one.is_deletion for one in later)


def _send(url: str, write: Write) -> httpx.Response:
    if write.is_deletion:
        return httpx.delete(f"{url}/{write.feature}", timeout=2)
    feature = {"type": "Feature", "id": write.feature, "geometry": None}
    features = [{**feature, "properties": {"value": write.value}}]
    return httpx.put(url, json={"type": "FeatureCollection", "features": features}, timeout=2)


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
@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_three_hubs_of_which_some_die_lose_nothing(
    tmp_path: Path, database_factory: DatabaseFactory, times: int
) -> None:
    with database_factory.fresh() as dsn, a_receiver() as receiver:
        cluster = Cluster(tmp_path, dsn, receiver)
        try:
            set_up(cluster.hubs[0].url, receiver)
            writers = [Writer(number, cluster) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            try:
                cluster.disturb(random.Random(times), times)
            finally:
                for writer in writers:
                    writer.ended.set()
            for writer in writers:
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

    def has_all(found: Receiver) -> bool:
        return {*wanted} <= {one.version for one in found.taken if one.subscription == "hooked"}

    receiver.wait(has_all, 90)
    hooked = once([one for one in receiver.taken if one.subscription == "hooked"])
    assert [one.version for one in hooked if one.changes["features"]] == wanted
    check_told(hooked, acknowledged)
    with httpx.Client(base_url=f"{cluster.hubs[0].url}/hub", timeout=60) as client:
        roads = features_of(client, "roads")
        for writer in writers:
            writer.check(roads)
        assert told_in_the_end(hooked) == roads
        deadline = time.monotonic() + 90
        while features_of(client, "copy") != roads:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    # Each delivery is one transaction of the copy: all of them, once, and in order.
    assert copied(asyncio.run(whole_log(dsn))) == wanted
    for hub in cluster.hubs:
        assert pulled(hub) == [(one.version, one.changes["features"]) for one in hooked]
    expected = [
        (one.version, change["feature"]["id"])
        for one in hooked
        for change in one.changes["features"]
        if change["action"] == "UPDATE"
    ]
    receiver.wait(lambda found: len(updated(found)) >= len(expected), 90)
    assert updated(receiver) == expected


def check_told(hooked: list[Delivery], acknowledged: list[Write]) -> None:
    """Each acknowledged write was told, by the version that its writer was told."""
    changes: dict[tuple[str, int], int] = {}
    for one in hooked:
        for change in one.changes["features"]:
            if change["action"] != "DELETE":
                feature = change["feature"]
                changes[feature["id"], feature["properties"]["value"]] = one.version
    for write in acknowledged:
        if not write.is_deletion:
            version = changes[write.feature, write.value]
            assert write.version in (version, None)


def told_in_the_end(hooked: list[Delivery]) -> dict[str, int]:
    """Changes that a stream client received."""
    found: dict[str, int] = {}
    for one in hooked:
        for change in one.changes["features"]:
            feature = change["feature"]
            if change["action"] == "DELETE":
                del found[feature["id"]]
            else:
                found[feature["id"]] = feature["properties"]["value"]
    return found


def copied(log: list[Transaction]) -> list[int]:
    """The versions that were written to the copy, as its transactions tell."""
    return [
        int((signal.text or "").split()[1])
        for each in log
        if touches(each, "copy")
        for signal in each.signals
        if signal.action == "MESSAGE"
    ]


def pulled(hub: HubServer) -> list[tuple[int, Any]]:
    """Changes that a polling client received."""
    found: list[tuple[int, Any]] = []
    since, last = "0", None
    while since != last:
        query: dict[str, str | int] = {"since": since, "limit": 50}
        page = httpx.get(f"{hub.url}/hub/spaces/roads/changes", params=query, timeout=60).json()
        found += [(item["version"], item["features"]) for item in page["items"]]
        since, last = page["next"], str(page["last"])
    return found


def updated(receiver: Receiver) -> list[tuple[int, str]]:
    """The deliveries of the subscription to updates."""
    return [
        (one.version, change["feature"]["id"])
        for one in once([one for one in receiver.taken if one.subscription == "some"])
        for change in one.changes["features"]
    ]

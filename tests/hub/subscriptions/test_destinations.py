"""Changes at the destinations of deliveries."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model.errors import Fenced
from tests.hub.handlers.support import CONTEXT, feature
from tests.hub.remote.support import hosted
from tests.hub.subscriptions.support import DeliveringHub, a_delivering_hub

OF_ROADS = {"source": {"spaceId": "roads"}}
BY_KIND = {"property": "properties.kind"}
PLACES = {"way": "ways", "rail": "rails", "tram": "rails"}
EARLY = DeliveryFence(name="s", life=5, term=2, seq_number=6)
LATE = DeliveryFence(name="s", life=5, term=2, seq_number=7)


def written(*features: Any, fence: DeliveryFence) -> WriteFeatures:
    one = Modification(
        features=features, if_exists=IfExists.REPLACE, if_not_exists=IfNotExists.CREATE
    )
    return WriteFeatures(modifications=(one,), fence=fence)


@pytest.mark.parametrize("way", ["collections", "spaces"])
async def test_a_space_that_splits_has_everything_and_nothing_that_is_late(
    file_hub: DeliveringHub, way: str
) -> None:
    """A delivery is written to several collections, or even in several transactions."""
    hub = file_hub
    for space in ("ways", "rails"):
        await hub.space(space)
    await hub.space("split", ("type-splitter", {**BY_KIND, way: PLACES}))
    kinds = {"a": "way", "b": "rail", "c": "way", "d": "rail"}
    first = written(*(feature(id, kind=kind) for id, kind in kinds.items()), fence=EARLY)
    for _ in range(2):
        await hub.realm.send("split", first, CONTEXT)
        assert await hub.read("split") == {id: {"kind": kind} for id, kind in kinds.items()}
    news = feature("a", kind="tram")
    await hub.realm.send("split", written(news, fence=LATE), CONTEXT)
    lost = msgspec.structs.replace(LATE, term=1, seq_number=8)
    with pytest.raises(Fenced):
        await hub.realm.send("split", written(feature("a", kind="rail"), fence=lost), CONTEXT)
    await hub.realm.send("split", first, CONTEXT)
    assert (await hub.read("split"))["a"] == {"kind": "tram"}


@pytest.mark.parametrize("granularity", ["PER_TRANSACTION", "PER_FEATURE"])
async def test_a_feature_that_moves_to_another_collection_stays(
    file_hub: DeliveringHub, granularity: str
) -> None:
    hub = file_hub
    split = {**BY_KIND, "collections": {"road": "roads", "rail": "rails"}}
    await hub.space("ways", ("type-splitter", split))
    await hub.storage("elsewhere", f"file:{hub.files}/elsewhere.naksha")
    await hub.space("copy", storage="elsewhere")
    to = await hub.connector("to-copy", "to-space", spaceId="copy")
    source = {"storageId": "default"}
    found = await hub.subscribe("s", source=source, granularity=granularity, eventHandlerIds=[to])
    for kind in ("road", "rail", "road"):
        await hub.put("ways", feature("a", kind=kind))
        await hub.caught_up(found)
        assert await hub.read("copy") == {"a": {"kind": kind}}


async def test_all_connectors_of_a_pipeline_get_it(file_hub: DeliveringHub) -> None:
    """Also spaces of one storage, which one subscription writes to."""
    hub = file_hub
    for space in ("roads", "copy", "other"):
        await hub.space(space)
    to = [
        await hub.connector("file", "json-lines", path="s.jsonl"),
        await hub.connector("to-copy", "to-space", spaceId="copy"),
        await hub.connector("to-other", "to-space", spaceId="other"),
    ]
    found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=to)
    await hub.put("roads", feature("a", speed=1))
    await hub.put("roads", feature("a", speed=2))
    await hub.caught_up(found)
    assert hub.told("s") == [[("CREATE", "a")], [("UPDATE", "a")]]
    for space in ("copy", "other"):
        assert await hub.read(space) == {"a": {"speed": 2}}


async def test_realms_that_share_a_storage_do_not_hold_each_other_up(tmp_path: Path) -> None:
    """Their subscriptions may have the same name."""
    async with a_delivering_hub(f"file:{tmp_path}/{{realm}}.naksha", tmp_path) as first:
        await first.hub.set_up_realm("other")
        second = DeliveringHub(first.hub, await first.hub.realm("other"), tmp_path)
        for hub in (first, second):
            await hub.storage("shared", f"file:{tmp_path}/shared.naksha")
            await hub.space("roads")
            await hub.space(f"copy-{hub.realm.realm_id}", storage="shared")
            to = await hub.connector("to", "to-space", spaceId=f"copy-{hub.realm.realm_id}")
            found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
            await hub.put("roads", feature("a"))
            await hub.caught_up(found)
        found = await first.realm.registry.get(type(found), "s")
        await first.put("roads", feature("b"))
        await first.caught_up(found)
        assert sorted(await first.read("copy-default")) == ["a", "b"]


async def test_a_handler_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It knows of deliveries, though nothing else there needs them."""
    file = tmp_path / "noted"
    with hosted("tests.hub.remote.sample:choose") as url:
        storage = f"file:{tmp_path}/{{realm}}.naksha"
        async with a_delivering_hub(storage, tmp_path, remote_handlers=[url]) as hub:
            await hub.space("roads")
            to = await hub.connector("to", "remote", url=url, handler="Noting", file=str(file))
            found = await hub.subscribe("s", **OF_ROADS, eventHandlerIds=[to])
            await hub.put("roads", feature("a"))
            await hub.caught_up(found)
    (told,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["feature"]["id"] for one in told["features"]] == ["a"]

"""Delivery of a damaged stored feature, and of the changes after it."""

from typing import Any

import pytest

from naksha.hub.config.objects import StorageObject
from naksha.model.damage import DAMAGED
from tests.damage import damage
from tests.hub.handlers.support import feature
from tests.hub.subscriptions.support import DeliveringHub

AROUND = {"type": "Polygon", "coordinates": [[[8, 50], [9, 50], [9, 51], [8, 51], [8, 50]]]}
FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "area": {"spatialFilter": {"geometry": AROUND}},
    "properties": {"properties": "p.n>=0"},
    "path": {"jsonPath": "$.properties[?@ >= 0]"},
}


@pytest.mark.parametrize("kind", ["geometry", "number", "depth"])
async def test_a_subscription_continues_after_damaged_features(
    hub: DeliveringHub, kind: str
) -> None:
    for space in ("roads", "copy"):
        await hub.space(space)
    await hub.put("roads", feature("a", n=1), feature("bad", n=1))
    found = await hub.realm.registry.get(StorageObject, "default")
    location = found.properties["location"].format(realm="default")
    await damage(location, "roads", "bad", kind)
    subscriptions = [
        await hub.subscribe(name, source={"spaceId": "roads"}, start="beginning", filter=chosen)
        for name, chosen in FILTERS.items()
    ]
    to_space = await hub.connector("to-copy", "to-space", spaceId="copy")
    subscriptions.append(
        await hub.subscribe(
            "copied",
            source={"spaceId": "roads"},
            start="beginning",
            eventHandlerIds=[to_space],
        )
    )
    await hub.put("roads", feature("a", n=2))
    await hub.put("roads", feature("bad", n=3))
    for each in subscriptions:
        await hub.caught_up(each)
    for name in FILTERS:
        told = [one for line in hub.lines(name) for one in line.get("features", ())]
        first = [one["feature"] for one in told if one["action"] == "CREATE"]
        assert [(one["action"], one["feature"]["id"]) for one in told[-2:]] == [
            ("UPDATE", "a"),
            ("UPDATE", "bad"),
        ]
        if name == "area" and kind == "geometry":
            # Its former position is not known.
            assert "a" in [one["id"] for one in first]
            continue
        assert sorted(one["id"] for one in first) == ["a", "bad"]
        assert [one["id"] for one in first if DAMAGED in one] == ["bad"]
        assert DAMAGED not in told[-1]["feature"]
    assert await hub.read("copy") == {"a": {"n": 2}, "bad": {"n": 3}}

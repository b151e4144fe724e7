"""Damaged stored features: returned with a mark, without affecting any other feature."""

import asyncio
from typing import Any

import httpx
import pytest

from naksha.model.damage import DAMAGED
from naksha.testing.servers.hub_server import HubServer
from tests.damage import damage
from tests.server.towns import id_of, new_space, point, put

AREA = "bbox?west=-10&south=-10&east=10&north=10"
SEARCHES = (
    "search?p.n>=0",
    "search?p.n>=0&selection=p.n",
    "iterate?limit=10",
    "iterate?limit=10&sort=properties.n",
    "features?id=a,bad,z",
    AREA,
    f"{AREA}&clip=true",
    f"{AREA}&force2D=true",
    "tile/quadkey/0?clip=true",
)


def damaged(hub: HubServer, client: httpx.Client, kind: str) -> tuple[str, int]:
    """A space with a damaged feature, which was changed since, and the version before."""
    space = new_space(client)
    put(client, space, *(point(id, -1.0, 1.0, n=1) for id in ("a", "bad", "z")))
    asyncio.run(damage(hub.storage.format(realm="default"), id_of(space), "bad", kind))
    version = client.get(f"{space}/statistics").json()["maxVersion"]["value"]
    put(client, space, point("a", -1.0, 1.0, n=2))
    return space, version


def body(client: httpx.Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_is_found_and_marked(hub: HubServer, client: httpx.Client) -> None:
    space, version = damaged(hub, client, "geometry")
    for search in SEARCHES:
        for path in (search, f"{search}&version={version}"):
            found = {one["id"]: one for one in body(client, f"{space}/{path}")["features"]}
            assert found.keys() == {"a", "bad", "z"}, path
            assert found["bad"].get("geometry") is None
            if "selection" not in path:
                assert [id for id, one in found.items() if DAMAGED in one] == ["bad"]
    for query in ("", f"?version={version}"):
        assert body(client, f"{space}/features/bad{query}")[DAMAGED]["field"] == "geometry"
        assert body(client, f"{space}/count{query}")["count"] == 3
    assert body(client, f"{space}/statistics")["count"]["value"] == 3
    assert client.get(f"{space}/tile/web/0_0_0.mvt").content


@pytest.mark.parametrize("kind", ["geometry", "number"])
def test_versions_and_the_feed_go_on(hub: HubServer, client: httpx.Client, kind: str) -> None:
    space, version = damaged(hub, client, kind)
    put(client, space, point("bad", -1.0, 1.0, n=3))
    items = body(client, f"{space}/changes?since={version - 1}")["items"]
    told = [(one["action"], one["feature"]) for item in items for one in item["features"]]
    assert sorted((action, one["id"], DAMAGED in one) for action, one in told) == [
        ("CREATE", "a", False),
        ("CREATE", "bad", True),
        ("CREATE", "z", False),
        ("UPDATE", "a", False),
        ("UPDATE", "bad", False),
    ]
    found = body(client, f"{space}/diff?versionRef={version}..HEAD")
    assert {one["id"] for one in found["changes"]} == {"a", "bad"}
    assert client.get(f"{space}/changesets?startVersion={version}").status_code == 200
    assert DAMAGED not in body(client, f"{space}/features/bad")

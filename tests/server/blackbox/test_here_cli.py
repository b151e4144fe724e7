"""The requests of the command `here xyz` of @here/cli, sent one by one with httpx."""

from collections.abc import Iterator

import httpx
import pytest

from naksha.testing.servers.hub_server import HubServer
from tests.server.blackbox.conftest import Minter
from tests.server.towns import collection, ids_of, point

CLIENT = "clientId=cli"


@pytest.fixture(scope="module")
def token(minter: Minter) -> str:
    return minter(userId="anna")


@pytest.fixture(scope="module")
def client(guarded_hub: HubServer, token: str) -> Iterator[httpx.Client]:
    headers = {
        "Authorization": f"Bearer {token}",
        "User-Agent": "HERE CLI",
        "App-Name": "HereCLI",
        "Accept": "application/json",
    }
    with httpx.Client(base_url=guarded_hub.url, headers=headers, timeout=60) as client:
        yield client


def test_it_looks_at_its_token_first(client: httpx.Client, token: str) -> None:
    told = client.get(f"/token-api/tokens/{token}?{CLIENT}")
    assert told.status_code == 200
    assert told.json()["aid"] == "anna"


def test_a_space_is_made_filled_shown_and_deleted(client: httpx.Client) -> None:
    answer = client.post(
        f"/hub/spaces?{CLIENT}",
        json={"title": "by cli", "description": "", "client": {"type": "cli"}},
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    space = f"/hub/spaces/{answer.json()['id']}"
    assert answer.json()["client"] == {"type": "cli"}
    # Uploads come in parts, with tags in the query.
    for start in (0, 200):
        part = collection(*(point(f"{n}", n / 10, 1, n=n) for n in range(start, start + 200)))
        answer = client.put(
            f"{space}/features?{CLIENT}&addTags=one,two",
            json=part,
            headers={"Content-Type": "application/geo+json"},
        )
        assert len(answer.json()["features"]) == 200
    shown = client.get(f"{space}/search?limit=5000&{CLIENT}&tags=one%2Btwo").json()
    assert shown["type"] == "FeatureCollection"
    assert client.get(f"{space}/statistics?{CLIENT}&skipCache=true").json()["count"]["value"] == 400
    assert ids_of(_download(client, space)) == ids_of(
        client.get(f"{space}/iterate").json()["features"]
    )
    assert client.delete(f"{space}/features?{CLIENT}&id=1,2,3").is_success
    assert client.delete(f"{space}/features?{CLIENT}&tags=*").is_success
    assert client.get(f"{space}/count?{CLIENT}").json()["count"] == 0
    assert any(one["id"] in space for one in client.get(f"/hub/spaces?{CLIENT}&owner=me").json())
    assert client.delete(f"{space}?{CLIENT}").is_success
    assert client.get(f"{space}?{CLIENT}").status_code == 404


def _download(client: httpx.Client, space: str) -> list[dict[str, object]]:
    """As it goes through pages: from handle 0, as long as JavaScript takes the handle for a number
    that is not negative."""
    found: list[dict[str, object]] = []
    handle = "0"
    while float(handle) >= 0:
        page = client.get(f"{space}/iterate?limit=150&handle={handle}&{CLIENT}").json()
        found += page["features"]
        handle = page.get("handle", "NaN")
    return found

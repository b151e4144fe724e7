"""Reads of features at a version: of a tag, of a branch, or by number."""

from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from tests.server.towns import id_of, ids_of, new_space, point, put

BOX = {"west": "-1", "south": "-1", "east": "9", "north": "9"}
THEN, BRANCH, NOW = ["a", "b"], ["a", "b", "on-branch"], ["a", "later"]
PATHS: dict[str, dict[str, str]] = {
    "features": {"id": "a,b,on-branch,later"},
    "search": {"p.n>": "0"},
    "bbox": BOX,
    "tile/web/0_0_0": {},
    "tile/web/0_0_0.mvt": {},
    "tile/web/0_0_0.mvtf": {"selection": "p.n"},
    "spatial": {"lat": "1", "lon": "1", "radius": "10"},
    "iterate": {},
    "iterate?": {"sort": "p.n"},
    "iterate??": {"part": "1,1"},
    "POST spatial": {"radius": "10"},
    "POST spatial/batch": {},
    "POST copy": {},
}


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> dict[str, str]:
    """The path of a space, and what its versions are called."""
    space = new_space(client)
    number = put(client, space, point("a", 1, 1, n=1), point("b", 1, 1, n=1))["version"]
    client.post(f"{space}/tags", json={"id": "summer"}).raise_for_status()
    client.post(f"{space}/branches", json={"id": "fix"}).raise_for_status()
    put(client, space, point("on-branch", 1, 1, n=1), versionRef="fix")
    put(client, space, point("later", 1, 1, n=1))
    client.delete(f"{space}/features/b").raise_for_status()
    return {"space": space, "number": str(number)}


def ids_at(client: httpx.Client, space: str, path: str, ref: str) -> list[str]:
    """The ids found at a version."""
    method, _, name = path.rstrip("?").rpartition(" ")
    params = {**PATHS[path], "versionRef": ref}
    body: Any = {"type": "Point", "coordinates": [1, 1]}
    target = ""
    if name == "spatial/batch":
        body = {"refSpaceId": id_of(space), "ids": ["a"]}
    elif name == "copy":
        target = new_space(client)
        body = {"targetSpaceId": id_of(target)}
    url = f"{space}/{name}"
    answer = (
        client.post(url, params=params, json=body) if method else client.get(url, params=params)
    )
    assert answer.status_code == 200, answer.text
    if name == "copy":
        return sorted(ids_of(client.get(f"{target}/search").json()["features"]))
    if ".mvt" in name:
        (layer,) = mapbox_vector_tile.decode(answer.content).values()
        return sorted(feature["properties"]["id"] for feature in layer["features"])
    found = answer.json()
    features = found["results"][0]["features"] if "results" in found else found["features"]
    return sorted(ids_of(features))


@pytest.mark.parametrize("path", PATHS)
def test_features_are_read_at_a_version(
    client: httpx.Client, town: dict[str, str], path: str
) -> None:
    space, number = town["space"], town["number"]
    for ref, ids in (
        ("summer", THEN),
        (number, THEN),
        (f"main:{number}", THEN),
        (f"fix:{number}", THEN),
        ("fix", BRANCH),
        ("fix:HEAD", BRANCH),
        ("main", NOW),
        ("HEAD", NOW),
        ("", NOW),
    ):
        assert ids_at(client, space, path, ref) == ids, (path, ref)


def test_figures_are_those_of_a_version(client: httpx.Client, town: dict[str, str]) -> None:
    space = town["space"]
    for ref, count in (("summer", 2), ("fix", 3), (town["number"], 2), ("", 2)):
        params = {"versionRef": ref}
        assert client.get(f"{space}/count", params=params).json()["count"] == count
        for fast in ("false", "true"):
            told = client.get(f"{space}/statistics", params={**params, "fastMode": fast}).json()
            assert told["count"]["value"] == count
        clusters = {**params, **BOX, "clustering": "quadbin"}
        cells = client.get(f"{space}/bbox", params=clusters).json()["features"]
        assert {cell["properties"]["total_count"] for cell in cells} == {count}

"""TileJSON, map styles, and tiles of the difference of two versions."""

import json
from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from tests.server.towns import error, id_of, new_space, point, put

XYZ = "@ns:com:here:xyz"


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    """Four versions after the first one: changed, moved, deleted and created features."""
    space = new_space(client, title="Towns", description="Some towns")
    line = {"type": "LineString", "coordinates": [[10.0, 50.0], [11.0, 51.0]]}
    way = {**point("way"), "geometry": line}
    put(
        client,
        space,
        point("kept", 13.0, 52.0, name="kept"),
        point("renamed", 13.0, 52.0, name="before"),
        point("moved", 13.0, 52.0, name="m"),
        point("gone", 13.0, 52.0),
        way,
    )
    put(client, space, point("renamed", 13.0, 52.0, name="after"), point("new", 14.0, 53.0))
    put(client, space, point("moved", 14.0, 53.0, name="m"), point("brief", 13.0, 52.0))
    client.delete(f"{space}/features?id=gone,brief").raise_for_status()
    return space


def first_version(client: httpx.Client, space: str) -> int:
    """The version of the first write; that before it is empty."""
    versions = client.get(f"{space}/changesets", params={"limit": 100}).json()["versions"]
    return min(int(number) for number in versions)


def features(client: httpx.Client, url: str, **params: Any) -> list[dict[str, Any]]:
    answer = client.get(url, params=params or None)
    assert answer.status_code == 200, answer.text
    layers = mapbox_vector_tile.decode(answer.content).values() if answer.content else ()
    return [one for layer in layers for one in layer["features"]]


def changes(found: list[dict[str, Any]]) -> set[tuple[str, str, bool]]:
    """The id and the kind of each change, and whether it is shown as it was."""
    shown = (one["properties"] for one in found)
    return {(one["id"], one["change"], one.get("old", False)) for one in shown}


ALL = {
    ("renamed", "changed", False),
    ("moved", "changed", False),
    ("moved", "changed", True),
    ("gone", "deleted", False),
    ("new", "created", False),
}


def test_a_difference_is_a_tile(client: httpx.Client, town: str) -> None:
    first = first_version(client, town)
    url = f"{town}/tile/web/0_0_0.mvt"
    found = features(client, url, versionRef=f"{first}..HEAD")
    assert changes(found) == ALL
    assert len(found) == len(ALL)
    by_key = {(one["properties"]["id"], "old" in one["properties"]): one for one in found}
    assert by_key["renamed", False]["properties"]["name"] == "after"
    was, is_now = by_key["moved", True], by_key["moved", False]
    assert was["geometry"]["coordinates"] == by_key["gone", False]["geometry"]["coordinates"]
    assert is_now["geometry"]["coordinates"] == by_key["new", False]["geometry"]["coordinates"]
    assert changes(features(client, url, versionRef=f"{first}..{first + 1}")) == {
        ("renamed", "changed", False),
        ("new", "created", False),
    }
    assert features(client, url, versionRef=f"{first}..{first}") == []


def test_a_difference_is_that_of_the_tile(client: httpx.Client, town: str) -> None:
    ref = f"{first_version(client, town)}..HEAD"
    there = f"{town}/tile/web/8_137_83.mvt"  # around 13.4 E, 53.1 N
    assert changes(features(client, there, versionRef=ref)) == {
        ("moved", "changed", False),
        ("new", "created", False),
    }
    found = features(client, f"{town}/tile/web/0_0_0.mvtf", versionRef=ref, **{"p.name": "after"})
    (renamed,) = found
    assert renamed["properties"] == {
        "id": "renamed",
        "properties.name": "after",
        "properties.change": "changed",
    }


def test_a_difference_of_fixed_versions_never_changes(client: httpx.Client) -> None:
    space = new_space(client)
    one = put(client, space, point("a", 1, 1))["version"]
    two = put(client, space, point("b", 1, 1))["version"]
    fixed, moving = (f"{space}/tile/web/0_0_0.mvt?versionRef={one}..{end}" for end in (two, "HEAD"))
    answers = {url: client.get(url) for url in (fixed, moving)}
    assert answers[fixed].headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answers[moving].headers["Cache-Control"] == "no-cache"
    assert answers[fixed].content == answers[moving].content
    for url, answer in answers.items():
        known = {"If-None-Match": answer.headers["ETag"]}
        assert client.get(url, headers=known).status_code == 304
    client.delete(f"{space}/features/b").raise_for_status()
    for url, status in ((fixed, 304), (moving, 200)):
        known = {"If-None-Match": answers[url].headers["ETag"]}
        assert client.get(url, headers=known).status_code == status
    assert client.get(moving).content == b""


def test_a_difference_on_a_branch(client: httpx.Client) -> None:
    space = new_space(client)
    base = put(client, space, point("a", 1, 1), point("b", 1, 1))["version"]
    client.post(f"{space}/branches", json={"id": "fix"}).raise_for_status()
    client.delete(f"{space}/features/a", params={"versionRef": "fix"}).raise_for_status()
    put(client, space, point("b", 1, 1, on="main"))
    url = f"{space}/tile/web/0_0_0.mvt"
    found = features(client, url, versionRef=f"fix:{base}..HEAD")
    assert changes(found) == {("a", "deleted", False)}
    assert changes(features(client, url, versionRef=f"{base}..HEAD")) == {("b", "changed", False)}


def test_a_difference_that_cannot_be_drawn_is_refused(client: httpx.Client, town: str) -> None:
    url = f"{town}/tile/web/0_0_0"
    error(client.get(f"{url}?versionRef=1..HEAD"), 400, "versionRef")
    for more in ("clustering=hexbin", "tweaks=sampling"):
        answer = client.get(f"{url}.mvt?versionRef=1..HEAD&{more}")
        assert answer.status_code in (400, 501), answer.text
        assert answer.json()["field"] == "versionRef"
    error(client.get(f"{url}.mvt?versionRef=1..99999"), 404)
    view = new_space(client, extends={"spaceId": id_of(town)})
    error(client.get(f"{view}/tile/web/0_0_0.mvt?versionRef=1..HEAD"), 501)


# ---- TileJSON and styles -------------------------------------------------------------------------


def test_tilejson_describes_the_tiles(client: httpx.Client, town: str) -> None:
    answer = client.get(f"{town}/tilejson")
    assert answer.headers["Content-Type"] == "application/json"
    found = answer.json()
    id = id_of(town)
    assert found["tilejson"] == "3.0.0"
    assert (found["name"], found["description"]) == ("Towns", "Some towns")
    assert found["bounds"] == [10.0, 50.0, 14.0, 53.0]
    assert found["minzoom"] == 0 < found["maxzoom"] <= 24
    (layer,) = found["vector_layers"]
    assert layer["id"] == id
    assert layer["fields"].keys() == {"id", "name"}
    (template,) = found["tiles"]
    tile = httpx.get(template.format(z=4, x=8, y=5))
    assert tile.status_code == 200
    assert [*mapbox_vector_tile.decode(tile.content)] == [id]
    ogc = str(client.base_url).removesuffix("/hub/") + f"/ogc/collections/{id}/tiles"
    same = client.get(f"{ogc}/WebMercatorQuad?f=tilejson")
    assert same.headers["Content-Type"] == "application/vnd.mapbox.tile+json"
    assert same.json() == found
    known = {"If-None-Match": answer.headers["ETag"]}
    assert client.get(f"{town}/tilejson", headers=known).status_code == 304


def test_tilejson_passes_parameters_on(client: httpx.Client, town: str) -> None:
    first = first_version(client, town)
    query = "p.name=kept,m&tags=a%2Bb&f.x=1&margin=4&access_token="
    for ref, passed in (
        (str(first), f"main:{first}"),
        (f"{first}..HEAD", f"{first}..HEAD"),
        ("main", "main"),
    ):
        (template,) = client.get(f"{town}/tilejson?versionRef={ref}&{query}").json()["tiles"]
        assert template.endswith(f"?{query}&versionRef={passed}")
        style = client.get(f"{town}/style?versionRef={ref}&{query}").json()
        url = style["sources"][id_of(town)]["url"]
        assert httpx.get(url).json()["tiles"] == [template]
    then = client.get(f"{town}/tilejson?versionRef={first}").json()
    assert then["bounds"] == [10.0, 50.0, 13.0, 52.0]


def test_tilejson_of_a_branch_and_of_a_view(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", 1, 1, name="x"))
    client.post(f"{space}/branches", json={"id": "fix"}).raise_for_status()
    put(client, space, point("b", 5, 5, other=1), versionRef="fix")
    view = new_space(client, extends={"spaceId": id_of(space)})
    put(client, view, point("c", 7, 7, third=1))
    for path, ids, fields in (
        (f"{space}/tilejson", {"a"}, {"id", "name"}),
        (f"{space}/tilejson?versionRef=fix", {"a", "b"}, {"id", "name", "other"}),
        (f"{view}/tilejson", {"a", "c"}, {"id", "name", "third"}),
        (f"{view}/tilejson?context=extension", {"c"}, {"id", "third"}),
    ):
        found = client.get(path).json()
        (template,) = found["tiles"]
        shown = features(client, template.format(z=0, x=0, y=0))
        assert {one["properties"]["id"] for one in shown} == ids
        assert {*found["vector_layers"][0]["fields"]} == fields


def test_a_style_draws_all_geometries_without_text(client: httpx.Client, town: str) -> None:
    style = client.get(f"{town}/style").json()
    assert style["version"] == 8
    assert style.keys() == {"version", "name", "sources", "layers"}  # neither glyphs nor sprites
    id = id_of(town)
    assert style["sources"].keys() == {id}
    assert [layer["type"] for layer in style["layers"]] == ["fill", "line", "circle"]
    assert {(one["source"], one["source-layer"]) for one in style["layers"]} == {(id, id)}
    assert "text" not in json.dumps(style["layers"])
    difference = client.get(f"{town}/style?versionRef=1..HEAD").json()
    for kind in ("created", "changed", "deleted"):
        assert kind in json.dumps(difference["layers"])


def test_descriptions_of_what_is_not_there(client: httpx.Client, town: str) -> None:
    for name in ("tilejson", "style"):
        error(client.get(f"/spaces/nowhere/{name}"), 404, "space")
        error(client.get(f"{town}/{name}?versionRef=99999"), 404)
        error(client.get(f"{town}/{name}?id=x"), 400, "id")

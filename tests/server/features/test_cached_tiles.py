"""Tiles are sent again exactly when they have changed, and never when they have not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from naksha.testing.servers.hub_server import HubServer
from tests.server.middleware.test_auth import Minter, bearer, minter, secret
from tests.server.towns import error, id_of, new_space, point, put

__all__ = ["minter", "secret"]
WEST, SOUTH = 13.0517578125, 52.469396842762045
"""The south-western corner of the tile 14_8786_5376, about 0.022 by 0.0134 degrees."""
TILE = "tile/web/14_8786_5376.mvt"
KEYED = 'W/"'


@pytest.fixture
def town(client: httpx.Client) -> str:
    space = new_space(client)
    put(
        client,
        space,
        point("in", WEST + 0.01, SOUTH + 0.005, tags=["a"], name="x", size=1),
        point("other", WEST + 0.011, SOUTH + 0.005, tags=["b"], name="y", size=2),
    )
    return space


def again(client: httpx.Client, url: str, answer: httpx.Response, **more: Any) -> httpx.Response:
    """Request what the client has."""
    headers = {"If-None-Match": answer.headers["ETag"], **more.pop("headers", {})}
    return client.get(url, headers=headers, **more)


def ids_in(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    layers = mapbox_vector_tile.decode(answer.content).values() if answer.content else ()
    return {one["properties"]["id"] for layer in layers for one in layer["features"]}


def outcomes(hub: HubServer) -> dict[str, float]:
    """The numbers of tiles by where they came from."""
    lines = httpx.get(f"{hub.url}/metrics").text.splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("naksha_tiles_total{"))
    return {name.partition('"')[2].rpartition('"')[0]: float(count) for name, _, count in found}


# ---- HEAD ----------------------------------------------------------------------------------------


def test_a_tile_is_the_same_until_something_inside_changes(client: httpx.Client, town: str) -> None:
    url = f"{town}/{TILE}"
    first = client.get(url)
    assert ids_in(first) == {"in", "other"}
    assert first.headers["Cache-Control"] == "no-cache"
    tag = first.headers["ETag"]

    def unchanged() -> None:
        known = again(client, url, first)
        assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", tag)
        assert known.headers["Cache-Control"] == "no-cache"
        warm = client.get(url)
        assert (warm.content, warm.headers["ETag"]) == (first.content, tag)

    unchanged()
    put(client, town, point("far", -70, -30))
    unchanged()
    # In the same cell, but outside of the tile.
    put(client, town, point("near", WEST - 0.01, SOUTH - 0.005))
    unchanged()
    client.delete(f"{town}/features/near").raise_for_status()
    unchanged()
    put(client, new_space(client), point("in", WEST + 0.01, SOUTH + 0.005))
    unchanged()


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        ([point("new", WEST + 0.001, SOUTH + 0.001)], {"in", "other", "new"}),
        ([point("far", WEST + 0.001, SOUTH + 0.001)], {"in", "other", "far"}),
        ([point("in", -70, -30)], {"other"}),
        ([point("in", WEST - 0.001, SOUTH + 0.005)], {"other"}),
        ([point("in", WEST + 0.01, SOUTH + 0.005, name="changed")], {"in", "other"}),
        ([point("in") | {"geometry": None}], {"other"}),
        ([], {"other"}),
    ],
)
def test_each_change_inside_is_seen(
    client: httpx.Client, town: str, change: list[dict[str, Any]], ids: set[str]
) -> None:
    put(client, town, point("far", -70, -30))
    url = f"{town}/{TILE}"
    first = client.get(url)
    if change:
        put(client, town, *change)
    else:
        client.delete(f"{town}/features/in").raise_for_status()
    for answer in (again(client, url, first), client.get(url)):
        assert ids_in(answer) == ids
        assert answer.content != first.content
        assert answer.headers["ETag"] != first.headers["ETag"]
    assert again(client, url, client.get(url)).status_code == 304


def test_the_buffer_belongs_to_the_tile(client: httpx.Client, town: str) -> None:
    narrow, wide = f"{town}/{TILE}", f"{town}/{TILE}?margin=16"
    first, first_wide = client.get(narrow), client.get(wide)
    put(client, town, point("beside", WEST - 0.0005, SOUTH + 0.005))
    assert again(client, narrow, first).status_code == 304
    assert ids_in(again(client, wide, first_wide)) == {"in", "other", "beside"}


def test_a_geojson_tile_is_validated_too(client: httpx.Client, town: str) -> None:
    url = f"{town}/tile/web/14_8786_5376"
    first = client.get(url)
    assert "Accept" in first.headers["Vary"]
    assert again(client, url, first).status_code == 304
    put(client, town, point("near", WEST - 0.01, SOUTH - 0.005))
    assert again(client, url, first).status_code == 304
    put(client, town, point("in", WEST + 0.01, SOUTH + 0.005, name="changed"))
    changed = again(client, url, first)
    assert changed.status_code == 200
    assert {one["properties"].get("name") for one in changed.json()["features"]} == {"changed", "y"}


def test_a_collection_that_does_not_exist_yet(client: httpx.Client) -> None:
    space = new_space(client)
    url = f"{space}/{TILE}"
    first = client.get(url)
    assert first.content == b""
    assert again(client, url, first).status_code == 304
    put(client, space, point("in", WEST + 0.01, SOUTH + 0.005))
    assert ids_in(again(client, url, first)) == {"in"}


def test_a_compressed_tile_has_the_same_validator(client: httpx.Client, town: str) -> None:
    put(client, town, *(point(f"p{n}", WEST + 0.01, SOUTH + 0.01, n=n) for n in range(200)))
    url = f"{town}/{TILE}"
    plain = client.get(url, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    for zipped in [client.get(url, headers={"Accept-Encoding": "gzip"}) for _ in range(2)]:
        assert zipped.headers["Content-Encoding"] == "gzip"
        assert int(zipped.headers["Content-Length"]) < len(plain.content)
        assert zipped.content == plain.content
        assert zipped.headers["ETag"] == plain.headers["ETag"]
        assert "Accept-Encoding" in zipped.headers["Vary"]
    assert "Accept-Encoding" in plain.headers["Vary"]


# ---- The key -------------------------------------------------------------------------------------

VARIANTS = [
    "tile/web/14_8786_5376.mvt",
    "tile/web/14_8786_5376.mvtf",
    "tile/web/14_8786_5376",
    "tile/web/14_8786_5377.mvt",
    "tile/web/13_4393_2688.mvt",
    "tile/web/14_8786_5376.mvt?margin=8",
    "tile/web/14_8786_5376.mvt?clip=false",
    "tile/web/14_8786_5376.mvt?selection=p.name",
    "tile/web/14_8786_5376.mvt?selection=p.size",
    "tile/web/14_8786_5376.mvt?selection=*",
    "tile/web/14_8786_5376.mvt?tags=a",
    "tile/web/14_8786_5376.mvt?tags=b",
    "tile/web/14_8786_5376.mvt?p.name=x",
    "tile/web/14_8786_5376.mvt?p.name!=x",
    "tile/web/14_8786_5376.mvt?limit=1",
    "tile/web/14_8786_5376.mvt?mode=viz",
    "tile/web/14_8786_5376.mvt?mode=viz&vizSampling=off",
    "tile/web/14_8786_5376.mvt?tweaks=sampling",
    "tile/web/14_8786_5376.mvt?author=nobody",
    "tile/web/14_8786_5376.mvt?createdFrom=5",
    "tile/web/14_8786_5376.mvt?context=extension",
    "tile/web/14_8786_5376.mvt?versionRef=1",
    "tile/web/14_8786_5376.mvt?force2D=true",
]


def test_each_parameter_is_part_of_the_key(client: httpx.Client, town: str) -> None:
    """A client's validator for one variant says nothing of another."""
    answers = {path: client.get(f"{town}/{path}") for path in VARIANTS}
    tags = {path: answer.headers["ETag"] for path, answer in answers.items()}
    assert len({*tags.values()}) == len(VARIANTS)
    for path, answer in answers.items():
        others = ", ".join(tag for other, tag in tags.items() if other != path)
        url = f"{town}/{path}"
        known = client.get(url, headers={"If-None-Match": others})
        assert (known.status_code, known.content) == (200, answer.content), path
        assert again(client, url, answer).status_code == 304


def test_schemes_share_tiles(hub: HubServer, client: httpx.Client, town: str) -> None:
    first = client.get(f"{town}/{TILE}")
    for path in ("tile/tms/14_8786_11007.mvt", "tile/web/14_8786_5376.mvt?skipCache=true"):
        assert again(client, f"{town}/{path}", first).status_code == 304


def test_the_configuration_is_part_of_the_key(client: httpx.Client, town: str) -> None:
    url = f"{town}/{TILE}"
    first = client.get(url)
    client.patch(town, json={"title": "Another"}).raise_for_status()
    assert client.get(url).headers["ETag"] != first.headers["ETag"]
    other = new_space(client)
    put(client, other, point("in", WEST + 0.01, SOUTH + 0.005))
    second = client.get(url)
    assert again(client, url, second).status_code == 304
    id = id_of(town)
    connectors = [
        {"id": f"only-{id}", "className": "tag-filter", "properties": {"contains": ["a"]}},
        {"id": f"all-{id}", "className": "storage", "properties": {"collection": {"id": id}}},
    ]
    for connector in connectors:
        client.post("/connectors", json=connector).raise_for_status()
    client.patch(town, json={"eventHandlerIds": [c["id"] for c in connectors]}).raise_for_status()
    filtered = again(client, url, second)
    assert ids_in(filtered) == {"in"}
    assert again(client, url, filtered).status_code == 304
    change = {**connectors[0], "properties": {"contains": ["b"]}}
    client.patch(f"/connectors/only-{id}", json=change).raise_for_status()
    assert ids_in(again(client, url, filtered)) == {"other"}


def test_rows_that_an_actor_may_read_are_part_of_the_key(
    tmp_path: Path, secret: Path, minter: Minter
) -> None:
    with (
        HubServer(tmp_path, arguments=["--keys", f"secret:{secret}"]) as hub,
        httpx.Client(base_url=f"{hub.url}/hub") as client,
    ):
        client.headers = bearer(minter())
        space = new_space(client)
        put(
            client,
            space,
            point("in", WEST + 0.01, SOUTH + 0.005, tags=["a"]),
            point("other", WEST + 0.011, SOUTH + 0.005, tags=["b"]),
        )
        url = f"{space}/{TILE}"

        def reader(*maps: dict[str, Any]) -> str:
            return minter(urm={"naksha": {"useSpaces": [{}], "readFeatures": [*maps]}})

        tokens = [
            (minter(), {"in", "other"}),
            (reader({}), {"in", "other"}),
            (reader({"tags": ["a"]}), {"in"}),
            (reader({"id": "oth*"}), {"other"}),
        ]
        tags = set()
        for token, ids in tokens:
            first = client.get(url, headers=bearer(token))
            answer = client.get(url, headers=bearer(token))
            assert ids_in(first) == ids_in(answer) == ids
            assert answer.headers["Cache-Control"] == "private, no-cache"
            assert again(client, url, answer, headers=bearer(token)).status_code == 304
            tags.add(answer.headers["ETag"])
            fixed = client.get(f"{url}?versionRef=1", headers=bearer(token))
            assert fixed.headers["Cache-Control"] == "private, max-age=31536000, immutable"
        assert len(tags) == 3  # those who may read everything share a tile
        nobody = bearer(reader())
        for headers in (nobody, {**nobody, "If-None-Match": ", ".join(tags)}):
            error(client.get(url, headers=headers), 403)
        assert client.get(url, headers={"Authorization": ""}).status_code == 401


# ---- Versions, branches and views ----------------------------------------------------------------


def test_versions_never_change(client: httpx.Client, town: str) -> None:
    url = f"{town}/{TILE}?versionRef=1"
    first = client.get(url)
    assert first.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    put(client, town, point("in", -70, -30))
    assert again(client, url, first).status_code == 304
    assert client.get(url).content == first.content
    error(client.get(f"{town}/{TILE}?versionRef=99"), 404)
    error(again(client, f"{town}/{TILE}?versionRef=99", first), 404)


@pytest.mark.parametrize("ref", ["{}", "0..{}"])
def test_a_version_of_a_dropped_collection_is_not_kept(
    client: httpx.Client, town: str, ref: str
) -> None:
    last = put(client, town, point("in", WEST + 0.01, SOUTH + 0.005))["version"]
    url = f"{town}/{TILE}?versionRef={ref.format(last)}"
    path = f"/storages/default/collections/{client.get(town).json()['collectionId']}"
    client.delete(path, params={"deleteAt": 2**52}).raise_for_status()
    dropped = client.get(url)
    assert ids_in(dropped) == set()
    assert dropped.headers["Cache-Control"] == "no-cache"
    client.post(f"{path}/restore").raise_for_status()
    found = again(client, url, dropped)
    assert ids_in(found) == {"in", "other"}
    assert found.headers["Cache-Control"] == "public, max-age=31536000, immutable"


def test_a_version_that_does_not_exist_yet_is_cached_later(client: httpx.Client, town: str) -> None:
    _, _, last = client.get(f"{town}/{TILE}").headers["ETag"].rstrip('"').rpartition("-")
    url = f"{town}/{TILE}?versionRef={int(last) + 1}"
    error(client.get(url), 404)
    put(client, town, point("in", -70, -30))
    first = client.get(url)
    assert ids_in(first) == {"other"}
    assert first.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert again(client, url, first).status_code == 304


def test_a_tag_may_be_moved(client: httpx.Client, town: str) -> None:
    client.post(f"{town}/tags", json={"id": "release"}).raise_for_status()
    url = f"{town}/{TILE}?versionRef=release"
    first = client.get(url)
    assert first.headers["Cache-Control"] == "no-cache"
    moved = put(client, town, point("in", -70, -30))["version"]
    assert again(client, url, first).status_code == 304
    client.patch(f"{town}/tags/release", json={"version": moved}).raise_for_status()
    assert ids_in(again(client, url, first)) == {"other"}
    # Map clients get the number of the version, which they may keep.
    (template,) = client.get(f"{town}/tilejson?versionRef=release").json()["tiles"]
    assert template.endswith(f"?versionRef=main:{moved}")
    fixed = httpx.get(template.format(z=14, x=8786, y=5376))
    assert ids_in(fixed) == {"other"}
    assert fixed.headers["Cache-Control"] == "public, max-age=31536000, immutable"


def test_branches_and_main_do_not_invalidate_each_other(client: httpx.Client, town: str) -> None:
    client.post(f"{town}/branches", json={"id": "fix"}).raise_for_status()
    main, branch = f"{town}/{TILE}", f"{town}/{TILE}?versionRef=fix"
    on_main, on_branch = client.get(main), client.get(branch)
    assert ids_in(on_branch) == {"in", "other"}
    put(client, town, point("in", -70, -30), versionRef="fix")
    assert again(client, main, on_main).status_code == 304
    changed = again(client, branch, on_branch)
    assert ids_in(changed) == {"other"}
    put(client, town, point("other", -70, -30))
    assert ids_in(again(client, main, on_main)) == {"in"}
    assert again(client, branch, changed).status_code == 304
    client.delete(f"{town}/features/other", params={"versionRef": "fix"}).raise_for_status()
    assert ids_in(again(client, branch, changed)) == set()


def test_a_branch_with_the_same_name_is_another_one(client: httpx.Client, town: str) -> None:
    url = f"{town}/{TILE}?versionRef=fix"
    client.post(f"{town}/branches", json={"id": "fix"}).raise_for_status()
    put(client, town, point("in", -70, -30), versionRef="fix")
    first = client.get(url)
    assert again(client, url, first).status_code == 304
    client.delete(f"{town}/branches/fix").raise_for_status()
    error(again(client, url, first), 404)
    client.post(f"{town}/branches", json={"id": "fix"}).raise_for_status()
    assert ids_in(again(client, url, first)) == {"in", "other"}


def test_a_view_shows_what_its_layers_hide(client: httpx.Client, town: str) -> None:
    """A feature hides the one below it, wherever it is, even without a geometry."""
    view = new_space(client, extends={"spaceId": id_of(town)})
    url = f"{view}/{TILE}"
    first = client.get(url)
    assert ids_in(first) == {"in", "other"}
    assert again(client, url, first).status_code == 304
    put(client, town, point("near", WEST - 0.01, SOUTH - 0.005))
    assert again(client, url, first).status_code == 304
    put(client, view, point("in", -70, -30))
    second = again(client, url, first)
    assert ids_in(second) == {"other"}
    put(client, view, point("other") | {"geometry": None})
    third = again(client, url, second)
    assert ids_in(third) == set()
    put(client, town, point("new", WEST + 0.01, SOUTH + 0.005))
    assert ids_in(again(client, url, third)) == {"new"}
    assert again(client, url, client.get(url)).status_code == 304
    only = client.get(f"{url}?context=super")
    assert ids_in(only) == {"in", "other", "new"}
    put(client, view, point("far", -70, -30))
    assert again(client, f"{url}?context=super", only).status_code == 304


def test_a_union_is_validated_by_its_spaces(client: httpx.Client, town: str) -> None:
    other = new_space(client)
    put(client, other, point("there", WEST + 0.01, SOUTH + 0.005))
    ids = [id_of(town), id_of(other)]
    connector = {"id": f"union-{ids[1]}", "className": "view"}
    properties = {"spaceIds": ids, "viewType": "UNION"}
    client.post("/connectors", json={**connector, "properties": properties}).raise_for_status()
    url = f"{new_space(client, eventHandlerIds=[connector['id']])}/{TILE}"
    first = client.get(url)
    assert ids_in(first) == {"in", "other", "there"}
    for space in (town, other):
        put(client, space, point("far", -70, -30))
        assert again(client, url, first).status_code == 304
    for space in (town, other):
        put(client, space, point("new", WEST + 0.01, SOUTH + 0.005))
        changed = again(client, url, first)
        assert "new" in ids_in(changed)
        first = changed


def test_a_merged_feature_changes_with_its_parts_elsewhere(client: httpx.Client, town: str) -> None:
    """Its geometry is that of the upper layer, properties may come from any layer."""
    below = new_space(client)
    put(client, below, point("in", -70, -30, note="old"))
    ids = [id_of(town), id_of(below)]
    connector = {"id": f"merged-{ids[1]}", "className": "view"}
    properties = {"spaceIds": ids, "viewType": "MERGED"}
    client.post("/connectors", json={**connector, "properties": properties}).raise_for_status()
    url = f"{new_space(client, eventHandlerIds=[connector['id']])}/{TILE}"
    first = client.get(url)
    assert b"old" in first.content
    assert again(client, url, first).status_code == 304
    put(client, below, point("in", -70, -30, note="new"))
    changed = again(client, url, first)
    assert ids_in(changed) == {"in", "other"}
    assert b"new" in changed.content


def test_a_tile_of_a_transformation_is_rendered_each_time(
    hub: HubServer, client: httpx.Client, town: str
) -> None:
    id = id_of(town)
    connectors = [
        {
            "id": f"up-{id}",
            "className": "transform",
            "properties": {"read": [{"set": {"properties.up": True}}]},
        },
        {"id": f"of-{id}", "className": "storage", "properties": {"collection": {"id": id}}},
    ]
    for connector in connectors:
        made = client.post("/connectors", json=connector)
        assert made.is_success, made.text
    space = new_space(client, eventHandlerIds=[one["id"] for one in connectors])
    for path in (f"{space}/{TILE}", f"{town}/tile/web/13_4393_2688.mvt?clustering=quadbin"):
        before = outcomes(hub).get("not_cacheable", 0)
        first = client.get(path)
        assert client.get(path).content == first.content
        assert outcomes(hub)["not_cacheable"] == before + 2
        assert "-" not in first.headers["ETag"]  # a hash of the bytes


# ---- Caches --------------------------------------------------------------------------------------


def test_tiles_are_counted_by_where_they_come_from(
    hub: HubServer, client: httpx.Client, town: str
) -> None:
    before = outcomes(hub)

    def more(outcome: str) -> float:
        return outcomes(hub).get(outcome, 0) - before.get(outcome, 0)

    url = f"{town}/{TILE}"
    first = client.get(url)
    assert (more("rendered"), more("memory")) == (1, 0)
    client.get(url)
    assert more("memory") == 1
    again(client, url, first)
    assert more("unmodified") == 1
    # A large tile is not tested for changes inside of it.
    client.get(f"{town}/tile/web/5_17_10.mvt")
    put(client, town, point("beside", WEST + 1, 48.5))
    client.get(f"{town}/tile/web/5_17_10.mvt")
    assert (more("rendered"), more("needless")) == (3, 1)


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path) as hub:
        yield hub


def test_files_survive_a_restart(restarted: HubServer) -> None:
    hub = restarted
    with httpx.Client(base_url=f"{hub.url}/hub") as client:
        space = new_space(client)
        put(client, space, point("in", WEST + 0.01, SOUTH + 0.005))
        urls = [f"{space}/{TILE}", f"{space}/{TILE}?versionRef=1", f"{space}/tile/web/0_0_0.mvt"]
        answers = [client.get(url) for url in urls]
    for changes in (False, True):
        hub.stop()
        hub.start()
        with httpx.Client(base_url=f"{hub.url}/hub") as client:
            if changes:
                put(client, space, point("far", -70, -30))
            for url, answer in zip(urls[:2], answers[:2], strict=True):
                assert again(client, url, answer).status_code == 304
                warm = client.get(url)
                assert warm.content == answer.content
                assert warm.headers["ETag"] == answer.headers["ETag"]
            assert outcomes(hub)["disk"] == 2
            world = again(client, urls[2], answers[2])
            assert world.status_code == (200 if changes else 304)


def test_caches_can_be_switched_off(tmp_path: Path) -> None:
    off = ["--tile-memory-bytes", "0", "--tile-disk-bytes", "0"]
    with (
        HubServer(tmp_path, arguments=off) as hub,
        httpx.Client(base_url=f"{hub.url}/hub") as client,
    ):
        space = new_space(client)
        put(client, space, point("in", WEST + 0.01, SOUTH + 0.005))
        first = client.get(f"{space}/{TILE}")
        assert client.get(f"{space}/{TILE}").content == first.content
        assert again(client, f"{space}/{TILE}", first).status_code == 304
        assert outcomes(hub) == {"rendered": 2, "unmodified": 1}
        assert not (tmp_path / "tiles").exists()

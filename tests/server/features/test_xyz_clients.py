"""Requests of existing XYZ-Hub clients, and the responses they expect."""

import json
from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from tests.server.towns import XYZ, collection, error, found, id_of, new_space, point, put

Feature = dict[str, Any]


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- Writing ---------------------------------------------------------------------------------


def merge(client: httpx.Client, space: str, *features: Feature, **query: Any) -> httpx.Response:
    return client.post(
        f"{space}/features", json=collection(*features), params={"e": "merge", **query}
    )


def test_a_merge_without_a_version_is_based_on_the_current_state(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", n=1))
    put(client, space, point("a", n=2, kept=True))
    assert fine(merge(client, space, point("a", n=3)))["updated"] == ["a"]
    shown = fine(client.get(f"{space}/features/a"))["properties"]
    assert shown["n"] == 3
    assert "kept" not in shown  # absent from the written feature, and so deleted


@pytest.mark.parametrize("member", ["id", "geometry", "properties"])
def test_a_feature_alone_needs_no_type(client: httpx.Client, member: str) -> None:
    space = new_space(client)
    bare = {member: {**point("a", n=1), "id": "a"}[member]}
    answer = client.post(f"{space}/features", json=bare)
    assert len(fine(answer)["inserted"]) == 1
    error(client.post(f"{space}/features", json={}), 400, "body.type")
    answer = client.post(f"{space}/features", json={"features": [{"id": "b"}]})
    assert fine(answer)["inserted"] == ["b"]


def versioned(id: str, version: int, **properties: Any) -> Feature:
    feature = point(id, **properties)
    feature["properties"][XYZ] = {"version": version}
    return feature


def test_a_merge_without_history_is_a_conflict_unless_it_changes_nothing(
    client: httpx.Client,
) -> None:
    space = new_space(client, versionsToKeep=1)
    put(client, space, point("a", n=1))
    put(client, space, point("a", n=2))
    told = error(merge(client, space, versioned("a", 1, n=3)), 409)
    assert told["head"]["properties"]["n"] == 2
    fine(merge(client, space, versioned("a", 1, n=2)))
    fine(merge(client, space, versioned("a", 1, n=3), cr="retain"))
    assert fine(client.get(f"{space}/features/a"))["properties"]["n"] == 2
    fine(merge(client, space, versioned("a", 1, n=3), cr="replace"))
    assert fine(client.get(f"{space}/features/a"))["properties"]["n"] == 3


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_conflict_detection_creates_missing_features(client: httpx.Client, method: str) -> None:
    space = new_space(client)
    answer = client.request(
        method,
        f"{space}/features",
        json=collection(versioned("new", 7, n=1)),
        params={"conflictDetection": "true"},
    )
    assert fine(answer)["inserted"] == ["new"]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_features_of_a_collection_need_no_type(client: httpx.Client, method: str) -> None:
    space = new_space(client)
    untyped = {name: value for name, value in point("a", n=1).items() if name != "type"}
    assert fine(client.request(method, f"{space}/features", json=collection(untyped)))
    assert fine(client.get(f"{space}/features/a"))["type"] == "Feature"
    error(
        client.request(method, f"{space}/features", json=collection({**untyped, "type": "Point"})),
        400,
    )


# ---- Reading ---------------------------------------------------------------------------------


def test_the_latitudes_of_a_box_come_in_any_order(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", 8.5, 50.1))
    box = {"west": 8, "east": 9, "north": 50, "south": 51}
    assert found(client.get(f"{space}/bbox", params=box)) == ["a"]


def test_a_radius_has_no_upper_bound_but_is_not_negative(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", 8.5, 50.1), point("far", 100.0, 10.0))
    at = {"lat": 50, "lon": 8}
    error(client.get(f"{space}/spatial", params={**at, "radius": -1}), 400, "radius")
    for radius, ids in ((1_500_000, ["a"]), (9_500_000, ["a", "far"]), (30_000_000, ["a", "far"])):
        assert found(client.get(f"{space}/spatial", params={**at, "radius": radius})) == ids
        body = {"type": "Point", "coordinates": [8, 50]}
        answer = client.post(f"{space}/spatial", params={"radius": radius}, json=body)
        assert found(answer) == ids


def test_a_selection_reaches_into_arrays(client: httpx.Client) -> None:
    space = new_space(client)
    test = {
        "a": "x",
        "b": ["b0", "b1"],
        "c": 1,
        "e": [{"v1": 0}, {"v1": 1, "v2": 2}],
        "n": [[7, 8]],
    }
    put(client, space, point("a", test=test))
    selection = "p.test.a,p.test.b.1,p.test.e.1.v2,p.test.n.0.1,p.test.b.9,p.test.e.1.none"
    shown = fine(client.get(f"{space}/features/a", params={"selection": selection}))
    assert shown["properties"] == {"test": {"a": "x", "b": ["b1"], "e": [{"v2": 2}], "n": [[8]]}}
    nothing = fine(client.get(f"{space}/features/a", params={"selection": "p.test.b.name"}))
    assert nothing["properties"] == {}


def test_flattened_keys_of_a_vector_tile_contain_their_path(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", 8.5, 50.1, name="Mill", size={"rooms": 3}))
    put(client, space, point("b", 8.5, 50.1, name="Plain"))
    view = new_space(client, extends={"spaceId": id_of(space)})
    for each in (space, view):
        answer = client.get(f"{each}/tile/web/1_1_0.mvtf")
        (layer,) = mapbox_vector_tile.decode(answer.content).values()
        shown = sorted((one["properties"] for one in layer["features"]), key=lambda one: one["id"])
        assert shown == [
            {"id": "a", "properties.name": "Mill", "properties.size.rooms": 3},
            {"id": "b", "properties.name": "Plain"},
        ]


@pytest.mark.parametrize("suffix", ["", ".mvt"])
def test_a_point_on_the_border_of_here_tiles_is_in_one_of_them(
    client: httpx.Client, suffix: str
) -> None:
    """West and south borders belong to a tile; at the end of the earth the others do, too."""
    space = new_space(client)
    edges = {"middle": (0, 0), "west": (-180, 45), "corner": (180, 90), "quarter": (90, 0)}
    put(client, space, *[point(id, *at) for id, at in edges.items()])
    line = {"type": "LineString", "coordinates": [[90, 10], [91, 10]]}
    put(client, space, {**point("line"), "geometry": line})

    def tiles(level: int, x: int, y: int) -> list[str]:
        answer = client.get(f"{space}/tile/here/{level}_{x}_{y}{suffix}")
        if not suffix:
            return found(answer)
        layers = mapbox_vector_tile.decode(answer.content).values()
        return sorted(one["properties"]["id"] for layer in layers for one in layer["features"])

    assert tiles(2, 0, 1) == ["west"]
    assert tiles(2, 1, 1) == []
    assert tiles(2, 2, 1) == ["middle"]
    assert "quarter" in tiles(2, 3, 1)
    assert tiles(2, 1, 0) == tiles(2, 2, 0) == []
    if not suffix:  # the pole is not on the map
        assert "corner" in tiles(2, 3, 1)


# ---- Spaces ----------------------------------------------------------------------------------


def test_shared_is_shown_when_it_is_true(client: httpx.Client) -> None:
    space = new_space(client)
    assert "shared" not in fine(client.get(space))
    listed = fine(client.get("/spaces", params={"owner": "*"}))
    assert all(one.get("shared") is not False for one in listed)
    assert fine(client.patch(space, json={"shared": True}))["shared"] is True
    assert "shared" not in fine(client.patch(space, json={"shared": False}))


def test_errors_have_the_members_that_xyzspaces_reads(client: httpx.Client) -> None:
    answer = client.get("/invalid")
    assert answer.status_code == 404
    assert answer.text.startswith('{"type":"error",')
    assert answer.json()["message"] == "The requested resource does not exist."
    assert answer.json()["errorMessage"].startswith("The requested resource does not exist.")
    missing = error(client.get(f"{new_space(client)}/features/none"), 404)
    assert missing["message"] == missing["errorMessage"] == "The requested resource does not exist."


PATHS = {
    "features?id=a": None,
    "features/a": None,
    "statistics": None,
    "count": None,
    "bbox?west=1&north=1&east=1&south=1": None,
    "tile/quadkey/0": None,
    "spatial?lat=0&lon=0&radius=1": None,
    "spatial": {"type": "Point", "coordinates": [0, 0]},
    "search?f.id=a": None,
    "iterate": None,
    "changesets": None,
    "changesets/1": None,
    "changesets/statistics": None,
    "tags": None,
    "tags/x": None,
    "branches": None,
    "branches/x": None,
    "history": None,
    "changes": None,
    "subscriptions": None,
    "features": collection(point("a")),
    "diff?from=1&to=2": None,
}


def test_an_inactive_space_answers_428_on_all_its_paths(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"))
    assert fine(client.patch(space, json={"active": False}))["active"] is False
    codes = {}
    for path, body in PATHS.items():
        method = "GET" if body is None else "POST"
        answer = client.request(method, f"{space}/{path}", json=body)
        codes[path] = answer.status_code
    for method, path, body in (
        ("PUT", "features", collection(point("b"))),
        ("PUT", "features/a", point("a")),
        ("PATCH", "features/a", {"properties": {}}),
        ("DELETE", "features/a", None),
        ("DELETE", "features?id=a", None),
        ("DELETE", "features?eraseContent=true", None),
        ("POST", "tags", {"id": "x"}),
        ("POST", "branches", {"id": "x"}),
        ("DELETE", "changesets?version<2", None),
        ("POST", "provenance", {"source": "https://example.org/roads"}),
        ("GET", "meta", None),
        ("GET", "deleted", None),
    ):
        codes[f"{method} {path}"] = client.request(method, f"{space}/{path}", json=body).status_code
    known = {path: code for path, code in codes.items() if code != 404}
    assert set(known.values()) == {428}, {p: c for p, c in known.items() if c != 428}
    assert len(known) > 20, codes
    assert fine(client.get(space))["active"] is False
    fine(client.patch(space, json={"active": True}))
    assert fine(client.get(f"{space}/features/a"))


def test_tags_come_newest_first(client: httpx.Client) -> None:
    space = new_space(client)
    for number, name in enumerate(("b", "a", "c")):
        put(client, space, point("x", n=number))
        fine(client.post(f"{space}/tags", json={"id": name}))
    assert [tag["id"] for tag in fine(client.get(f"{space}/tags"))] == ["c", "a", "b"]


@pytest.mark.parametrize("kind", ["extends", "group", "merge", "override"])
def test_views_know_when_their_content_changed(client: httpx.Client, kind: str) -> None:
    base = new_space(client)
    put(client, base, point("a"))
    view = view_of(client, kind, base)
    before = fine(client.get(base))["contentUpdatedAt"]
    shown = fine(client.get(f"{view}/statistics"))["contentUpdatedAt"]
    assert shown == {"value": before, "estimated": False}
    assert fine(client.get(view))["contentUpdatedAt"] == before
    put(client, base, point("b"))
    assert fine(client.get(f"{view}/statistics"))["contentUpdatedAt"]["value"] > before


def view_of(client: httpx.Client, kind: str, *spaces: str) -> str:
    ids = [id_of(space) for space in spaces]
    if kind == "extends":
        return new_space(client, extends={"spaceId": ids[0]})
    params = {"virtualspace": {kind: ids}}
    return new_space(client, storage={"id": "virtualspace", "params": params})


@pytest.mark.parametrize("kind", ["group", "merge", "override", "custom"])
def test_features_of_virtual_spaces_name_their_space(client: httpx.Client, kind: str) -> None:
    one, two = new_space(client), new_space(client)
    put(client, one, point("a", n=1))
    put(client, two, point("b", n=1))
    view = view_of(client, kind, one, two)
    shown = fine(client.get(f"{view}/search"))["features"]
    spaces = {each["id"]: each["properties"][XYZ]["space"] for each in shown}
    assert spaces == {"a": id_of(one), "b": id_of(two)}


def test_a_feature_of_several_spaces_names_the_last_or_none(client: httpx.Client) -> None:
    one, two = new_space(client), new_space(client)
    for space in (one, two):
        put(client, space, point("a"))
    for kind, name in (("override", id_of(two)), ("merge", None)):
        view = view_of(client, kind, one, two)
        (each,) = fine(client.get(f"{view}/search"))["features"]
        for shown in (each, fine(client.get(f"{view}/features/a"))):
            assert shown["properties"][XYZ].get("space") == name


# ---- Processors and listeners ----------------------------------------------------------------


@pytest.mark.parametrize("form", ["one", "list", "map"])
def test_processors_run_before_the_storage_with_their_parameters(
    client: httpx.Client, form: str
) -> None:
    id = f"marker-{form}"
    made = client.post("/connectors", json={"id": id, "className": "tag-filter", "properties": {}})
    assert made.status_code == 201, made.text
    params = {"add": ["marked"]}
    processors: Any = {
        "one": {"id": id, "params": params},
        "list": [{"id": id, "params": params}],
        "map": {id: [{"params": params, "order": 1, "eventTypes": ["ModifySpaceEvent.request"]}]},
    }[form]
    space = new_space(client, processors=processors)
    assert fine(client.get(space))["processors"] == processors
    put(client, space, point("a"))
    assert fine(client.get(f"{space}/features/a"))["properties"][XYZ]["tags"] == ["marked"]
    answer = client.delete(f"/connectors/{id}")
    assert answer.status_code == 409
    fine(client.patch(space, json={"processors": None}))
    put(client, space, point("b"))
    assert fine(client.get(f"{space}/features/b"))["properties"][XYZ]["tags"] == []


@pytest.mark.parametrize(
    ("handler", "params"),
    [
        ("storage", {}),
        ("storage", {"collection": {"id": "vault"}}),
        ("storage", {"storageId": "vault"}),
        ("tag-filter", {"spaceId": "vault"}),
        ("tag-filter", {"add": ["other"]}),
    ],
)
def test_processors_reach_nothing_that_their_connector_does_not(
    client: httpx.Client, handler: str, params: dict[str, Any]
) -> None:
    """The right to use a connector is not the right to change where it leads."""
    id = f"{handler}-{next(iter(params), 'none').lower()}"
    properties = {"add": ["own"]} if handler == "tag-filter" else {}
    body = {"id": id, "className": handler, "properties": properties}
    assert client.post("/connectors", json=body).status_code == 201
    processors = [{"id": id, "params": params}]
    told = error(client.post("/spaces", json={"title": "x", "processors": processors}), 400)
    assert told["field"] == "processors"


RULES = {
    "large": "$.features[?(@.properties.area>=500)]",
    "small": "$.features[?(@.properties.area<500)]",
}


def test_tagging_rules_of_a_client_tag_features(client: httpx.Client) -> None:
    space = new_space(client)
    processors = [{"id": "rule-tagger", "params": {"taggingRules": RULES}}]
    assert fine(client.patch(space, json={"processors": processors}))["processors"] == processors
    put(client, space, point("a", area=900), point("b", area=1))
    assert found(client.get(f"{space}/search?tags=large")) == ["a"]
    assert found(client.get(f"{space}/search?tags=small")) == ["b"]
    fine(client.patch(f"{space}/features/a", json={"properties": {"area": 2}}))
    assert found(client.get(f"{space}/search?tags=small")) == ["a", "b"]
    assert found(client.get(f"{space}/search?tags=large")) == []


@pytest.mark.parametrize("is_text", [True, False])
def test_a_schema_of_a_client_is_enforced(client: httpx.Client, is_text: bool) -> None:
    schema: Any = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "http://example.com/root.json",
        "required": ["geometry", "type", "properties"],
        "properties": {"properties": {"required": ["name"]}},
    }
    params = {"schema": json.dumps(schema) if is_text else schema}
    space = new_space(client, processors=[{"id": "schema-validator", "params": params}])
    put(client, space, point("a", name="A"))
    error(client.put(f"{space}/features", json=collection(point("b"))), 400)
    assert found(client.get(f"{space}/search")) == ["a"]


def test_unknown_processors_and_listeners_are_refused(client: httpx.Client) -> None:
    body = {"id": "listening", "title": "x"}
    for name, value in (
        ("processors", [{"id": "my-processor"}]),
        ("processors", "rule-tagger"),
        ("processors", [{"id": "rule-tagger"}]),
        ("processors", [{"id": "rule-tagger", "params": {"taggingRules": {"a": "no path"}}}]),
        ("processors", [{"id": "rule-tagger", "params": {"taggingRules": {}, "mode": "async"}}]),
        ("processors", [{"id": "schema-validator", "params": {}}]),
        ("processors", [{"id": "schema-validator", "params": {"schema": "{"}}]),
        ("processors", [{"id": "schema-validator", "params": {"schema": "http://127.0.0.1/x"}}]),
        ("listeners", {"id": "activity-log", "params": {}}),
        ("listeners", {"my-listener": [{"eventTypes": ["ModifyFeaturesEvent.response"]}]}),
    ):
        told = error(client.post("/spaces", json={**body, name: value}), 400)
        assert told["field"].startswith(name)
    assert client.post("/spaces", json={**body, "listeners": {}, "processors": []}).is_success


# ---- Extending spaces ------------------------------------------------------------------------


def test_an_extending_space_has_changesets_tags_and_versions_of_its_own(
    client: httpx.Client,
) -> None:
    base = new_space(client)
    put(client, base, point("a", n=1), point("base", n=1))
    space = view_of(client, "extends", base)
    first = put(client, space, point("a", n=2))["version"]
    fine(client.post(f"{space}/tags", json={"id": "release"}))
    second = put(client, space, point("a", n=3))["version"]
    sets = fine(client.get(f"{space}/changesets", params={"startVersion": 0}))["versions"]
    assert [int(version) for version in sets] == [first, second]
    assert [tag["id"] for tag in fine(client.get(f"{space}/tags"))] == ["release"]
    for ref in ("release", str(first)):
        shown = fine(client.get(f"{space}/search", params={"versionRef": ref}))["features"]
        assert {one["id"]: one["properties"]["n"] for one in shown} == {"a": 2, "base": 1}
    every = fine(client.get(f"{space}/features/a", params={"version": "*"}))["features"]
    assert [one["properties"]["n"] for one in every] == [2, 3]
    error(client.get(f"{space}/search", params={"versionRef": "nothing"}), 404)

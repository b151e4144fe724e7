"""Incomplete requests: refused or executed in full, but never in part."""

from typing import Any

import httpx
import pytest

from tests.server.towns import collection, error, found, id_of, new_space, point, put


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 204), answer.text
    return answer.json() if answer.content else None


@pytest.fixture
def space(client: httpx.Client) -> str:
    space = new_space(client)
    put(client, space, point("a", n=1, tags=["x"]), point("b", n=1))
    return space


def ids(client: httpx.Client, space: str, **query: Any) -> list[str]:
    return found(client.get(f"{space}/search", params=query))


# ---- version, the older name of versionRef -------------------------------------------------------


@pytest.mark.parametrize("name", ["version", "versionRef"])
def test_writes_go_to_the_branch_of_either_name(
    client: httpx.Client, space: str, name: str
) -> None:
    fine(client.post(f"{space}/branches", json={"id": "br"}))
    on_branch = {name: "br:HEAD"}
    fine(client.delete(f"{space}/features", params={"id": "a", **on_branch}))
    fine(client.delete(f"{space}/features/b", params=on_branch))
    fine(client.put(f"{space}/features/q", json=point("q"), params=on_branch))
    fine(client.patch(f"{space}/features/q", json={"properties": {"n": 2}}, params=on_branch))
    fine(client.put(f"{space}/features", json=collection(point("r")), params=on_branch))
    fine(client.post(f"{space}/features", json=collection(point("s")), params=on_branch))
    purged = fine(client.delete(f"{space}/deleted", params={"id": "a", **on_branch}))
    assert purged["purged"] + purged["retained"] == ["a"]
    assert ids(client, space) == ["a", "b"]
    assert ids(client, space, **on_branch) == ["q", "r", "s"]
    both = {"version": "main", "versionRef": "br:HEAD"}
    error(client.delete(f"{space}/features/q", params=both), 400, "version")


def test_reads_of_changes_take_either_name(client: httpx.Client, space: str) -> None:
    last = put(client, space, point("a", n=2))["version"]
    put(client, space, point("b", n=2))
    span = f"{last - 1}..{last}"
    for path in ("diff", "changesets", "history", "changesets?squashed=true"):
        old, new = (
            client.get(f"{space}/{path}", params={**_query(path), name: span})
            for name in ("version", "versionRef")
        )
        assert old.status_code == 200, old.text
        assert old.json() == new.json()
        everything = client.get(f"{space}/{path}", params=_query(path)).json()
        assert old.json() != everything
    history = client.get(f"{space}/features/a/history", params={"version": span}).json()
    assert len(history["steps"]) == 1
    fine(client.post(f"{space}/branches", json={"id": "br"}))
    put(client, space, point("c"), version="br:HEAD")
    for path in ("changesets/statistics", "history/statistics"):
        old, new = (
            client.get(f"{space}/{path}", params={name: "br:HEAD"}).json()
            for name in ("version", "versionRef")
        )
        assert old == new != client.get(f"{space}/{path}").json()


def _query(path: str) -> dict[str, str]:
    return {"squashed": "true"} if "squashed" in path else {}


# ---- Which features are deleted ------------------------------------------------------------------


def test_ids_and_tags_must_both_hold(client: httpx.Client, space: str) -> None:
    path = f"{space}/features"
    accepted = {"Accept": "application/json"}
    told = client.delete(path, params={"id": "b", "tags": "x"}, headers=accepted)
    assert "deleted" not in fine(told)
    assert ids(client, space) == ["a", "b"]
    told = client.delete(path, params={"id": "*", "tags": "none"}, headers=accepted)
    assert ids(client, space) == ["a", "b"]
    told = client.delete(path, params={"id": "a,b", "tags": "x"}, headers=accepted)
    assert fine(told)["deleted"] == ["a"]
    fine(client.delete(path, params={"id": "b", "tags": "*"}))
    assert ids(client, space) == []


def test_ids_and_tags_of_a_view_must_both_hold(client: httpx.Client, space: str) -> None:
    view = new_space(client, extends={"spaceId": id_of(space)})
    fine(client.delete(f"{view}/features", params={"id": "b", "tags": "x"}))
    assert ids(client, view) == ["a", "b"]
    fine(client.delete(f"{view}/features", params={"id": "a,b", "tags": "x"}))
    assert ids(client, view) == ["b"]


@pytest.mark.parametrize("more", [{"id": "a"}, {"tags": "x"}, {"id": "*"}])
def test_everything_is_not_some_features(
    client: httpx.Client, space: str, more: dict[str, str]
) -> None:
    query = {"eraseContent": "true", **more}
    error(client.delete(f"{space}/features", params=query), 400, "eraseContent")
    assert ids(client, space) == ["a", "b"]


# ---- dryRun without a value ----------------------------------------------------------------------


@pytest.mark.parametrize("query", ["dryRun", "dryRun="])
def test_a_dry_run_needs_no_value(client: httpx.Client, space: str, query: str) -> None:
    error(client.delete(f"{space}/features?id=a&{query}"), 400, "dryRun")
    assert client.delete(f"{space}?{query}").status_code == 204
    assert fine(client.post(f"/spaces?{query}", json={"id": "dry"}))["id"] == "dry"
    error(client.get("/spaces/dry"), 404)
    version = put(client, space, point("a", n=2))["version"]
    body = {"versionRef": str(version - 1)}
    fine(client.post(f"{space}/rollback?{query}", json=body))
    fine(client.post(f"{space}/revert?{query}", json={"version": version}))
    assert fine(client.get(f"{space}/features/a"))["properties"]["n"] == 2
    fine(client.post("/connectors", json={"id": f"dry-{len(query)}", "className": "tag-filter"}))
    error(client.delete(f"/connectors/dry-{len(query)}?{query}"), 400, "dryRun")
    error(client.post(f"/storages/default/snapshots?{query}", json={"id": "dry"}), 400, "dryRun")
    assert ids(client, space) == ["a", "b"]


# ---- Bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "{space}/copy", {"targetSpaceId": "{target}", "dryRun": True}, "dryRun"),
        ("POST", "{space}/tags", {"id": "t", "dryRun": True}, "dryRun"),
        ("POST", "{space}/tags", {"id": "t", "versionref": "2"}, "versionref"),
        ("PATCH", "{space}/tags/kept", {"dryRun": True}, "dryRun"),
        ("POST", "{space}/branches", {"id": "new", "baseref": "2"}, "baseref"),
        ("PATCH", "{space}/branches/old", {"id": "new", "dryRun": True}, "dryRun"),
        ("POST", "/storages/default/snapshots", {"id": "s", "versionRef": "1"}, "versionRef"),
        ("POST", "{space}/spatial/batch", {"refSpaceId": "{target}", "tags": "x"}, "tags"),
        ("POST", "/subscriptions/sub-{target}/reset", {"since": "now", "dryRun": True}, "dryRun"),
        ("POST", "/subscriptions/sub-{target}/move", {"instance": "x", "dryRun": True}, "dryRun"),
    ],
)
def test_unknown_members_of_our_own_bodies_are_refused(
    client: httpx.Client, space: str, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    target = id_of(new_space(client))
    fine(client.post(f"{space}/tags", json={"id": "kept"}))
    fine(client.post(f"{space}/branches", json={"id": "old"}))
    client.post("/connectors", json={"id": "anywhere", "className": "tag-filter"})
    subscription = {"id": f"sub-{target}", "destination": "anywhere"}
    fine(client.post(f"/spaces/{target}/subscriptions", json=subscription))
    filled = {"{space}": space, "{target}": target}
    for name, value in filled.items():
        path = path.replace(name, value)
    sent = {key: filled.get(value, value) for key, value in body.items()}
    error(client.request(method, path, json=sent), 400, field)
    assert ids(client, f"/spaces/{target}") == []
    assert [tag["id"] for tag in fine(client.get(f"{space}/tags"))] == ["kept"]
    assert [one["id"] for one in fine(client.get(f"{space}/branches"))] == ["old"]
    assert not {"s", "t"} & {one["id"] for one in fine(client.get("/storages/default/snapshots"))}


def test_a_tag_and_a_branch_are_sent_back_as_they_were_read(
    client: httpx.Client, space: str
) -> None:
    tag = fine(client.post(f"{space}/tags", json={"id": "t"}))
    put(client, space, point("c"))
    moved = fine(client.patch(f"{space}/tags/t", json={**tag, "description": "d"}))
    assert moved == {**tag, "description": "d", "createdAt": moved["createdAt"]}
    branch = fine(client.post(f"{space}/branches", json={"id": "br"}))
    same = {name: value for name, value in branch.items() if name != "baseRef"}
    told = fine(client.patch(f"{space}/branches/br", json={**same, "description": "d"}))
    assert told == {**branch, "description": "d"}
    fine(client.post(f"{space}/tags", json={**tag, "id": "t2"}))
    fine(client.post(f"{space}/branches", json={**same, "id": "br2"}))


# ---- Empty values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[("POST", f"{{space}}/rollback?{one}") for one in ("author=", "tags=", "id=", "tags=,+")],
        ("POST", "{space}/rollback?author=%2C"),
        ("POST", "{space}/rollback?tags"),
        ("GET", "{space}/search?tags="),
        ("GET", "{space}/search?author="),
        ("GET", "{space}/changes?since=0&action="),
        ("GET", "{space}/features/a?author="),
        ("DELETE", "{space}/features?id=a&tags="),
        ("DELETE", "{space}/features?id=&tags=x"),
        ("GET", "/connectors?id="),
        ("GET", "/spaces?tag="),
        ("GET", "/spaces?owner="),
        ("GET", "/jobs?state="),
        ("GET", "/storages/default/changes?since=0&collection="),
        ("GET", "/states/x?storage="),
    ],
)
def test_an_empty_filter_is_refused(
    client: httpx.Client, space: str, method: str, path: str
) -> None:
    version = put(client, space, point("a", n=2, tags=["x"]))["version"]
    body = {"versionRef": str(version - 1)} if method == "POST" else None
    told = error(client.request(method, path.format(space=space), json=body), 400)
    assert told["field"].partition(".")[0] in path, told
    assert fine(client.get(f"{space}/features/a"))["properties"]["n"] == 2

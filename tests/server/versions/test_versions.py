"""Versions over REST: log, tags, branches and merges, differences, and rollback."""

import itertools
import time
from typing import Any

import httpx
import pytest

NAMES = itertools.count(1)


@pytest.fixture
def space(client: httpx.Client) -> str:
    """The path of a new space."""
    id = f"Versions.{next(NAMES)}"
    assert client.post("/spaces", json={"id": id, "title": "A town"}).status_code == 200
    return f"/spaces/{id}"


def feature(id: str, **properties: Any) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [8.5, 50.25]}
    return {"type": "Feature", "id": id, "geometry": point, "properties": properties}


def put(client: httpx.Client, space: str, *features: dict[str, Any], **params: Any) -> int:
    """Write features; gives the version."""
    body = {"type": "FeatureCollection", "features": list(features)}
    answer = client.put(f"{space}/features", json=body, params=params)
    assert answer.status_code == 200, answer.text
    version: int = answer.json()["version"]
    return version


def properties_at(client: httpx.Client, space: str, ref: str = "") -> dict[str, dict[str, Any]]:
    """The features of a version: by id, their properties without the namespace."""
    params = {"versionRef": ref} if ref else {}
    answer = client.get(f"{space}/search", params=params)
    assert answer.status_code == 200, answer.text
    return {
        found["id"]: {k: v for k, v in found["properties"].items() if not k.startswith("@")}
        for found in answer.json()["features"]
    }


def ids(collection: dict[str, Any]) -> list[str]:
    return [found["id"] for found in collection["features"]]


def test_the_log_has_the_changes_of_each_version(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1), feature("b", n=1))
    second = put(client, space, feature("a", n=2), feature("c", n=1))
    client.delete(f"{space}/features/b")
    answer = client.get(f"{space}/changesets")
    assert answer.headers["content-type"] == "application/vnd.here.changeset-collection"
    log = answer.json()
    assert log["type"] == "ChangesetCollection"
    versions = [int(version) for version in log["versions"]]
    assert versions[-3:-1] == [first, second]
    made, changed = log["versions"][str(first)], log["versions"][str(second)]
    assert sorted(ids(made["inserted"])) == ["a", "b"]
    assert (ids(changed["inserted"]), ids(changed["updated"])) == (["c"], ["a"])
    assert ids(log["versions"][str(versions[-1])]["deleted"]) == ["b"]
    assert "nextPageToken" not in log


def test_one_version_of_the_log(client: httpx.Client, space: str) -> None:
    version = put(client, space, feature("a", n=1))
    answer = client.get(f"{space}/changesets/{version}")
    assert answer.headers["content-type"] == "application/vnd.here.changeset"
    assert answer.json()["version"] == version
    assert ids(answer.json()["inserted"]) == ["a"]
    assert client.get(f"{space}/changesets/{version + 1}").status_code == 404
    assert client.get(f"{space}/changesets/0").status_code == 400


def test_the_log_comes_in_pages(client: httpx.Client, space: str) -> None:
    written = [put(client, space, feature("a", n=n)) for n in range(5)]
    seen: list[int] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = client.get(f"{space}/changesets", params=params).json()
        seen += [int(version) for version in page["versions"]]
        if "nextPageToken" not in page:
            break
        params["pageToken"] = page["nextPageToken"]
    assert seen == written
    one = client.get(f"{space}/changesets", params={"limit": 1}).json()
    assert [*one["versions"]] == [str(written[0])]


def test_the_log_of_a_range_an_author_and_an_operation(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1))
    last = put(client, space, feature("a", n=2), feature("b", n=2))
    by_range = client.get(f"{space}/changesets", params={"versionRef": f"{first}..{last}"}).json()
    assert [*by_range["versions"]] == [str(last)]
    older = client.get(f"{space}/changesets", params={"startVersion": last}).json()
    assert older["versions"] == by_range["versions"]
    none = client.get(f"{space}/changesets", params={"author": "nobody"}).json()
    assert none["versions"] == {}
    only = client.get(f"{space}/changesets/{last}", params={"operation": "U"}).json()
    assert (ids(only["updated"]), ids(only["inserted"])) == (["a"], [])


def test_the_log_of_a_time(client: httpx.Client, space: str) -> None:
    """After its start, until and with its end."""
    first = put(client, space, feature("a", n=1))
    time.sleep(0.01)
    last = put(client, space, feature("a", n=2))
    times = [
        client.get(f"{space}/changesets/{version}").json()["createdAt"] for version in (first, last)
    ]

    def versions(**params: int) -> list[int]:
        found = client.get(f"{space}/changesets", params=params)
        assert found.status_code == 200, found.text
        return [int(version) for version in found.json()["versions"]]

    assert versions(startTime=times[0]) == [last]
    assert versions(endTime=times[0]) == [first]
    assert versions(startTime=times[0] - 1, endTime=times[1]) == [first, last]
    assert versions(startTime=times[0], endTime=times[1] - 1) == []


def test_squashed_changesets_and_the_compact_history(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1), feature("b", n=1))
    put(client, space, feature("a", n=2), feature("c", n=1))
    last = put(client, space, feature("a", n=3))
    client.delete(f"{space}/features/b")
    params: dict[str, Any] = {"versionRef": f"{first}..HEAD", "squashed": True}
    found = client.get(f"{space}/changesets", params=params).json()
    assert (ids(found["inserted"]), ids(found["updated"]), ids(found["deleted"])) == (
        ["c"],
        ["a"],
        ["b"],
    )
    assert found["updated"]["features"][0]["properties"]["n"] == 3
    some = client.get(f"{space}/changesets", params={**params, "operation": ["I", "D"]}).json()
    assert (ids(some["inserted"]), ids(some["updated"]), ids(some["deleted"])) == (["c"], [], ["b"])
    for name, value, is_found in (
        ("author", "anonymous", True),
        ("author", "nobody", False),
        ("startTime", 1, True),
        ("endTime", 1, False),
    ):
        some = client.get(f"{space}/changesets", params={**params, name: value}).json()
        assert ids(some["updated"]) == (["a"] if is_found else [])
    compact = client.get(
        f"{space}/history",
        params={"startVersion": first + 1, "endVersion": last},
        headers={"Accept": "application/vnd.here.compact-changeset"},
    ).json()
    assert compact["type"] == "CompactChangeset"
    assert ids(compact["deleted"]) == []


def test_versions_that_were_given_up_cannot_be_read(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1))
    last = put(client, space, feature("a", n=2))
    assert client.delete(f"{space}/changesets?version<{last}").status_code == 204
    assert client.get(f"{space}/search", params={"versionRef": first}).status_code == 410
    assert properties_at(client, space, str(last)) == {"a": {"n": 2}}
    span = client.get(f"{space}/changesets/statistics").json()
    assert (span["minVersion"], span["maxVersion"]) == (last, last)
    assert [*client.get(f"{space}/changesets").json()["versions"]] == [str(last)]
    every = client.get(f"{space}/features/a", params={"version": "*"}).json()
    assert [one["properties"]["n"] for one in every["features"]] == [2]
    for wrong in ("", "?version>3", "?version=7", "?version<0", "?version<1&version<2"):
        assert client.delete(f"{space}/changesets{wrong}").status_code == 400


def test_a_tag_names_a_version(client: httpx.Client, space: str) -> None:
    version = put(client, space, feature("a", n=1))
    made = client.post(f"{space}/tags", json={"id": "summer", "description": "before the fair"})
    assert made.status_code == 200, made.text
    assert made.json() | {"createdAt": 0} == {
        "id": "summer",
        "spaceId": space.rpartition("/")[2],
        "branchId": "main",
        "version": version,
        "versionRef": str(version),
        "system": False,
        "description": "before the fair",
        "author": "anonymous",
        "createdAt": 0,
    }
    later = put(client, space, feature("a", n=2))
    assert properties_at(client, space, "summer") == {"a": {"n": 1}}
    assert client.post(f"{space}/tags", json={"id": "summer"}).status_code == 409
    moved = client.patch(f"{space}/tags/summer", json={"version": later}).json()
    assert (moved["version"], moved["description"]) == (later, "before the fair")
    assert [tag["id"] for tag in client.get(f"{space}/tags").json()] == ["summer"]
    assert client.delete(f"{space}/tags/summer").json()["id"] == "summer"
    assert client.get(f"{space}/tags/summer").status_code == 404


def test_tags_of_programs_are_listed_on_request(client: httpx.Client, space: str) -> None:
    version = put(client, space, feature("a", n=1))
    client.post(f"{space}/tags", json={"id": "mine"})
    made = client.post(f"{space}/tags", json={"id": "job-7", "system": True})
    assert made.json()["system"] is True

    def listed(**params: bool) -> list[str]:
        return [tag["id"] for tag in client.get(f"{space}/tags", params=params).json()]

    assert listed() == listed(includeSystemTags=False) == ["mine"]
    assert listed(includeSystemTags=True) == ["job-7", "mine"]
    later = put(client, space, feature("a", n=2))
    moved = client.patch(f"{space}/tags/job-7", json={"version": later}).json()
    assert (moved["version"], moved["system"]) == (later, True)
    assert version < later
    assert client.get(f"{space}/tags/job-7").json() == moved


@pytest.mark.parametrize("name", ["main", "HEAD", "*", "7up", "a b", "a:b", ""])
def test_names_that_no_version_can_have(client: httpx.Client, space: str, name: str) -> None:
    assert client.post(f"{space}/tags", json={"id": name}).status_code == 400
    assert client.post(f"{space}/branches", json={"id": name}).status_code == 400


def test_tags_of_two_spaces_are_not_the_same(client: httpx.Client, space: str) -> None:
    client.post("/spaces", json={"id": "Elsewhere", "title": "Elsewhere"})
    put(client, space, feature("a"))
    client.post(f"{space}/tags", json={"id": "mine"})
    assert client.get("/spaces/Elsewhere/tags").json() == []
    assert client.get("/spaces/Elsewhere/tags/mine").status_code == 404


def test_a_branch_is_written_and_merged(client: httpx.Client, space: str) -> None:
    base = put(client, space, feature("a", n=1), feature("b", n=1))
    made = client.post(f"{space}/branches", json={"id": "fix", "description": "a new road"})
    assert made.status_code == 200, made.text
    assert made.json()["baseRef"] == f"main:{base}"
    put(client, space, feature("a", n=2), versionRef="fix")
    put(client, space, feature("c", n=1))
    assert properties_at(client, space) == {"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 1}}
    assert properties_at(client, space, "fix") == {"a": {"n": 2}, "b": {"n": 1}}
    span = client.get(f"{space}/changesets/statistics", params={"versionRef": "fix"}).json()
    head = span["maxVersion"]
    assert head > base
    one = client.get(f"{space}/changesets/{head}", params={"versionRef": "fix"}).json()
    assert (one["version"], ids(one["updated"])) == (head, ["a"])
    assert client.get(f"{space}/changesets/{head}").status_code == 404
    up_to = client.get(f"{space}/changesets", params={"versionRef": f"fix:{head}"}).json()
    for ref in ("fix", "fix:HEAD", "fix:*"):
        log = client.get(f"{space}/changesets", params={"versionRef": ref}).json()
        assert [*log["versions"]] == [str(head)]
        assert log == up_to
        made = client.get(f"{space}/diff", params={"versionRef": ref}).json()
        assert [change["id"] for change in made["changes"]] == ["a", "b"]
        steps = client.get(f"{space}/features/a/history", params={"versionRef": ref}).json()
        assert [step["feature"]["properties"]["n"] for step in steps["steps"]] == [1, 2]
    operation = {"type": "Merge", "targetBranchId": "main", "message": "it is built"}
    merged = client.post(f"{space}/branches/fix", json=operation)
    assert merged.status_code == 200, merged.text
    assert merged.json()["updated"] == ["a"]
    assert properties_at(client, space) == {"a": {"n": 2}, "b": {"n": 1}, "c": {"n": 1}}
    assert client.get(f"{space}/branches/fix").json()["merges"]
    assert client.delete(f"{space}/branches/fix").status_code == 204
    assert client.get(f"{space}/branches").json() == []


def test_a_conflict_waits_for_a_decision(client: httpx.Client, space: str) -> None:
    put(client, space, feature("a", n=1))
    client.post(f"{space}/branches", json={"id": "fix"})
    put(client, space, feature("a", n=2), versionRef="fix")
    put(client, space, feature("a", n=3))
    operation = {"type": "Merge", "targetBranchId": "main"}
    tried = client.post(f"{space}/branches/fix", json={**operation, "dryRun": True}).json()
    assert [one["id"] for one in tried["conflicts"]] == ["a"]
    assert client.get(f"{space}/branches/fix").json()["state"] == "OPEN"
    refused = client.post(f"{space}/branches/fix", json=operation)
    assert (refused.status_code, refused.json()["code"]) == (409, "merge_conflict")
    assert client.get(f"{space}/branches/fix").json()["state"] == "IN_CONFLICT"
    (conflict,) = client.get(f"{space}/branches/fix/conflicts").json()
    assert conflict["features"][0]["paths"] == ["/properties/n"]
    decision = {"type": "Resolve", "conflictId": conflict["id"], "choices": {"a": "theirs"}}
    done = client.post(f"{space}/branches/fix", json=decision)
    assert done.status_code == 200, done.text
    assert properties_at(client, space) == {"a": {"n": 2}}
    assert client.get(f"{space}/branches/fix").json()["state"] == "OPEN"


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        ("rollback", {"versionRef": "1", "dryrun": True}, "dryrun", "dryrun: unknown member"),
        ("revert", {"version": 1, "dryRn": True}, "dryRn", "dryRn: unknown member"),
        ("rollback", {}, "versionRef", "versionRef: required but missing"),
        ("tags", [], "body", "body: must be a JSON object"),
        ("branches/fix", {"type": "Merge", "to": "x"}, "Merge.to", "Merge.to: unknown member"),
        ("branches/fix", {"type": "Mrge"}, "type", "type: 'Mrge' is not one of 'Merge', 'Resolve'"),
        ("branches/fix", {}, "type", "type: required but missing"),
        (
            "branches/fix",
            {"type": "Resolve", "conflictId": "x", "choices": {"a": "mine"}},
            "Resolve.choices.a",
            "Resolve.choices.a: must be ours, theirs, or the resolved feature",
        ),
    ],
)
def test_an_order_that_is_misspelt_is_not_carried_out(
    client: httpx.Client, space: str, path: str, body: Any, field: str, words: str
) -> None:
    first = put(client, space, feature("a", n=1))
    last = put(client, space, feature("a", n=2))
    client.post(f"{space}/branches", json={"id": "fix", "baseRef": str(first)})
    answer = client.post(f"{space}/{path}", json=body)
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["field"] == field
    assert told["errorMessage"].startswith(words)
    assert client.get(f"{space}/changesets/statistics").json()["maxVersion"] == last


def test_a_branch_is_rebased_and_renamed(client: httpx.Client, space: str) -> None:
    put(client, space, feature("a", n=1))
    client.post(f"{space}/branches", json={"id": "fix"})
    put(client, space, feature("b", n=1), versionRef="fix")
    put(client, space, feature("a", n=2))
    change = {"baseRef": "main:HEAD", "id": "mended"}
    moved = client.patch(f"{space}/branches/fix", json=change)
    assert moved.status_code == 200, moved.text
    assert properties_at(client, space, "mended") == {"a": {"n": 2}, "b": {"n": 1}}
    assert client.get(f"{space}/branches/fix").status_code == 404


def test_a_branch_description_can_be_changed(client: httpx.Client, space: str) -> None:
    put(client, space, feature("a", n=1))
    client.post(f"{space}/branches", json={"id": "fix", "description": "first"})
    put(client, space, feature("a", n=2), versionRef="fix")
    changed = client.patch(f"{space}/branches/fix", json={"description": "second"})
    assert changed.status_code == 200, changed.text
    assert changed.json()["description"] == "second"
    renamed = client.patch(f"{space}/branches/fix", json={"id": "mended", "description": "third"})
    assert (renamed.json()["id"], renamed.json()["description"]) == ("mended", "third")
    assert client.get(f"{space}/branches/mended").json() == renamed.json()
    assert properties_at(client, space, "mended") == {"a": {"n": 2}}
    assert client.patch(f"{space}/branches/none", json={"description": "x"}).status_code == 404
    long = client.patch(f"{space}/branches/mended", json={"description": "x" * 1000})
    assert (long.status_code, long.json()["field"]) == (400, "description")


def test_a_difference_names_the_places(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1), feature("b", n=1))
    last = put(client, space, feature("a", n=2), feature("c", n=1))
    found = client.get(f"{space}/diff", params={"versionRef": f"{first}..{last}"}).json()
    assert (found["startVersion"], found["endVersion"]) == (first, last)
    assert {change["id"]: (change["action"], change["paths"]) for change in found["changes"]} == {
        "a": ("updated", ["/properties/n"]),
        "c": ("created", ["/geometry", "/id", "/properties", "/type"]),
    }
    changed = next(change for change in found["changes"] if change["id"] == "a")
    assert changed["old"]["properties"]["n"] == 1
    client.post(f"{space}/branches", json={"id": "fix", "baseRef": str(first)})
    params = {"versionRef": "fix", "other": "main:HEAD"}
    across = client.get(f"{space}/diff", params=params).json()
    assert [change["id"] for change in across["changes"]] == ["a", "c"]


def test_the_history_of_a_feature(client: httpx.Client, space: str) -> None:
    put(client, space, feature("a", n=1))
    put(client, space, feature("a", n=2), feature("b", n=1))
    client.delete(f"{space}/features/a")
    steps = client.get(f"{space}/features/a/history").json()["steps"]
    assert [step["action"] for step in steps] == ["CREATE", "UPDATE", "DELETE"]
    assert steps[1]["patch"] == [{"op": "replace", "path": "/properties/n", "value": 2}]
    assert steps[1]["appId"] == "anonymous"


def test_going_back(client: httpx.Client, space: str) -> None:
    first = put(client, space, feature("a", n=1), feature("b", n=1))
    second = put(client, space, feature("a", n=2), feature("c", n=1))
    put(client, space, feature("d", n=1))
    body = {"versionRef": str(first), "dryRun": True}
    tried = client.post(f"{space}/rollback", json=body).json()
    assert (tried["updated"], sorted(tried["deleted"])) == (["a"], ["c", "d"])
    assert len(properties_at(client, space)) == 4
    reverted = client.post(f"{space}/revert", json={"version": second, "message": "no"}).json()
    assert (reverted["updated"], reverted["deleted"]) == (["a"], ["c"])
    assert properties_at(client, space) == {"a": {"n": 1}, "b": {"n": 1}, "d": {"n": 1}}
    only = {"versionRef": str(first), "ids": ["d"], "message": "only this one"}
    assert client.post(f"{space}/rollback", json=only).json()["deleted"] == ["d"]
    assert properties_at(client, space, str(second)) == {
        "a": {"n": 2},
        "b": {"n": 1},
        "c": {"n": 1},
    }
    log = client.get(f"{space}/changesets").json()["versions"]
    assert [*log.values()][-1]["message"] == "only this one"


@pytest.mark.parametrize("ref", ["3..", "HEAD..3", "a b", "x:y:z", "1' OR '1'='1", "9" * 30])
def test_invalid_versions(client: httpx.Client, space: str, ref: str) -> None:
    put(client, space, feature("a"))
    for path in ("diff", "changesets", "search"):
        answer = client.get(f"{space}/{path}", params={"versionRef": ref})
        assert answer.status_code in (400, 404), answer.text
        assert answer.json()["type"] == "ErrorResponse"

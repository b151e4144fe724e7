"""Conflicts over REST: the branch `!<id>`, its marks, and how it ends."""

from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, error, found, new_space
from tests.server.versions.test_versions import feature, properties_at, put

MERGE = {"type": "Merge", "targetBranchId": "main"}


@pytest.fixture
def space(client: httpx.Client) -> str:
    """A space whose branch `fix` is in conflict with main about `a`, `dead` and `gone`."""
    space = new_space(client)
    put(client, space, *[feature(id, n=1, m=1) for id in ("a", "dead", "gone", "fine")])
    client.post(f"{space}/branches", json={"id": "fix"})
    put(client, space, *[feature(id, n=2, m=2) for id in ("a", "dead", "fine")], versionRef="fix")
    client.delete(f"{space}/features/gone", params={"versionRef": "fix"})
    put(client, space, feature("a", n=3, m=1), feature("gone", n=3, m=1), feature("new", n=3))
    client.delete(f"{space}/features/dead")
    told = error(client.post(f"{space}/branches/fix", json=MERGE), 409)
    assert "'!fix'" in told["errorMessage"]
    return space


def marked(client: httpx.Client, space: str) -> list[str]:
    params = {f"p.{XYZ}.conflicting": "true", "versionRef": "!fix"}
    return found(client.get(f"{space}/search", params=params))


def test_a_conflict_is_a_branch_with_the_merge_in_it(client: httpx.Client, space: str) -> None:
    branches = {branch["id"]: branch for branch in client.get(f"{space}/branches").json()}
    assert [*branches] == ["!fix", "fix"]
    fix, solving = branches["fix"], branches["!fix"]
    assert (fix["state"], fix["conflictSolvingBranch"]) == ("IN_CONFLICT", "!fix")
    assert (solving["state"], "conflictSolvingBranch" in solving) == ("OPEN", False)
    assert solving["baseRef"].startswith("main:")
    assert properties_at(client, space, "!fix:HEAD") == {
        "a": {"n": 2, "m": 2},
        "dead": {"n": 2, "m": 2},
        "gone": {"n": 3, "m": 1},
        "fine": {"n": 2, "m": 2},
        "new": {"n": 3},
    }
    box = {"west": 8, "south": 50, "east": 9, "north": 51}
    for read in ("search", "iterate", "bbox"):
        area = box if read == "bbox" else {}
        answer = client.get(f"{space}/{read}", params={"versionRef": "!fix", **area})
        shown = {one["id"]: one for one in answer.json()["features"]}
        marks = [id for id, one in shown.items() if "conflicting" in one["properties"][XYZ]]
        assert sorted(marks) == ["a", "dead", "gone"]
        assert shown["a"]["properties"][XYZ]["conflicting"] is True
        assert [*shown["a"]] == [*shown["fine"]]
    one = client.get(f"{space}/features/a", params={"versionRef": "!fix"}).json()
    assert one["properties"][XYZ]["conflicting"] is True
    assert marked(client, space) == ["a", "dead", "gone"]
    with_namespace = {"versionRef": "!fix", "selection": "*"}
    tile = client.get(f"{space}/tile/web/0_0_0.mvt", params=with_namespace)
    assert (tile.status_code, b"conflicting" in tile.content) == (200, True)
    assert b"@ns:naksha" not in tile.content


def test_a_branch_in_conflict_is_read_only(client: httpx.Client, space: str) -> None:
    before = properties_at(client, space, "fix")
    on_fix = {"versionRef": "fix"}
    body: dict[str, Any] = {"type": "FeatureCollection", "features": [feature("x", n=9)]}
    refused = [
        client.put(f"{space}/features", json=body, params=on_fix),
        client.post(f"{space}/features", json=body, params={"versionRef": "fix:HEAD"}),
        client.delete(f"{space}/features/fine", params=on_fix),
        client.delete(f"{space}/features", params={"versionRef": "fix", "eraseContent": True}),
        client.post(f"{space}/rollback", json={"versionRef": "1", "branch": "fix"}),
        client.post(f"{space}/branches/fix", json=MERGE),
        client.patch(f"{space}/branches/fix", json={"baseRef": "main:HEAD"}),
        client.patch(f"{space}/branches/fix", json={"id": "mended"}),
    ]
    for answer in refused:
        assert "'fix' is in conflict" in error(answer, 409)["errorMessage"]
    assert properties_at(client, space, "fix") == before
    put(client, space, feature("x", n=9))


OTHER_ORDERS: list[tuple[str, str, dict[str, str]]] = [
    ("PATCH", "branches/!fix", {"baseRef": "main:HEAD"}),
    ("PATCH", "branches/!fix", {"id": "other"}),
    ("POST", "branches/main", {"type": "Merge", "targetBranchId": "!fix"}),
    ("POST", "branches/!fix", {"type": "Merge", "targetBranchId": "fix"}),
    ("POST", "branches", {"id": "child", "baseRef": "!fix"}),
    ("POST", "branches", {"id": "!mine"}),
    ("POST", "tags", {"id": "mine", "versionRef": "!fix"}),
    ("POST", "tags", {"id": "!mine"}),
]


def test_a_branch_for_solving_serves_nothing_else(client: httpx.Client, space: str) -> None:
    for method, path, body in OTHER_ORDERS:
        error(client.request(method, f"{space}/{path}", json=body), 400)
    assert [one["id"] for one in client.get(f"{space}/branches").json()] == ["!fix", "fix"]


def test_a_conflict_is_solved_by_writing_and_merging(client: httpx.Client, space: str) -> None:
    told = error(client.post(f"{space}/branches/!fix", json=MERGE), 409)
    assert sorted(one["id"] for one in told["conflicts"]) == ["a", "dead", "gone"]
    on_it = {"versionRef": "!fix"}
    # Read, changed and sent back, as clients do; with what it has; and deleted.
    read = client.get(f"{space}/features/a", params=on_it).json()
    read["properties"]["n"] = 7
    assert client.put(f"{space}/features/a", json=read, params=on_it).status_code == 200
    assert marked(client, space) == ["dead", "gone"]
    patch = {"type": "Feature", "properties": {"m": 2}}
    assert client.patch(f"{space}/features/dead", json=patch, params=on_it).status_code == 200
    client.delete(f"{space}/features/gone", params=on_it)
    put(client, space, feature("more", n=5), **on_it)
    assert marked(client, space) == []
    put(client, space, feature("new", n=4))
    done = client.post(f"{space}/branches/!fix", json={**MERGE, "message": "as it is"})
    assert done.status_code == 200, done.text
    assert properties_at(client, space) == {
        "a": {"n": 7, "m": 2},
        "dead": {"n": 2, "m": 2},
        "fine": {"n": 2, "m": 2},
        "new": {"n": 4},
        "more": {"n": 5},
    }
    fine = client.get(f"{space}/features/fine").json()["properties"][XYZ]
    theirs = client.get(f"{space}/features/fine", params={"versionRef": "fix"}).json()
    assert fine["muuid"] == theirs["properties"][XYZ]["uuid"]
    (branch,) = client.get(f"{space}/branches").json()
    assert (branch["id"], branch["state"], branch["conflicts"]) == ("fix", "OPEN", [])
    assert "conflictSolvingBranch" not in branch
    assert [*branch["merges"].values()] == [f"main:{done.json()['version']}"]
    put(client, space, feature("a", n=8, m=2), versionRef="fix")
    # What was merged is not merged again: only what is new is, and it conflicts with n=7.
    tried = client.post(f"{space}/branches/fix", json={**MERGE, "dryRun": True}).json()
    assert [one["id"] for one in tried["conflicts"]] == ["a"]
    assert {"inserted", "deleted"}.isdisjoint(tried)


def test_main_may_change_while_a_conflict_is_solved(client: httpx.Client, space: str) -> None:
    put(client, space, *[feature(id, n=7, m=7) for id in ("a", "dead", "gone")], versionRef="!fix")
    put(client, space, feature("a", n=9, m=1))
    told = error(client.post(f"{space}/branches/!fix", json=MERGE), 409)
    assert [one["id"] for one in told["conflicts"]] == ["a"]
    assert properties_at(client, space)["a"] == {"n": 9, "m": 1}
    done = client.post(f"{space}/branches/!fix", json={**MERGE, "policy": "theirs"})
    assert done.status_code == 200, done.text
    assert properties_at(client, space)["a"] == {"n": 7, "m": 7}


@pytest.mark.parametrize("way", ["GiveUp", "DELETE", "Resolve", "policy"])
def test_other_ways_to_end_a_conflict(client: httpx.Client, space: str, way: str) -> None:
    (conflict,) = client.get(f"{space}/branches/fix/conflicts").json()
    if way == "DELETE":
        ended = client.delete(f"{space}/branches/!fix")
    else:
        orders = {
            "GiveUp": {"type": "GiveUp", "conflictId": conflict["id"]},
            "Resolve": {"type": "Resolve", "conflictId": conflict["id"], "policy": "theirs"},
            "policy": {**MERGE, "policy": "theirs"},
        }
        ended = client.post(f"{space}/branches/fix", json=orders[way])
    assert ended.status_code in (200, 204), ended.text
    (branch,) = client.get(f"{space}/branches").json()
    assert (branch["id"], branch["state"]) == ("fix", "OPEN")
    error(client.get(f"{space}/search", params={"versionRef": "!fix"}), 404)
    put(client, space, feature("x", n=1), versionRef="fix")
    expected = 3 if way in ("GiveUp", "DELETE") else 2
    assert properties_at(client, space)["a"]["n"] == expected


def test_a_rebase_is_solved_the_same_way(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, feature("a", n=1), feature("b", n=1))
    client.post(f"{space}/branches", json={"id": "fix"})
    before = put(client, space, feature("a", n=2), feature("c", n=2), versionRef="fix")
    last = put(client, space, feature("a", n=3), feature("b", n=3))
    change = {"baseRef": "main:HEAD"}
    error(client.patch(f"{space}/branches/fix", json=change), 409)
    assert marked(client, space) == ["a"]
    order = {"type": "Merge", "targetBranchId": "fix"}
    error(client.post(f"{space}/branches/!fix", json=order), 409)
    put(client, space, feature("a", n=7), versionRef="!fix")
    done = client.post(f"{space}/branches/!fix", json=order)
    assert done.status_code == 200, done.text
    expected = {"a": {"n": 7}, "b": {"n": 3}, "c": {"n": 2}}
    assert properties_at(client, space, "fix") == expected
    assert properties_at(client, space, f"fix:{before}") == {
        "a": {"n": 2},
        "b": {"n": 1},
        "c": {"n": 2},
    }
    (branch,) = client.get(f"{space}/branches").json()
    assert (branch["id"], branch["state"]) == ("fix", "OPEN")
    assert branch["baseRef"] == f"main:{last}"
    put(client, space, feature("d", n=1), versionRef="fix")
    merged = client.post(f"{space}/branches/fix", json=MERGE)
    assert merged.status_code == 200, merged.text
    assert properties_at(client, space) == {**expected, "d": {"n": 1}}
    assert client.delete(f"{space}/branches/fix").status_code == 204


def test_a_branch_that_main_is_merged_to_can_be_in_conflict(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, feature("a", n=1))
    client.post(f"{space}/branches", json={"id": "fix"})
    put(client, space, feature("a", n=2), versionRef="fix")
    put(client, space, feature("a", n=3), feature("b", n=3))
    order = {"type": "Merge", "targetBranchId": "fix"}
    error(client.post(f"{space}/branches/main", json=order), 409)
    assert client.get(f"{space}/branches/fix").json()["conflictSolvingBranch"] == "!fix"
    put(client, space, feature("a", n=5), versionRef="!fix")
    done = client.post(f"{space}/branches/!fix", json=order)
    assert done.status_code == 200, done.text
    assert properties_at(client, space, "fix") == {"a": {"n": 5}, "b": {"n": 3}}
    put(client, space, feature("a", n=6))
    error(client.post(f"{space}/branches/main", json=order), 409)
    assert client.delete(f"{space}/branches/fix").status_code == 204
    assert client.get(f"{space}/branches").json() == []


def test_a_branch_whose_partner_is_gone_is_free(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, feature("a", n=1))
    for name in ("fix", "other"):
        client.post(f"{space}/branches", json={"id": name})
    put(client, space, feature("a", n=2), versionRef="fix")
    put(client, space, feature("a", n=3), versionRef="other")
    order = {"type": "Merge", "targetBranchId": "other"}
    error(client.post(f"{space}/branches/fix", json=order), 409)
    assert client.delete(f"{space}/branches/other").status_code == 204
    (branch,) = client.get(f"{space}/branches").json()
    assert (branch["id"], branch["state"], branch["conflicts"]) == ("fix", "OPEN", [])

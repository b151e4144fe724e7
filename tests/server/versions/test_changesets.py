"""Changesets as existing XYZ clients expect them: bounds, pages, times, and missing ones."""

import time
from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, new_space, point
from tests.server.versions.test_version_filters import get, ids, pages, put

COLLECTION = "application/vnd.here.changeset-collection"


@pytest.fixture
def space(client: httpx.Client) -> str:
    return new_space(client)


@pytest.fixture
def written(client: httpx.Client, space: str) -> list[int]:
    """Four versions of the space; a version of another space lies between two of them."""
    found = [put(client, space, point("a", n=1), point("b", n=1))]
    found.append(put(client, space, point("a", n=2), point("c", n=2)))
    put(client, new_space(client), point("elsewhere"))
    found += [put(client, space, point("b", n=n)) for n in (3, 4)]
    return found


def versions(page: dict[str, Any]) -> list[int]:
    return [int(version) for version in page["versions"]]


def test_one_version_by_its_bounds_is_a_collection(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    for version in written:
        params = {"startVersion": version, "endVersion": version}
        answer = client.get(f"{space}/changesets", params=params)
        assert answer.headers["content-type"] == COLLECTION
        found = answer.json()
        assert found["type"] == "ChangesetCollection"
        assert (found["startVersion"], found["endVersion"]) == (version, version)
        one = get(client, f"{space}/changesets/{version}")
        assert one["type"] == "Changeset"
        assert found["versions"] == {str(version): one}


def test_a_version_reference_means_everything_up_to_it(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    client.post(f"{space}/tags", json={"id": "then", "version": written[2]}).raise_for_status()
    txn = get(client, f"{space}/changesets/{written[2]}")["txn"]
    for ref in (written[2], f"main:{written[2]}", "then", txn):
        found = get(client, f"{space}/changesets", versionRef=ref)
        assert versions(found) == written[:3]
        assert (found["startVersion"], found["endVersion"]) == (written[0], written[2])
    for ref in ("HEAD", "main", "*", "main:HEAD"):
        assert versions(get(client, f"{space}/changesets", versionRef=ref)) == written
    squashed = get(client, f"{space}/changesets", versionRef=written[1], squashed=True)
    assert ids(squashed) == {"inserted": ["a", "b", "c"]}


def test_the_end_may_lie_beyond_the_last_version(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    for params in (
        {"startVersion": written[1], "endVersion": 10**9},
        {"versionRef": f"{written[0]}..{10**9}"},
    ):
        found = get(client, f"{space}/changesets", **params)
        assert versions(found) == written[1:]
        assert (found["startVersion"], found["endVersion"]) == (written[1], written[-1])
        squashed = get(client, f"{space}/changesets", squashed=True, **params)
        assert ids(squashed) == {"inserted": ["c"], "updated": ["a", "b"]}


def test_bounds_are_the_first_and_the_last_version_of_the_page(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    for params, wanted in (
        ({}, written),
        ({"startVersion": 0}, written),
        ({"startVersion": 0, "endVersion": written[1]}, written[:2]),
        ({"endVersion": written[2]}, written[:3]),
        ({"versionRef": f"{written[0]}..{written[2]}"}, written[1:3]),
        ({"startVersion": written[1], "limit": 2}, written[1:2]),
    ):
        found = get(client, f"{space}/changesets", **params)
        assert versions(found) == wanted
        assert (found["startVersion"], found["endVersion"]) == (wanted[0], wanted[-1])


def test_one_changeset_comes_in_pages(client: httpx.Client, space: str) -> None:
    put(client, space, *(point(id, n=1) for id in "bcd"))
    version = put(client, space, *(point(id, n=2) for id in "abcde"))
    path = f"{space}/changesets/{version}"
    first = get(client, path, limit=1)
    assert (first["version"], ids(first)) == (version, {"inserted": ["a"]})
    assert "nextPageToken" in first
    for limit in (1, 2, 4, 5, 100):
        found = pages(client, path, limit=limit)
        assert {page["version"] for page in found} == {version}
        seen = [ids(page) for page in found]
        assert all(sum(map(len, some.values())) <= limit for some in seen)
        assert sorted(id for some in seen for id in some.get("inserted", [])) == ["a", "e"]
        assert sorted(id for some in seen for id in some.get("updated", [])) == ["b", "c", "d"]
    for wrong in ("x", "17~", "-1", "1" * 30):
        answer = client.get(path, params={"pageToken": wrong})
        assert (answer.status_code, answer.json()["field"]) == (400, "pageToken"), answer.text


def test_nothing_found(client: httpx.Client, space: str) -> None:
    assert client.get(f"{space}/changesets").status_code == 404
    version = put(client, space, point("a", n=1))
    for params in (
        {"startVersion": version + 1},
        {"startVersion": 10**9},
        {"startVersion": 10**9, "endVersion": 10**9 + 1},
        {"versionRef": f"{version}..HEAD"},
        {"versionRef": 0},
        {"endVersion": 0},
    ):
        answer = client.get(f"{space}/changesets", params=params)
        assert answer.status_code == 404, answer.text
        assert answer.json()["errorMessage"] == "The requested resource does not exist."
    assert client.get(f"{space}/changesets/{version + 1}").status_code == 404
    # A filter narrows changesets that exist, as a search does.
    found = get(client, f"{space}/changesets", author="nobody")
    assert (found["versions"], found["startVersion"], found["endVersion"]) == ({}, 1, version)


def test_a_start_after_the_end_is_refused(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    client.post(f"{space}/tags", json={"id": "early", "version": written[0]}).raise_for_status()
    for params in (
        {"startVersion": written[2], "endVersion": written[1]},
        {"versionRef": f"{written[2]}..{written[1]}"},
        {"versionRef": f"{written[2]}..early"},
        {"startVersion": 10**9 + 1, "endVersion": 10**9},
    ):
        for squashed in (False, True):
            query: dict[str, Any] = {**params, "squashed": squashed}
            answer = client.get(f"{space}/changesets", params=query)
            assert answer.status_code == 400, answer.text


def test_a_poller_by_time_never_gets_a_version_twice(client: httpx.Client, space: str) -> None:
    """It asks for what came after the newest `updatedAt`, or `createdAt`, that it has seen."""
    seen: list[int] = []
    newest = 0
    for n in range(5):
        version = put(client, space, point("a", n=n))
        found = get(client, f"{space}/changesets", startTime=newest)
        seen += versions(found)
        (changeset,) = found["versions"].values()
        (feature,) = [f for name in ("inserted", "updated") for f in changeset[name]["features"]]
        assert changeset["createdAt"] == feature["properties"][XYZ]["updatedAt"]
        assert changeset["publishedAt"] >= changeset["createdAt"]
        newest = changeset["createdAt"]
        assert seen[-1] == version
        again = get(client, f"{space}/changesets", startTime=newest)
        assert again["versions"] == {}
        until = get(client, f"{space}/changesets", endTime=newest)
        assert versions(until) == seen
        time.sleep(0.005)


def test_the_rest_is_there_after_older_changesets_were_deleted(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    assert client.delete(f"{space}/changesets?version<{written[2]}").status_code == 204
    for params in (
        {},
        {"startVersion": 0},
        {"startVersion": 0, "endVersion": 999_999},
        {"startVersion": written[1]},
        {"versionRef": "0..HEAD"},
        {"versionRef": "*"},
        {"versionRef": written[3]},
        {"startVersion": 0, "p.n>": 2},
    ):
        found = get(client, f"{space}/changesets", **params)
        assert versions(found) == written[2:]
        assert (found["startVersion"], found["endVersion"]) == (written[2], written[3])
    compact = {"Accept": "application/vnd.here.compact-changeset"}
    for answer in (
        client.get(f"{space}/changesets", params={"startVersion": 0, "squashed": "true"}),
        client.get(f"{space}/history", params={"startVersion": 0}, headers=compact),
    ):
        squashed = answer.json()
        assert (squashed["startVersion"], squashed["endVersion"]) == (written[2], written[3])
    for path, params in (
        (f"changesets/{written[0]}", {}),
        ("changesets", {"endVersion": written[1]}),
    ):
        gone = client.get(f"{space}/{path}", params=params)
        assert gone.status_code == 410, gone.text

"""Filters of version operations over REST: rollback, revert, diff, changesets and history."""

import time
from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, new_space, point

HERE, THERE = (8.5, 50.25), (-100.0, -20.0)
BOX = {"west": 8, "south": 50, "east": 9, "north": 51}
FILTERS: dict[str, dict[str, Any]] = {
    "property": {"p.kind": "road"},
    "property that is not": {"p.kind!": "rail"},
    "tags": {"tags": "hot+dry,nothing"},
    "ids": {"id": "hit,nobody"},
    "feature id": {"f.id": "hit"},
    "box": BOX,
    "box with north and south swapped": {**BOX, "south": 51, "north": 50},
    "everything at once": {"p.kind": "road", "tags": "hot", "id": "hit", **BOX},
}
"""Each matches the feature `hit` before its change and no other feature."""


def put(client: httpx.Client, space: str, *features: dict[str, Any]) -> int:
    """Write features and return the version."""
    body = {"type": "FeatureCollection", "features": list(features)}
    answer = client.put(f"{space}/features", json=body)
    assert answer.status_code == 200, answer.text
    version: int = answer.json()["version"]
    return version


def get(client: httpx.Client, path: str, **params: Any) -> dict[str, Any]:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(changeset: dict[str, Any]) -> dict[str, list[str]]:
    """The ids of a changeset by operation, without empty lists."""
    names = ("inserted", "updated", "deleted")
    found = {name: sorted(f["id"] for f in changeset[name]["features"]) for name in names}
    return {name: some for name, some in found.items() if some}


def numbers(client: httpx.Client, space: str) -> dict[str, int]:
    found = get(client, f"{space}/search")["features"]
    return {feature["id"]: feature["properties"]["n"] for feature in found}


@pytest.fixture
def town(client: httpx.Client) -> tuple[str, int, int]:
    """A space, and its versions before and after a change of `hit` (a road in the box that moves
    away) and `miss`."""
    space = new_space(client)
    hit = point("hit", *HERE, tags=["hot", "dry"], kind="road", n=1)
    first = put(client, space, hit, point("miss", *THERE, kind="rail", n=1))
    last = put(
        client,
        space,
        point("hit", *THERE, tags=["cold"], kind="path", n=2),
        point("miss", *THERE, kind="rail", n=2),
    )
    return space, first, last


@pytest.mark.parametrize("given", FILTERS.values(), ids=FILTERS)
def test_every_version_operation_takes_the_filter(
    client: httpx.Client, town: tuple[str, int, int], given: dict[str, Any]
) -> None:
    space, first, last = town
    found = get(client, f"{space}/diff", versionRef=f"{first}..{last}", **given)
    assert [change["id"] for change in found["changes"]] == ["hit"]
    log = get(client, f"{space}/changesets", **given)
    assert {int(v): ids(changeset) for v, changeset in log["versions"].items()} == {
        first: {"inserted": ["hit"]},
        last: {"updated": ["hit"]},
    }
    assert ids(get(client, f"{space}/changesets/{last}", **given)) == {"updated": ["hit"]}
    squashed = get(
        client, f"{space}/changesets", squashed=True, versionRef=f"{first}..{last}", **given
    )
    assert ids(squashed) == {"updated": ["hit"]}
    tried = client.post(f"{space}/revert", params={**given, "dryRun": True}, json={"version": last})
    assert tried.json()["updated"] == ["hit"]
    done = client.post(f"{space}/revert", params=given, json={"version": last})
    assert done.json()["updated"] == ["hit"], done.text
    assert numbers(client, space) == {"hit": 1, "miss": 2}
    body = {"versionRef": str(last)}
    tried = client.post(f"{space}/rollback", params={**given, "dryRun": True}, json=body)
    assert tried.json()["updated"] == ["hit"], tried.text
    assert numbers(client, space) == {"hit": 1, "miss": 2}
    done = client.post(f"{space}/rollback", params=given, json=body)
    assert done.json()["updated"] == ["hit"], done.text
    assert numbers(client, space) == {"hit": 2, "miss": 2}


def test_rollback_by_property_leaves_other_features_alone(client: httpx.Client) -> None:
    space = new_space(client)
    first = put(client, space, point("r", kind="road", n=1), point("p", kind="path", n=1))
    put(client, space, point("r", kind="road", n=2), point("p", kind="path", n=2))
    done = client.post(f"{space}/rollback?p.kind=road", json={"versionRef": str(first)})
    assert done.json()["updated"] == ["r"]
    assert numbers(client, space) == {"r": 1, "p": 2}


def test_ids_of_body_and_query_must_both_hold(
    client: httpx.Client, town: tuple[str, int, int]
) -> None:
    space, first, _ = town
    body = {"versionRef": str(first), "ids": ["hit", "miss"], "dryRun": True}
    tried = client.post(f"{space}/rollback", params={"id": "miss"}, json=body)
    assert tried.json()["updated"] == ["miss"]
    tried = client.post(f"{space}/rollback", params={"id": "other"}, json=body)
    assert "updated" not in tried.json()


def test_a_wrong_filter_changes_nothing(client: httpx.Client, town: tuple[str, int, int]) -> None:
    space, first, last = town
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"west": 1}, "south"),
        ({**BOX, "north": 91}, "north"),
        ({"startTime": -1}, "startTime"),
        ({"endTime": "soon"}, "endTime"),
        ({"startTime": 8, "endTime": 7}, "endTime"),
    ]
    for given, field in wrong:
        for answer in (
            client.post(f"{space}/rollback", params=given, json={"versionRef": str(first)}),
            client.post(f"{space}/revert", params=given, json={"version": last}),
            client.get(f"{space}/diff", params=given),
            client.get(f"{space}/changesets", params=given),
            client.get(f"{space}/changesets/{last}", params=given),
        ):
            assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert numbers(client, space) == {"hit": 2, "miss": 2}


def test_author_filters_every_version_operation(
    client: httpx.Client, town: tuple[str, int, int]
) -> None:
    space, first, last = town
    diff = {"versionRef": f"{first}..{last}"}
    for author, found in (("anonymous", True), ("nobody,anonymous", True), ("nobody", False)):
        changes = get(client, f"{space}/diff", author=author, **diff)["changes"]
        assert bool(changes) is found
        assert bool(get(client, f"{space}/changesets", author=author)["versions"]) is found
        one = client.get(f"{space}/changesets/{last}", params={"author": author})
        assert one.status_code == (200 if found else 404)
        feature = client.get(f"{space}/features/hit", params={"author": author})
        assert feature.status_code == (200 if found else 404)
        every = get(client, f"{space}/features/hit", author=author, version="*")["features"]
        assert len(every) == (2 if found else 0)
        steps = get(client, f"{space}/features/hit/history", author=author)["steps"]
        assert len(steps) == (2 if found else 0)
        body = {"versionRef": str(first), "dryRun": True}
        back = client.post(f"{space}/rollback", params={"author": author}, json=body).json()
        assert ("updated" in back) is found
        body = {"version": last, "dryRun": True}
        back = client.post(f"{space}/revert", params={"author": author}, json=body).json()
        assert ("updated" in back) is found


def test_time_filters_every_version_operation(client: httpx.Client) -> None:
    space = new_space(client)
    first = put(client, space, point("a", n=1), point("b", n=1))
    time.sleep(0.01)
    second = put(client, space, point("a", n=2))
    time.sleep(0.01)
    last = put(client, space, point("b", n=2))
    stored = get(client, f"{space}/features", id="a,b")["features"]
    times = {f["id"]: f["properties"][XYZ]["updatedAt"] for f in stored}
    for given, found, version in (
        ({"endTime": times["a"]}, "a", second),
        ({"startTime": times["a"]}, "b", last),
        ({"startTime": times["a"] - 1, "endTime": times["b"] - 1}, "a", second),
    ):
        diff = get(client, f"{space}/diff", versionRef=f"{first}..{last}", **given)
        assert [change["id"] for change in diff["changes"]] == [found]
        log = get(client, f"{space}/changesets", startVersion=second, **given)
        assert [*log["versions"]] == [str(version)]
        body = {"versionRef": str(first), "dryRun": True}
        back = client.post(f"{space}/rollback", params=given, json=body).json()
        assert back["updated"] == [found]


def test_a_filter_finds_features_that_leave_and_enter(client: httpx.Client) -> None:
    """The old or the new geometry, also of deleted features."""
    space = new_space(client)
    first = put(client, space, point("in", *HERE, n=1), point("out", *THERE, n=1))
    put(client, space, point("in", *THERE, n=2), point("out", *HERE, n=2))
    client.delete(f"{space}/features/out").raise_for_status()
    found = get(client, f"{space}/diff", versionRef=f"{first}..HEAD", **BOX)
    assert {c["id"]: c["action"] for c in found["changes"]} == {"in": "updated", "out": "deleted"}
    log = get(client, f"{space}/changesets", **BOX)["versions"]
    assert [ids(changeset) for changeset in log.values()] == [
        {"inserted": ["in"]},
        {"updated": ["in", "out"]},
        {"deleted": ["out"]},
    ]


def pages(client: httpx.Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """All pages of an answer, the last one without a token."""
    found = [get(client, path, **params)]
    while "nextPageToken" in found[-1]:
        found.append(get(client, path, **params, pageToken=found[-1]["nextPageToken"]))
    return found


@pytest.mark.parametrize("given", [{}, {"p.kind": "road"}, {"author": "anonymous"}])
def test_filtered_changesets_come_in_pages(client: httpx.Client, given: dict[str, Any]) -> None:
    space = new_space(client)
    written = []
    for n in range(4):
        features = [point(f"{kind}{i}", kind=kind, n=n) for kind in ("road", "path") for i in "ab"]
        written.append(put(client, space, *features))
    wanted = ["roada", "roadb"] if "p.kind" in given else ["patha", "pathb", "roada", "roadb"]
    for limit in (1, 3, 5, 100):
        found = pages(client, f"{space}/changesets", limit=limit, **given)
        seen: dict[int, list[str]] = {}
        for page in found:
            some = {
                int(v): [i for some in ids(each).values() for i in some]
                for v, each in page["versions"].items()
            }
            assert sum(map(len, some.values())) <= limit
            for version, features_seen in some.items():
                seen.setdefault(version, []).extend(features_seen)
        assert {v: sorted(some) for v, some in seen.items()} == dict.fromkeys(written, wanted)

"""The log of a space: changesets with counts and boxes, without their features."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.towns import new_space, point
from tests.server.versions.test_version_filters import BOX, HERE, THERE, get, put


@pytest.fixture
def space(client: httpx.Client) -> str:
    return new_space(client)


@pytest.fixture
def written(client: httpx.Client, space: str) -> list[int]:
    """Four versions of the space; a version of another space lies between two of them."""
    found = [put(client, space, point("a", *HERE, n=1), point("b", *THERE, n=1))]
    put(client, new_space(client), point("elsewhere"))
    found.append(put(client, space, point("a", *THERE, n=2), point("c", *THERE)))
    found.append(put(client, space, point("b", *THERE, n=3)))
    client.delete(f"{space}/features/c").raise_for_status()
    found.append(int(get(client, f"{space}/changesets/statistics")["maxVersion"]))
    return found


def versions(page: dict[str, Any]) -> list[int]:
    return [entry["version"] for entry in page["changesets"]]


def test_the_log_counts_what_each_version_changed(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    found = get(client, f"{space}/log")
    assert found["type"] == "ChangesetLog"
    assert "nextPageToken" not in found
    assert versions(found) == written[::-1]
    counts = [(one["inserted"], one["updated"], one["deleted"]) for one in found["changesets"]]
    assert counts == [(0, 0, 1), (0, 1, 0), (1, 1, 0), (2, 0, 0)]
    first = found["changesets"][-1]
    assert first["bbox"] == [THERE[0], THERE[1], HERE[0], HERE[1]]
    one = get(client, f"{space}/changesets/{written[0]}")
    shared = ("version", "txn", "author", "appId", "createdAt", "publishedAt")
    assert {name: first[name] for name in shared} == {name: one[name] for name in shared}


def test_the_log_has_pages_in_both_directions(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    for newest_first, expected in ((True, written[::-1]), (False, written)):
        found: list[int] = []
        query: dict[str, Any] = {"limit": 3, "newestFirst": newest_first}
        while True:
            page = get(client, f"{space}/log", **query)
            found += versions(page)
            if "nextPageToken" not in page:
                break
            query["pageToken"] = page["nextPageToken"]
        assert found == expected


def test_the_log_is_filtered_by_area_id_property_and_author(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    def filtered(**query: Any) -> list[int]:
        return versions(get(client, f"{space}/log", newestFirst=False, **query))

    assert filtered(**BOX) == written[:2]  # the feature left the area in the second
    assert filtered(id="b") == [written[0], written[2]]
    assert filtered(**{"p.n": 3}) == [written[2]]
    assert filtered(author="anonymous") == written
    assert filtered(author="stranger") == []


def test_the_log_is_searched_for_the_text_of_messages(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    body = {"versionRef": str(written[0]), "message": "Back to the Beginning"}
    client.post(f"{space}/rollback", json=body).raise_for_status()
    (found,) = get(client, f"{space}/log", text="the begin")["changesets"]
    assert found["message"] == "Back to the Beginning"
    assert get(client, f"{space}/log", text="no such text")["changesets"] == []


def test_the_log_of_a_branch_has_the_changes_on_it(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    client.post(f"{space}/branches", json={"id": "fix"}).raise_for_status()
    body = {"type": "FeatureCollection", "features": [point("d", *HERE)]}
    client.put(f"{space}/features", json=body, params={"versionRef": "fix"}).raise_for_status()
    (entry,) = get(client, f"{space}/log", versionRef="fix")["changesets"]
    assert (entry["inserted"], entry["bbox"]) == (1, [*HERE, *HERE])
    assert versions(get(client, f"{space}/log")) == written[::-1]


def test_versions_that_were_given_up_are_not_in_the_log(
    client: httpx.Client, space: str, written: list[int]
) -> None:
    client.delete(f"{space}/changesets?version<{written[2]}").raise_for_status()
    for newest_first in (True, False):
        found = versions(get(client, f"{space}/log", newestFirst=newest_first))
        assert sorted(found) == written[2:]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 10_001}, {"pageToken": "x"}, {"text": ""}]
)
def test_an_invalid_page_is_refused(
    client: httpx.Client, space: str, query: dict[str, Any]
) -> None:
    answer = client.get(f"{space}/log", params=query)
    assert answer.status_code == 400
    assert next(iter(query)) in answer.json()["message"]

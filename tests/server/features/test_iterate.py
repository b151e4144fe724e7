"""Iteration over all features, page by page."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from naksha.model.query import QueryPart
from tests.server.towns import error, id_of, ids_of, new_space, point, put

COUNT = 57


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    space = new_space(client)
    put(client, space, *(point(f"id-{n:03}", n, 0, size=n % 5, name=f"n{n}") for n in range(COUNT)))
    return space


def pages(client: httpx.Client, space: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
    handle: str | None = "0"
    while handle is not None:
        answer = client.get(f"{space}/iterate", params={**query, "handle": handle})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        yield body["features"]
        handle = body.get("handle")
        assert body.get("nextPageToken") == handle
        if handle is not None:
            assert handle.isdigit()
            assert list(body)[-2:] == ["handle", "nextPageToken"]


def all_ids(client: httpx.Client, space: str, **query: Any) -> list[str]:
    return [id for page in pages(client, space, **query) for id in ids_of(page)]


ALL = [f"id-{n:03}" for n in range(COUNT)]


@pytest.mark.parametrize("limit", [1, 10, COUNT - 1, COUNT, COUNT + 1, 30_000])
def test_every_feature_comes_once(client: httpx.Client, town: str, limit: int) -> None:
    sizes = [len(page) for page in pages(client, town, limit=limit)]
    assert sizes == [limit] * (COUNT // limit) + ([COUNT % limit] if COUNT % limit else [])
    assert all_ids(client, town, limit=limit) == ALL


def test_the_first_page_needs_no_handle(client: httpx.Client, town: str) -> None:
    for query in ("", "handle=0&", "handle=&"):
        body = client.get(f"{town}/iterate?{query}limit=5").json()
        assert ids_of(body["features"]) == ALL[:5]
        assert float(body["handle"]) >= 0  # what a client in JavaScript looks at


def test_pages_show_the_version_of_the_first_one(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(f"{n}") for n in range(6)))
    for more in ({}, {"sort": "f.id:desc"}, {"part": "1,1"}):
        first = client.get(f"{space}/iterate", params={"limit": 3, **more}).json()
        put(client, space, point(f"0-new-{more}"), point(f"4-new-{more}"))
        rest = {"limit": 100, "handle": first["handle"], **more}
        second = client.get(f"{space}/iterate", params=rest).json()
        together = ids_of(first["features"]) + ids_of(second["features"])
        assert f"0-new-{more}" not in together
        assert f"4-new-{more}" not in together


def test_pages_of_a_view_show_the_version_of_the_first_one(client: httpx.Client) -> None:
    below = new_space(client)
    view = new_space(client, extends={"spaceId": id_of(below)})
    put(client, below, *(point(f"{n}") for n in range(3)))
    put(client, view, *(point(f"{n}") for n in range(3, 6)))
    for more in ({}, {"sort": "f.id:desc"}, {"part": "1,1"}, {"sort": "f.id", "part": "1,1"}):
        first = client.get(f"{view}/iterate", params={"limit": 3, **more}).json()
        put(client, below, point(f"0-new-{more}"), point(f"4-new-{more}"))
        put(client, view, point(f"1-new-{more}"), point(f"5-new-{more}"))
        rest = {"limit": 100, "handle": first["handle"], **more}
        second = client.get(f"{view}/iterate", params=rest).json()
        together = ids_of(first["features"]) + ids_of(second["features"])
        assert not [id for id in together if id.endswith(f"-new-{more}")]
        assert {f"{n}" for n in range(6)} <= {*together}


def test_some_features_are_iterated(client: httpx.Client, town: str) -> None:
    assert all_ids(client, town, limit=3, **{"p.size": 2}) == ALL[2::5]


@pytest.mark.parametrize("total", [1, 2, 7])
@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_parts_are_the_whole_together(
    client: httpx.Client, town: str, total: int, limit: int
) -> None:
    parts = [
        [ids_of(page) for page in pages(client, town, part=f"{n},{total}", limit=limit)]
        for n in range(1, total + 1)
    ]
    assert all(len(page) == limit for part in parts for page in part[:-1])
    ids = [[id for page in part for id in page] for part in parts]
    assert sorted(id for part in ids for id in part) == ALL
    assert all(part == sorted(part) for part in ids)


def test_a_large_part_is_read_from_many_pages(client: httpx.Client) -> None:
    space = new_space(client)
    count = 5000
    put(client, space, *(point(f"{n:05}") for n in range(count)))
    ids = [all_ids(client, space, part=f"{n},3", limit=700) for n in (1, 2, 3)]
    assert sorted(id for part in ids for id in part) == [f"{n:05}" for n in range(count)]
    assert all_ids(client, space, limit=3000) == [f"{n:05}" for n in range(count)]


@pytest.mark.parametrize("limit", [7, 1000])
@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("p.size:asc,f.id:desc", lambda n: (n % 5, -n)),
        ("p.size:desc", lambda n: (-(n % 5), n)),
        ("p.size:desc,p.name:asc", lambda n: (-(n % 5), f"n{n}")),
        ("p.nothing", lambda n: n),
    ],
)
def test_an_order_of_properties(
    client: httpx.Client, town: str, sort: str, key: Any, limit: int
) -> None:
    expected = [f"id-{n:03}" for n in sorted(range(COUNT), key=key)]
    assert all_ids(client, town, sort=sort, limit=limit) == expected


def test_values_of_all_kinds_have_an_order(client: httpx.Client) -> None:
    space = new_space(client)
    values: list[Any] = [None, "b", 2, True, [1], "a", 1.5, False, {"a": 1}, -3]
    put(client, space, *(point(f"{n}", value=value) for n, value in enumerate(values)), point("x"))
    got = [
        feature["properties"].get("value")
        for page in pages(client, space, sort="p.value", limit=4)
        for feature in page
    ]
    assert got == [-3, 1.5, 2, "a", "b", False, True, [1], {"a": 1}, None, None]
    back = all_ids(client, space, sort="p.value:desc", limit=3)
    assert back[-2:] == ["0", "x"]
    assert back[:2] == ["4", "8"]  # what is nested is all alike


def test_a_part_in_an_order(client: httpx.Client, town: str) -> None:
    ids = [all_ids(client, town, sort="p.size:desc", part=f"{n},2", limit=4) for n in (1, 2)]
    assert sorted(ids[0] + ids[1]) == ALL
    sizes = [int(id[3:]) % 5 for id in ids[0]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_view_is_sorted_and_cut_into_parts_too(client: httpx.Client, town: str) -> None:
    """By the hub: what a view shows is in no storage."""
    view = new_space(client, extends={"spaceId": id_of(town)})
    put(client, view, point("id-003", 3, 0, size=9), point("new", size=-1))
    expected = sorted(range(COUNT), key=lambda n: (9 if n == 3 else n % 5, n))
    ids = ["new", *(f"id-{n:03}" for n in expected)]
    assert all_ids(client, view, sort="p.size", limit=20) == ids
    parts = [all_ids(client, view, part=f"{n},3", limit=9) for n in (1, 2, 3)]
    assert sorted(id for part in parts for id in part) == [*ALL, "new"]
    assert parts[0] == [id for id in [*ALL, "new"] if QueryPart(1, 3).has(id)]
    assert all_ids(client, view, sort="p.size", part="2,3", limit=9) == [
        id for id in ids if QueryPart(2, 3).has(id)
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("handle=-1", "handle"),
        ("handle=abc", "handle"),
        ("handle=7", "handle"),
        ("handle=1999", "handle"),
        ("handle=1097", None),
        ("handle=1097&sort=p.a", "handle"),
        ("handle=1097&part=1,2", "handle"),
        ("part=0,2", "part"),
        ("part=3,2", "part"),
        ("part=1", "part"),
        ("sort=", "sort"),
        ("sort=p.a:up", "sort"),
        ("sort=name", "sort"),
        ("sort=p.a;DROP TABLE x", None),
    ],
)
def test_invalid_parameters_are_rejected(
    client: httpx.Client, town: str, query: str, field: str | None
) -> None:
    answer = client.get(f"{town}/iterate?{query}")
    if "DROP" in query:
        assert len(answer.json()["features"]) == COUNT
    else:
        error(answer, 400, field)


def test_a_handle_of_another_order_is_refused(client: httpx.Client, town: str) -> None:
    first = client.get(f"{town}/iterate", params={"sort": "p.size", "limit": 5}).json()
    for sort in ("p.size,p.name", "p.name:asc,p.size:desc,f.id"):
        query = {"sort": sort, "limit": 5, "handle": first["handle"]}
        error(client.get(f"{town}/iterate", params=query), 400, "handle")

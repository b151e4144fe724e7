"""Meta features over REST, stored beside the collection of a space."""

from __future__ import annotations

import itertools

import httpx
import pytest

NAMES = itertools.count(1)
NOTE = {"type": "Feature", "geometry": None, "properties": {"n": 1}}


@pytest.fixture
def meta(client: httpx.Client) -> str:
    """The path of the meta features of a new space."""
    id = f"Meta.{next(NAMES)}"
    assert client.post("/spaces", json={"id": id, "title": "A town"}).status_code == 200
    return f"/spaces/{id}/meta"


def test_meta_features_are_written_read_and_removed(client: httpx.Client, meta: str) -> None:
    assert client.get(meta).json() == {"type": "FeatureCollection", "features": []}
    for n in (1, 2):
        note = NOTE | {"id": "a/b", "properties": {"n": n}}
        answer = client.put(f"{meta}/a/b", json=NOTE | {"properties": {"n": n}})
        assert (answer.status_code, answer.json()) == (200, note)
        assert client.get(f"{meta}/a/b").json() == note
        assert client.get(meta).json()["features"] == [note]
    assert client.delete(f"{meta}/a/b").status_code == 204
    assert client.delete(f"{meta}/a/b").status_code == 404
    assert client.get(f"{meta}/a/b").status_code == 404


def test_invalid_meta_features_are_refused(client: httpx.Client, meta: str) -> None:
    assert client.put(f"{meta}/naksha:partitioning", json=NOTE).status_code == 400
    assert client.put(f"{meta}/x", json=[1]).status_code == 400
    assert client.get("/spaces/nowhere/meta").status_code == 404

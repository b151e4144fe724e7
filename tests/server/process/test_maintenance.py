"""Maintenance of a hub over REST: a round on request, dry runs, rights, metrics and health."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.conftest import *  # noqa: F403 - the hub on each storage


def round_of(client: httpx.Client, path: str = "/maintenance", **parameters: Any) -> dict[str, Any]:
    answer = client.post(path, params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_round_on_request_reports_what_it_did(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "roads"}).raise_for_status()
    feature = {"type": "Feature", "id": "a", "geometry": None, "properties": {}}
    client.put("/spaces/roads/features", json=feature).raise_for_status()
    found = round_of(client, "/maintenance/default")
    assert found["storageId"] == "default"
    assert found["running"] is False
    assert found["lastRound"]["outcome"] == "done"
    assert found["lastRound"]["dryRun"] is False
    assert client.get("/maintenance/default").json()["lastRound"] == found["lastRound"]

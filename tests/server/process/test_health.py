"""The health status of the hub."""

import httpx


def test_the_health_check_identifies_the_hub(client: httpx.Client) -> None:
    for path in ("/health-status", "/", ""):
        answer = client.get(path)
        assert answer.status_code == 200
        assert set(answer.json()) == {"reporter", "status", "schemaVersion"}


def test_a_space_that_is_not_there(client: httpx.Client) -> None:
    answer = client.get("/spaces/nothing/search")
    assert answer.status_code == 404
    assert answer.json()["error"] == "NotFound"

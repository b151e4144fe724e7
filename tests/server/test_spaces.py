"""Spaces over REST."""

import httpx


def test_a_space_is_made_changed_and_removed(client: httpx.Client) -> None:
    made = client.post("/spaces", json={"title": "Roads"})
    assert made.status_code == 200
    space_id = made.json()["id"]
    assert len(space_id) == 8
    assert space_id in [space["id"] for space in client.get("/spaces").json()]
    again = client.post("/spaces", json={"id": space_id})
    assert again.status_code == 409
    changed = client.patch(f"/spaces/{space_id}", json={"description": "all", "title": None})
    assert (changed.json()["description"], changed.json()["title"]) == ("all", "")
    replaced = client.put(f"/spaces/{space_id}", json={"id": space_id, "title": "Streets"})
    assert (replaced.json()["description"], replaced.json()["title"]) == ("", "Streets")
    assert client.delete(f"/spaces/{space_id}").status_code == 204
    assert client.get(f"/spaces/{space_id}").status_code == 404

"""States, transactions and copies over REST."""

import httpx

from naksha.server.responses.encoding import FAILED
from tests.server.towns import XYZ, error, found, id_of, new_space, point, put


def test_states_and_transactions_are_found(client: httpx.Client) -> None:
    space = new_space(client)
    (old,) = put(client, space, point("a", n=1))["features"]
    (new,) = put(client, space, point("a", n=2))["features"]
    for state in (old, new):
        answer = client.get(f"/states/{state['properties'][XYZ]['uuid']}")
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "application/geo+json"
        assert answer.json()["properties"]["n"] == state["properties"]["n"]
    txn = new["properties"][XYZ]["txn"]
    by_number = client.get(f"/transactions/{txn}").json()
    by_uuid = client.get(f"/transactions/{by_number['uuid']}").json()
    assert by_number == by_uuid
    assert (by_uuid["txn"], by_uuid["storageId"]) == (txn, "default")
    (changed,) = by_uuid["collections"]
    assert (changed["updated"], changed["spaces"]) == (1, [id_of(space)])
    in_storage = client.get(f"/transactions/{txn}", params={"storage": "default"})
    assert in_storage.json() == by_uuid
    error(client.get(f"/transactions/{txn}", params={"storage": "other"}), 404)
    error(client.get("/states/nonsense"), 400)
    error(client.get("/transactions/nonsense"), 400)
    error(client.get(f"/states/{old['properties'][XYZ]['uuid']}99"), 404)
    error(client.get("/transactions/2024010100000000001"), 404)


def test_a_query_is_copied(client: httpx.Client) -> None:
    source, target = new_space(client), new_space(client)
    features = [point(f"f{n}", lon=n, tags=["even"] if n % 2 == 0 else [], n=n) for n in range(10)]
    put(client, source, *features)
    order = {"targetSpaceId": id_of(target), "addTags": ["copy"]}
    for query, expected in [
        ("p.n>=8", {"f8", "f9"}),
        ("tags=even&p.n<3", {"f0", "f2"}),
        ("west=2.5&east=4.5&south=-1&north=1", {"f3", "f4"}),
        ("clientId=x&access_token=", {f"f{n}" for n in range(10)}),
    ]:
        client.delete(f"{target}/features?eraseContent=true")
        answer = client.post(f"{source}/copy?{query}", json=order)
        assert answer.status_code == 200, answer.text
        report = answer.json()
        assert (report["inserted"], len(report["parts"])) == (len(expected), 1)
        assert set(found(client.get(f"{target}/search?tags=copy"))) == expected
    provenance = client.get(target).json()["provenance"]
    assert [entry.get("query") for entry in provenance[:2]] == ["p.n>=8", "tags=even&p.n<3"]
    assert "query" not in provenance[-1], "a parameter that is not a query may be a secret"
    assert provenance[-1]["counts"]["inserted"] == 10


def test_failures_of_a_copy_cannot_be_overlooked(client: httpx.Client) -> None:
    source, target = new_space(client), new_space(client)
    put(client, source, point("a"), point("b"))
    put(client, target, point("b"))
    order = {"targetSpaceId": id_of(target), "onFeatureExists": "error"}
    answer = client.post(f"{source}/copy", json=order)
    assert (answer.status_code, answer.headers[FAILED]) == (200, "1")
    assert answer.json()["failed"][0]["id"] == "b"
    again = error(client.post(f"{source}/copy", json=order), 409)
    assert again["copied"]["failedCount"] == 2
    atomic = {**order, "transactional": True}
    error(client.post(f"{source}/copy", json=atomic), 409)


def test_an_invalid_copy_request_is_refused(client: httpx.Client) -> None:
    source = new_space(client)
    shown = new_space(client, readOnly=True)
    target = {"targetSpaceId": id_of(source)}
    error(client.post(f"{source}/copy", json={}), 400, "targetSpaceId")
    error(client.post(f"{source}/copy", json={"targetSpaceId": 7}), 400, "targetSpaceId")
    wrong = {**target, "onFeatureExists": "explode"}
    error(client.post(f"{source}/copy", json=wrong), 400, "onFeatureExists")
    error(client.post(f"{source}/copy?west=1", json=target), 400, "south")
    put(client, source, point("a"))
    error(client.post(f"{source}/copy", json={"targetSpaceId": "nowhere"}), 404)
    error(client.post("/spaces/nowhere/copy", json=target), 404)
    error(client.post(f"{source}/copy", json={"targetSpaceId": id_of(shown)}), 405)
    itself = client.post(f"{source}/copy?p.none=1", json=target)
    assert itself.json()["read"] == 0


def test_a_copy_into_itself_changes_nothing(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", n=1), point("b", n=2))
    report = client.post(f"{space}/copy", json={"targetSpaceId": id_of(space)}).json()
    assert (report["inserted"], report["updated"], report["failedCount"]) == (0, 0, 0)
    prefixed = {"targetSpaceId": id_of(space), "prefixId": "copy-"}
    assert client.post(f"{space}/copy", json=prefixed).json()["inserted"] == 2
    assert found(client.get(f"{space}/search")) == ["a", "b", "copy-a", "copy-b"]

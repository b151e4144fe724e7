"""Features by id: reads, writes and deletes."""

from typing import Any

import httpx
import pytest

from tests.server.towns import (
    GEO_JSON,
    XYZ,
    collection,
    error,
    found,
    id_of,
    ids_of,
    new_space,
    point,
    put,
)

MISSING = "The requested resource does not exist."


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    """A space that is only read."""
    space = new_space(client)
    put(client, space, *(point(f"house-{n}", n, n, number=n) for n in range(5)))
    return space


def test_a_feature_comes_back_with_its_space(client: httpx.Client, town: str) -> None:
    answer = client.get(f"{town}/features/house-3")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/geo+json"
    feature = answer.json()
    assert feature["id"] == "house-3"
    assert feature["geometry"] == {"type": "Point", "coordinates": [3.0, 3.0]}
    assert feature["properties"]["number"] == 3
    assert feature["properties"][XYZ]["space"] == id_of(town)
    assert feature["properties"][XYZ]["version"] == 1


def test_a_missing_feature_has_the_message_of_xyz(client: httpx.Client, town: str) -> None:
    for answer in (
        client.get(f"{town}/features/nobody"),
        client.patch(f"{town}/features/nobody", json={"type": "Feature"}),
        client.delete(f"{town}/features/nobody"),
    ):
        assert error(answer, 404)["errorMessage"] == MISSING
        assert answer.json()["error"] == "NotFound"


@pytest.mark.parametrize(
    "query",
    [
        "id=house-1&id=house-2&id=nobody",
        "id=house-1,house-2",
        "id=house-1%2Chouse-2",
        "id=house-2,house-1&clientId=tests",
    ],
)
def test_features_by_their_ids(client: httpx.Client, town: str, query: str) -> None:
    assert found(client.get(f"{town}/features?{query}")) == ["house-1", "house-2"]


def test_a_slash_at_the_end_changes_nothing(client: httpx.Client, town: str) -> None:
    assert found(client.get(f"{town}/features/?id=house-1")) == ["house-1"]
    assert client.get(f"{town}/features/house-1/").json()["id"] == "house-1"


def test_ids_may_contain_url_syntax(client: httpx.Client) -> None:
    space = new_space(client)
    ids = ["a/b", "a,b", "ü%20?", "a/", "' OR 1=1 --"]
    put(client, space, *map(point, ids))
    for id in ids:
        path = f"{space}/features/{httpx.QueryParams({'': id})}".replace("/=", "/", 1)
        assert client.get(path.replace("+", "%20")).json()["id"] == id
    assert found(client.get(f"{space}/features", params={"id": "a,b"})) == ["a,b"]


def test_a_read_without_ids_is_rejected(client: httpx.Client, town: str) -> None:
    error(client.get(f"{town}/features"), 400, "id")


def test_unselected_members_are_omitted(client: httpx.Client, town: str) -> None:
    answer = client.get(f"{town}/features/house-1?selection=p.number").json()
    assert answer["properties"] == {"number": 1}
    nothing = client.get(f"{town}/features/house-1?selection=p.nothing,!geometry").json()
    assert nothing == {"id": "house-1", "type": "Feature", "properties": {}}


def test_altitudes_are_left_out_on_request(client: httpx.Client) -> None:
    space = new_space(client)
    high = point("peak") | {"geometry": {"type": "Point", "coordinates": [1.5, 2.5, 4000.0]}}
    put(client, space, high)
    path = f"{space}/features/peak"
    assert client.get(path).json()["geometry"]["coordinates"] == [1.5, 2.5, 4000.0]
    assert client.get(f"{path}?force2D=true").json()["geometry"]["coordinates"] == [1.5, 2.5]


def test_a_feature_that_is_known_is_not_sent_again(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", size=1))
    path = f"{space}/features/a"
    etag = client.get(path).headers["ETag"]
    again = client.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    other = client.get(f"{path}?selection=p.size", headers={"If-None-Match": etag})
    assert other.status_code == 200
    put(client, space, point("a", size=2))
    assert client.get(path, headers={"If-None-Match": etag}).status_code == 200


def test_a_version_is_read_as_it_was_and_known_for_ever(client: httpx.Client) -> None:
    space = new_space(client)
    first = put(client, space, point("a", size=1))["version"]
    put(client, space, point("a", size=2), point("b"))
    then = client.get(f"{space}/features?id=a,b&versionRef={first}")
    assert found(then) == ["a"]
    assert then.json()["features"][0]["properties"]["size"] == 1
    known = {"If-None-Match": then.headers["ETag"]}
    url = f"{space}/features?id=a,b&versionRef={first}"
    assert client.get(url, headers=known).status_code == 304
    assert client.get(f"{space}/features?id=a&version={first}", headers=known).status_code == 200
    assert "ETag" not in client.get(f"{space}/features?id=a,b").headers
    error(client.get(f"{space}/features?id=a&version=1&versionRef=2"), 400, "version")


def test_all_versions_of_a_feature(client: httpx.Client) -> None:
    space = new_space(client)
    for size in (1, 2, 3):
        put(client, space, point("a", size=size))
    for parameter in ("version=*", "versionRef=*", "versionRef=main:*"):
        answer = client.get(f"{space}/features/a?{parameter}")
        assert found(answer) == ["a", "a", "a"]
        sizes = [feature["properties"]["size"] for feature in answer.json()["features"]]
        assert sizes == [1, 2, 3]


# ---- Writing -------------------------------------------------------------------------------------


def test_written_features_are_reported(client: httpx.Client) -> None:
    space = new_space(client)
    answer = put(client, space, point("a"), point("b"))
    assert answer["type"] == "FeatureCollection"
    assert ids_of(answer["features"]) == ["a", "b"]
    assert answer["features"][0]["properties"][XYZ]["space"] == id_of(space)
    assert answer["inserted"] == ["a", "b"]
    assert isinstance(answer["version"], int)
    assert not {"updated", "deleted", "failed", "notices", "violations"} & set(answer)
    again = put(client, space, point("b", size=2), point("c"))
    assert (again["inserted"], again["updated"]) == (["c"], ["b"])
    assert again["version"] == answer["version"] + 1


def test_a_feature_alone_is_a_body_too(client: httpx.Client) -> None:
    space = new_space(client)
    for send in (client.post, client.put):
        answer = send(f"{space}/features", json=point("alone"), headers=GEO_JSON)
        assert ids_of(answer.json()["features"]) == ["alone"]


def test_responses_can_have_no_body(client: httpx.Client) -> None:
    space = new_space(client)
    headers = {"Accept": "application/x-empty"}
    for send in (client.post, client.put):
        answer = send(f"{space}/features", json=point("a"), headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"{space}/features/a").status_code == 200
    put_one = client.put(f"{space}/features/b", json=point("b", size=1), headers=headers)
    patched = client.patch(f"{space}/features/b", json={"properties": {"n": 1}}, headers=headers)
    for answer in (put_one, patched):
        assert (answer.status_code, answer.content) == (204, b"")
    both = client.get(f"{space}/features/b").json()["properties"]
    assert (both["size"], both["n"]) == (1, 1)
    missing = client.patch(f"{space}/features/none", json={"properties": {}}, headers=headers)
    assert error(missing, 404)["errorMessage"] == MISSING


def test_the_id_in_the_path_counts(client: httpx.Client) -> None:
    space = new_space(client)
    answer = client.put(f"{space}/features/real", json=point("other", size=1))
    assert answer.status_code == 200
    assert answer.json()["id"] == "real"
    assert client.get(f"{space}/features/other").status_code == 404
    patched = client.patch(f"{space}/features/real", json={"properties": {"name": "x"}})
    assert patched.status_code == 200
    assert {"size": 1, "name": "x"}.items() <= patched.json()["properties"].items()
    replaced = client.put(f"{space}/features/real", json=point(None, name="y"))
    assert "size" not in replaced.json()["properties"]


def test_tags_are_added_and_removed(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", tags=["Old", "kept"]), addTags="New,x", removeTags="old")
    tags = client.get(f"{space}/features/a").json()["properties"][XYZ]["tags"]
    assert sorted(tags) == ["kept", "new", "x"]


def test_ids_get_their_prefix(client: httpx.Client) -> None:
    space = new_space(client)
    assert put(client, space, point("a"), prefixId="north:")["inserted"] == ["north:a"]


def test_rules_for_existing_and_missing_features(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", size=1))
    path = f"{space}/features"
    patched = client.post(path, json=point("a", name="x"))
    assert {"size": 1, "name": "x"}.items() <= patched.json()["features"][0]["properties"].items()
    error(client.post(f"{path}?e=error", json=point("a", size=9)), 409)
    error(client.post(f"{path}?ne=error", json=point("new")), 404)
    client.post(f"{path}?e=retain", json=point("a", size=9))
    assert client.get(f"{path}/a").json()["properties"]["size"] == 1
    client.post(f"{path}?ne=retain", json=point("new"))
    assert client.get(f"{path}/new").status_code == 404
    client.post(f"{path}?e=delete", json=point("a"))
    assert client.get(f"{path}/a").status_code == 404
    error(client.post(f"{path}?e=explode", json=point("a")), 400, "e")


def test_a_list_of_modifications_has_rules_of_its_own(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", size=1), point("b"), point("gone"))
    body = {
        "type": "FeatureModificationList",
        "modifications": [
            {
                "type": "FeatureModification",
                "onFeatureExists": "replace",
                "featureData": collection(point("a", name="x"), point("c")),
            },
            {"type": "FeatureModification", "onFeatureExists": "delete", "featureIds": ["gone"]},
        ],
    }
    headers = {"Content-Type": "application/vnd.here.feature-modification-list"}
    answer = client.post(f"{space}/features", json=body, headers=headers).json()
    assert (answer["inserted"], answer["updated"], answer["deleted"]) == (["c"], ["a"], ["gone"])
    body["modifications"][1]["onFeatureExists"] = "explode"  # type: ignore[index]
    wrong = client.post(f"{space}/features", json=body, headers=headers)
    error(wrong, 400, "modifications[1].onFeatureExists")


@pytest.mark.parametrize(
    ("rule", "size"), [(None, None), ("error", None), ("retain", 2), ("replace", 3)]
)
def test_a_merge_has_a_rule_for_conflicts(
    client: httpx.Client, rule: str | None, size: int | None
) -> None:
    """By the query string, and in a list of modifications."""
    space = new_space(client)
    for id in ("a", "b"):
        (old,) = put(client, space, point(id, size=1, kept=1))["features"]
        put(client, space, point(id, size=2, kept=1, theirs=1))
        old["properties"] |= {"size": 3, "ours": 1}
        one: dict[str, Any] = {"onFeatureExists": "merge", "featureData": collection(old)}
        body: dict[str, Any] = {"type": "FeatureModificationList", "modifications": [one]}
        if id == "a":
            if rule is not None:
                one["onMergeConflict"] = rule
            answer = client.post(f"{space}/features", json=body)
        else:
            query = {"e": "merge"} if rule is None else {"e": "merge", "cr": rule}
            answer = client.post(f"{space}/features", json=old, params=query)
        if size is None:
            error(answer, 409)
            continue
        assert answer.status_code == 200, answer.text
        merged = client.get(f"{space}/features/{id}").json()["properties"]
        merged.pop(XYZ)
        assert merged == {"size": size, "kept": 1, "theirs": 1, "ours": 1}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body.type"),
        (b'{"type":"Banana"}', "body.type"),
        (b'{"type":"FeatureCollection","features":7}', "features"),
        (b'{"type":"FeatureCollection","features":[{"type":"Feature"},7]}', "features[1]"),
        (b'{"type":"FeatureModificationList","modifications":[7]}', "modifications[0]"),
        (b"[" * 100_000, "body"),
    ],
)
def test_a_body_without_features_is_refused(
    client: httpx.Client, town: str, body: bytes, field: str
) -> None:
    error(client.post(f"{town}/features", content=body, headers=GEO_JSON), 400, field)


def test_nothing_is_written_if_something_is_wrong(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("old"))
    broken = point("broken") | {"geometry": {"type": "Point", "coordinates": ["east", 1]}}
    answer = client.put(f"{space}/features", json=collection(point("good"), broken))
    assert error(answer, 400)["featureId"] == "broken"
    assert client.get(f"{space}/features/good").status_code == 404


@pytest.mark.parametrize("accept", ["application/geo+json", "application/x-empty"])
def test_partial_failures_are_visible(client: httpx.Client, accept: str) -> None:
    space = new_space(client)
    broken = point("broken") | {"geometry": {"type": "Point", "coordinates": ["east", 1]}}
    answer = client.post(
        f"{space}/features?transactional=false",
        json=collection(point("first"), broken, point("last")),
        headers={"Accept": accept},
    )
    assert answer.status_code == 200
    assert answer.headers["Failed-Features"] == "1"
    body = answer.json()
    assert body["inserted"] == ["first", "last"]
    assert body["failedCount"] == 1
    (failure,) = body["failed"]
    assert (failure["id"], failure["position"]) == ("broken", 1)
    assert failure["message"]


def test_if_everything_failed_it_is_an_error(client: httpx.Client) -> None:
    space = new_space(client)
    broken = point("broken") | {"geometry": {"type": "Point", "coordinates": ["east", 1]}}
    answer = client.post(f"{space}/features?transactional=false", json=collection(broken, broken))
    body = error(answer, 400)
    assert body["failedCount"] == len(body["failed"]) >= 1


def test_the_response_names_the_action(client: httpx.Client) -> None:
    space = new_space(client)
    line = {"type": "LineString", "coordinates": [[179, 10], [181, 10]]}
    answer = put(client, space, point("plain"), point("way") | {"geometry": line})
    (notice,) = answer["notices"]
    assert (notice["id"], notice["position"]) == ("way", 1)
    assert notice["message"]
    assert answer["features"][1]["geometry"]["type"] == "MultiLineString"


def test_a_stale_feature_is_a_conflict_on_request(client: httpx.Client) -> None:
    space = new_space(client)
    old = put(client, space, point("a", size=1))["features"][0]
    put(client, space, point("a", size=2))
    old["properties"]["size"] = 3
    del old["properties"][XYZ]["uuid"]
    path = f"{space}/features"
    error(client.put(f"{path}?conflictDetection=true", json=old), 409)
    told = error(client.put(f"{path}/a?conflictDetection=true", json=old), 409)
    assert told["head"]["properties"]["size"] == 2
    assert client.get(f"{path}/a").json()["properties"]["size"] == 2
    assert client.put(path, json=old).status_code == 200


def test_the_last_of_equal_ids_counts(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", size=1), point("a", size=2))
    assert client.get(f"{space}/features/a").json()["properties"]["size"] == 2


# ---- Deleting ------------------------------------------------------------------------------------


def test_a_deleted_feature_is_gone(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"))
    answer = client.delete(f"{space}/features/a")
    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"{space}/features/a").status_code == 404


def test_deleted_features_are_returned_on_request(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(id) for id in "abcd"))
    answer = client.delete(f"{space}/features?id=a%2Cb")
    assert (answer.status_code, answer.content) == (204, b"")
    headers = {"Accept": "application/geo+json"}
    told = client.delete(f"{space}/features?id=b,c&id=d", headers=headers)
    assert told.status_code == 200
    assert told.json()["deleted"] == ["c", "d"]
    assert client.get(f"{space}/count").json()["count"] == 0


def test_features_are_deleted_by_their_tags(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", tags=["x"]), point("b", tags=["x", "y"]), point("c", tags=["z"]))
    client.delete(f"{space}/features?tags=x+y,z")
    assert found(client.get(f"{space}/search")) == ["a"]


@pytest.mark.parametrize("query", ["id=*", "tags=*", "eraseContent=true"])
def test_all_features_are_deleted(client: httpx.Client, query: str) -> None:
    space = new_space(client)
    put(client, space, point("a", tags=["x"]), point("b"))
    assert client.delete(f"{space}/features?{query}").status_code == 204
    assert found(client.get(f"{space}/search")) == []


def test_a_deletion_needs_ids_or_tags(client: httpx.Client, town: str) -> None:
    error(client.delete(f"{town}/features"), 400, "id")
    assert len(found(client.get(f"{town}/search"))) == 5


# ---- Spaces that extend others ---------------------------------------------------------------


def test_a_deletion_in_the_extension_is_shown_and_withdrawn(client: httpx.Client) -> None:
    base = new_space(client)
    put(client, base, point("a", name="base"))
    space = new_space(client, extends={"spaceId": id_of(base)})
    put(client, space, point("a", name="own"))
    url, extension = f"{space}/features/a", {"context": "extension"}
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == 404
    shown = client.get(url, params=extension).json()
    assert shown["properties"].keys() == {XYZ}
    assert shown["properties"][XYZ]["deleted"] is True
    assert client.delete(url, params=extension).status_code == 204
    assert client.get(url, params=extension).status_code == 404
    assert client.delete(url, params=extension).status_code == 404
    assert client.get(url).json()["properties"]["name"] == "base"


def test_a_version_of_the_base_is_overwritten_once(client: httpx.Client) -> None:
    base = new_space(client)
    put(client, base, point("a", name="base"))
    space = new_space(client, extends={"spaceId": id_of(base)})
    url, detects = f"{space}/features", {"conflictDetection": "true"}
    read = client.get(f"{url}/a").json()["properties"][XYZ]["version"]
    statuses = []
    for name in ("first", "second"):
        feature = point("a", name=name)
        feature["properties"][XYZ] = {"version": read}
        statuses.append(client.post(url, params=detects, json=collection(feature)).status_code)
    assert statuses == [200, 409]
    assert client.get(f"{url}/a").json()["properties"]["name"] == "first"


# ---- The date line -----------------------------------------------------------------------------

RUNWAY = {"type": "LineString", "coordinates": [[-179.5, 51], [179.6, 51]]}


def test_a_space_sets_the_date_line_handling(client: httpx.Client) -> None:
    runway = point("runway") | {"geometry": RUNWAY}
    for setting, kind in (({}, "MultiLineString"), ({"dateline": "split"}, "MultiLineString")):
        answer = put(client, new_space(client, **setting), runway)
        assert answer["features"][0]["geometry"]["type"] == kind
        assert len(answer["notices"]) == 1
    answer = put(client, new_space(client, dateline="keep"), runway)
    assert answer["features"][0]["geometry"] == RUNWAY
    assert "notices" not in answer
    refusing = new_space(client, dateline="refuse")
    refused = client.put(f"{refusing}/features", json=collection(point("fine"), runway))
    assert "date line" in error(refused, 400)["errorMessage"]
    assert found(client.get(f"{refusing}/search")) == []
    put(client, refusing, point("fine"))
    assert client.patch(refusing, json={"dateline": "keep"}).json()["dateline"] == "keep"
    assert put(client, refusing, runway)["features"][0]["geometry"] == RUNWAY
    error(client.post("/spaces", json={"title": "x", "dateline": "bend"}), 400)


def test_a_written_feature_comes_back_with_its_notice(client: httpx.Client) -> None:
    space = new_space(client)
    for write in (client.put, client.patch):
        answer = write(f"{space}/features/runway", json=point("runway") | {"geometry": RUNWAY})
        (notice,) = answer.json()["properties"][XYZ]["notices"]
        assert "date line" in notice
        assert answer.headers["Notices"] == "1"
        assert write(f"{space}/features/runway", json=answer.json()).status_code == 200
        read = client.get(f"{space}/features/runway").json()
        assert "notices" not in read["properties"][XYZ]
    headers = {"Accept": "application/x-empty"}
    sent = collection(point("way") | {"geometry": RUNWAY})
    answer = client.put(f"{space}/features", json=sent, headers=headers)
    assert (answer.status_code, answer.headers["Notices"]) == (204, "1")

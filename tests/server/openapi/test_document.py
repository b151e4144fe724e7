"""Agreement of the OpenAPI document with the actual responses."""

from typing import Any

import httpx
import pytest

from naksha.server.app import create_app
from naksha.server.openapi.descriptions import EXAMPLES
from naksha.server.openapi.feature_schemas import MODIFICATIONS
from naksha.server.process.settings import ServerSettings

PATHS = {
    "/hub/spaces/{space_id}/features": {"get", "post", "put", "delete"},
    "/hub/spaces/{space_id}/features/{feature_id}": {"get", "put", "patch", "delete"},
    "/hub/spaces/{space_id}/search": {"get"},
    "/hub/spaces/{space_id}/count": {"get"},
    "/hub/spaces/{space_id}/bbox": {"get"},
    "/hub/spaces/{space_id}/tile/{type}/{tileId}": {"get"},
    "/hub/spaces/{space_id}/spatial": {"get", "post"},
    "/hub/spaces/{space_id}/spatial/batch": {"post"},
    "/hub/spaces/{space_id}/iterate": {"get"},
    "/hub/spaces/{space_id}/statistics": {"get"},
}


@pytest.fixture(scope="module")
def document() -> Any:
    return create_app(ServerSettings()).openapi()


def test_every_endpoint_is_declared(document: Any) -> None:
    for path, methods in PATHS.items():
        assert set(document["paths"][path]) == methods


def test_every_answer_is_declared(document: Any) -> None:
    for path, methods in PATHS.items():
        for method in methods:
            answers = document["paths"][path][method]["responses"]
            assert {"400", "401", "403", "404", "410", "413", "500", "503"} <= set(answers)
            assert "422" not in answers
            for status, answer in answers.items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/ErrorResponse"}


def test_parameters_have_the_names_that_clients_use(document: Any) -> None:
    parameters = {
        parameter["name"]
        for path in PATHS
        for operation in document["paths"][path].values()
        for parameter in operation["parameters"]
    }
    assert parameters >= {
        *("id", "selection", "force2D", "skipCache", "context", "versionRef", "version", "author"),
        *("e", "ne", "cr", "transactional", "prefixId", "addTags", "removeTags", "tags", "limit"),
        *("conflictDetection", "eraseContent", "fastMode", "west", "north", "east", "south"),
        *("clip", "clustering", "clustering.absoluteResolution", "clustering.resolution"),
        *("clustering.relativeResolution", "clustering.property", "clustering.pointmode"),
        *("clustering.singlecoord", "clustering.sampling", "clustering.noBuffer"),
        *("clustering.countmode", "tweaks", "tweaks.strength", "tweaks.algorithm", "margin"),
        *("mode", "vizSampling", "lat", "lon", "refSpaceId", "refFeatureId", "h3Index", "radius"),
        *("handle", "sort", "part", "propertyQuery"),
    }


def test_every_reference_leads_somewhere(document: Any) -> None:
    schemas = document["components"]["schemas"]

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_everything_in_the_document_is_described(document: Any) -> None:
    assert document["info"]["description"]
    known = {tag["name"] for tag in document["tags"] if tag["description"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {*operation["tags"]} <= known
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), (path, method, parameter["name"])
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                assert "example" in content or media == MODIFICATIONS, (path, method)


def test_every_example_is_of_an_endpoint_and_can_be_sent(client: httpx.Client) -> None:
    paths = create_app(ServerSettings()).openapi()["paths"]
    assert all(method in paths[path] for method, path in EXAMPLES)
    for id in ("edits", "motorways", "schools"):
        client.post("/spaces", json={"id": id})
    destination = {"className": "to-space", "properties": {"spaceId": "motorways"}}
    client.post("/connectors", json={"id": "notify-search", **destination})
    names = {"space_id": "roads", "connector_id": "layers", "role_id": "editor", "tag_id": "summer"}
    names["meta_id"] = "survey"
    names |= {"feature_id": "main-street", "branch_id": "fix", "subscription_id": "search"}
    for (method, path), example in EXAMPLES.items():
        if "storages" in path or path == "/hub/handlers" or path.endswith(("/revert", "/move")):
            continue  # a missing server, a deprecated name, an object of another owner
        where = path.format(**names).removeprefix("/hub")
        answer = client.request(method, where, json=example)
        assert answer.is_success, (method, where, answer.text)

"""The OpenAPI document says what is answered."""

from typing import Any

import pytest

from naksha.server.app import create_app
from naksha.server.settings import Settings

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
    return create_app(Settings()).openapi()


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

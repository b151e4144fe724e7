"""A request for every operation of the hub, on objects whose names begin with a given word."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from naksha.server.app import create_app
from naksha.server.process.settings import ServerSettings
from tests.server.towns import collection, point

DOCUMENT: dict[str, Any] = create_app(ServerSettings()).openapi()
OPERATIONS = [
    f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods
]
OPEN = {"GET /hub", "GET /hub/health-status", "GET /token-api/tokens/{token}"}
"""Operations that need no token."""
WITHOUT_RIGHTS = OPEN | {
    "GET /hub/me",
    "GET /metrics",
    "GET /ogc",
    "GET /ogc/conformance",
    "GET /ogc/tileMatrixSets",
    "GET /ogc/tileMatrixSets/{tileMatrixSetId}",
}
"""Operations that a token without rights allows."""
MINE = "mine"
"""A space of the caller."""


@dataclass(frozen=True)
class Ask:
    """A request to send."""

    operation: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    ids: dict[str, str] = field(default_factory=dict)

    def send(self, client: httpx.Client, word: str, headers: dict[str, str]) -> httpx.Response:
        """The answer, with the word in the place of `WORD`."""
        method, path = self.operation.split(" ")
        ids = {**IDS, **self.ids}
        request = client.build_request(
            method,
            path.format_map(ids).replace("WORD", word),
            params={name: value.replace("WORD", word) for name, value in self.query.items()},
            json=_worded(self.body, word),
            headers=headers,
        )
        return client.send(request)


def _worded(value: Any, word: str) -> Any:
    if isinstance(value, str):
        return value.replace("WORD", word)
    if isinstance(value, dict):
        return {_worded(name, word): _worded(one, word) for name, one in value.items()}
    return [_worded(one, word) for one in value] if isinstance(value, list) else value


IDS = {
    "space_id": "WORD-space",
    "feature_id": "WORD-feature",
    "tag_id": "WORD-tag",
    "branch_id": "WORD-branch",
    "connector_id": "WORD-connector",
    "storage_id": "WORD-storage",
    "role_id": "WORD-role",
    "subscription_id": "WORD-subscription",
    "job_id": "WORD-job",
    "collection_id": "WORD-collection",
    "snapshot_id": "WORD-snapshot",
    "meta_id": "WORD-meta",
    "state_id": "naksha:WORD-space:2026:11:16:1",
    "transaction_id": "2026111600000000003",
    "version": "1",
    "type": "web",
    "tileId": "0_0_0",
    "tileMatrixSetId": "WebMercatorQuad",
    "tileMatrix": "0",
    "tileRow": "0",
    "tileCol": "0",
    "token": "WORD",
}
_BOX = {"west": "-180", "south": "-90", "east": "180", "north": "90"}
_FEATURES = collection(point("WORD-feature", 1, 1, text="WORD-text"))
_FEATURE = point("WORD-feature", 1, 1, text="WORD-text")
_SPACE = "/hub/spaces/{space_id}"
_COLLECTION = "/hub/storages/{storage_id}/collections/{collection_id}"
_OWN = {"space_id": MINE}
_POINT = {"type": "Point", "coordinates": [1, 1]}

_ONE = "{subscription_id}"
_SUBSCRIPTION = {"id": "WORD-subscription", "eventHandlerIds": ["WORD-connector"]}


def _virtual(kind: str, space: str) -> dict[str, Any]:
    return {"id": "virtualspace", "params": {"virtualspace": {kind: [space]}}}


_ASKED = [
    Ask("GET /hub"),
    Ask("GET /hub/health-status", {"detailed": "true"}),
    Ask("GET /hub/me"),
    Ask("GET /metrics"),
    *(Ask(f"GET /ogc{path}") for path in ("", "/conformance", "/tileMatrixSets")),
    Ask("GET /ogc/tileMatrixSets/{tileMatrixSetId}"),
    Ask("GET /token-api/tokens/{token}"),
    # ---- What is configured
    Ask("GET /hub/spaces", {"owner": "*", "includeConnectors": "true", "includeCounts": "true"}),
    Ask("POST /hub/spaces", body={"id": "one", "extends": {"spaceId": "WORD-space"}}),
    Ask("POST /hub/spaces", body={"id": "two", "eventHandlerIds": ["WORD-connector"]}),
    Ask("POST /hub/spaces", body={"id": "three", "storage": {"id": "WORD-storage"}}),
    *(
        Ask("POST /hub/spaces", body={"id": kind, "storage": _virtual(kind, "WORD-space")})
        for kind in ("group", "merge", "override")
    ),
    Ask("POST /hub/spaces", body={"id": "WORD-space", "title": "x"}),
    Ask(f"GET {_SPACE}"),
    Ask(f"PATCH {_SPACE}", body={"title": "y"}),
    Ask(f"PUT {_SPACE}", body={"id": "WORD-space", "title": "z"}),
    Ask(f"DELETE {_SPACE}"),
    Ask(f"POST {_SPACE}/provenance", body={"source": "x"}),
    *(
        Ask(operation)
        for path in ("handlers", "connectors")
        for operation in (
            f"GET /hub/{path}",
            f"GET /hub/{path}/{{connector_id}}",
            f"DELETE /hub/{path}/{{connector_id}}",
        )
    ),
    Ask(
        "POST /hub/handlers",
        body={"id": "over", "className": "view", "properties": {"spaceIds": ["WORD-space"]}},
    ),
    Ask("POST /hub/handlers", body={"id": "WORD-connector", "className": "read-only"}),
    Ask("POST /hub/connectors", body={"id": "WORD-connector-2", "className": "read-only"}),
    Ask("PUT /hub/handlers/{connector_id}", body={"className": "read-only"}),
    Ask("PATCH /hub/connectors/{connector_id}", body={"title": "y"}),
    Ask("GET /hub/storages"),
    Ask("GET /hub/storages/{storage_id}"),
    Ask(
        "POST /hub/storages",
        {"check": "false"},
        body={"id": "WORD-storage", "active": False, "properties": {"location": "file:new.naksha"}},
    ),
    Ask(
        "PUT /hub/storages/{storage_id}",
        {"check": "false"},
        body={"properties": {"location": "file:new.naksha"}},
    ),
    Ask("DELETE /hub/storages/{storage_id}"),
    Ask("GET /hub/storages/{storage_id}/collections", {"dropped": "true"}),
    Ask(f"GET {_COLLECTION}"),
    Ask(f"PATCH {_COLLECTION}", body={"maxAge": 10}),
    Ask(f"DELETE {_COLLECTION}"),
    Ask(f"POST {_COLLECTION}/restore"),
    Ask("GET /hub/storages/{storage_id}/snapshots"),
    Ask("POST /hub/storages/{storage_id}/snapshots", body={"id": "WORD-snapshot"}),
    Ask("GET /hub/storages/{storage_id}/snapshots/{snapshot_id}"),
    Ask("DELETE /hub/storages/{storage_id}/snapshots/{snapshot_id}"),
    Ask("GET /hub/configuration/changes"),
    Ask("GET /hub/roles"),
    Ask("POST /hub/roles", body={"id": "WORD-role", "urm": {}}),
    Ask("GET /hub/roles/{role_id}"),
    Ask("PUT /hub/roles/{role_id}", body={"urm": {}}),
    Ask("PATCH /hub/roles/{role_id}", body={"title": "y"}),
    Ask("DELETE /hub/roles/{role_id}"),
    Ask("GET /hub/instances"),
    *(
        Ask(operation)
        for path in ("/hub/subscriptions", f"{_SPACE}/subscriptions")
        for operation in (f"GET {path}", f"GET {path}/{_ONE}", f"DELETE {path}/{_ONE}")
    ),
    Ask("POST /hub/subscriptions", body={**_SUBSCRIPTION, "source": {"spaceId": "WORD-space"}}),
    Ask("POST /hub/subscriptions", body={**_SUBSCRIPTION, "source": {"storageId": "WORD-storage"}}),
    Ask("POST /hub/subscriptions", body={**_SUBSCRIPTION, "source": {"spaceId": MINE}}),
    Ask(f"POST {_SPACE}/subscriptions", body=_SUBSCRIPTION),
    Ask(f"PUT {_SPACE}/subscriptions/{_ONE}", body=_SUBSCRIPTION),
    Ask(f"PUT /hub/subscriptions/{_ONE}", body=_SUBSCRIPTION),
    Ask(f"PATCH /hub/subscriptions/{_ONE}", body={"title": "y"}),
    Ask(f"POST /hub/subscriptions/{_ONE}/reset", body={"since": "beginning"}),
    Ask(f"POST /hub/subscriptions/{_ONE}/move", body={"instance": "WORD"}),
    Ask("GET /hub/job-kinds"),
    Ask("GET /hub/jobs"),
    Ask("POST /hub/jobs", body={"id": "WORD-job", "job": "partition", "spaceId": "WORD-space"}),
    Ask("POST /hub/jobs", body={"id": "WORD-job", "job": "partition", "storageId": "WORD-storage"}),
    Ask("GET /hub/jobs/{job_id}"),
    Ask("GET /hub/jobs/{job_id}/log"),
    Ask("POST /hub/jobs/{job_id}/cancel"),
    Ask("DELETE /hub/jobs/{job_id}"),
    Ask("GET /hub/maintenance"),
    Ask("POST /hub/maintenance", {"dryRun": "true"}),
    Ask("GET /hub/maintenance/{storage_id}"),
    Ask("POST /hub/maintenance/{storage_id}", {"dryRun": "true"}),
    Ask("GET /hub/states/{state_id}"),
    Ask("GET /hub/transactions/{transaction_id}"),
    # ---- Features
    *(Ask(f"GET {_SPACE}/{path}", {"tags": "WORD-tag"}) for path in ("search", "count", "iterate")),
    Ask(f"GET {_SPACE}/statistics"),
    Ask(f"GET {_SPACE}/features/{{feature_id}}"),
    Ask(f"GET {_SPACE}/features", {"id": "WORD-feature"}),
    Ask(f"GET {_SPACE}/bbox", _BOX),
    Ask(f"GET {_SPACE}/bbox", {**_BOX, "clustering": "hexbin"}),
    Ask(f"GET {_SPACE}/tile/{{type}}/{{tileId}}"),
    Ask(f"GET {_SPACE}/tile/{{type}}/{{tileId}}", ids={"tileId": "0_0_0.mvt"}),
    Ask(f"GET {_SPACE}/tilejson"),
    Ask(f"GET {_SPACE}/style"),
    *(
        Ask(f"GET /ogc/collections/{{space_id}}/tiles{path}")
        for path in (
            *("", "/{tileMatrixSetId}"),
            "/{tileMatrixSetId}/{tileMatrix}/{tileRow}/{tileCol}",
        )
    ),
    Ask(f"GET {_SPACE}/spatial", {"lat": "1", "lon": "1", "radius": "10"}),
    Ask(f"GET {_SPACE}/spatial", {"refSpaceId": "WORD-space", "refFeatureId": "WORD-feature"}),
    Ask(
        f"GET {_SPACE}/spatial",
        {"refSpaceId": "WORD-space", "refFeatureId": "WORD-feature"},
        ids=_OWN,
    ),
    Ask(f"POST {_SPACE}/spatial", body=_POINT),
    Ask(f"POST {_SPACE}/spatial/batch", body={"refSpaceId": MINE}),
    Ask(f"POST {_SPACE}/spatial/batch", body={"refSpaceId": "WORD-space"}, ids=_OWN),
    Ask(f"POST {_SPACE}/features", body=_FEATURES),
    Ask(f"PUT {_SPACE}/features", body=_FEATURES),
    Ask(f"PUT {_SPACE}/features/{{feature_id}}", body=_FEATURE),
    Ask(f"PATCH {_SPACE}/features/{{feature_id}}", body={"properties": {"a": 1}}),
    Ask(f"DELETE {_SPACE}/features/{{feature_id}}"),
    Ask(f"DELETE {_SPACE}/features", {"id": "WORD-feature"}),
    Ask(f"DELETE {_SPACE}/features", {"eraseContent": "true"}),
    Ask(f"POST {_SPACE}/copy", body={"targetSpaceId": MINE}),
    Ask(f"POST {_SPACE}/copy", body={"targetSpaceId": "WORD-space"}, ids=_OWN),
    # ---- Versions
    *(
        Ask(f"GET {_SPACE}/{path}")
        for path in (
            *("changesets", "changesets/statistics", "changesets/{version}", "history", "log"),
            *("history/statistics", "tags", "tags/{tag_id}", "branches", "branches/{branch_id}"),
            *("branches/{branch_id}/conflicts", "features/{feature_id}/history"),
        )
    ),
    Ask(f"GET {_SPACE}/deleted"),
    Ask(f"DELETE {_SPACE}/deleted", {"id": "WORD-feature"}),
    Ask(f"GET {_SPACE}/meta"),
    Ask(f"GET {_SPACE}/meta/{{meta_id}}"),
    Ask(f"PUT {_SPACE}/meta/{{meta_id}}", body={"id": "WORD-meta"}),
    Ask(f"DELETE {_SPACE}/meta/{{meta_id}}"),
    Ask(f"GET {_SPACE}/changes", {"since": "0"}),
    Ask("GET /hub/storages/{storage_id}/changes", {"since": "0", "collection": "WORD-space"}),
    Ask(f"GET {_SPACE}/diff", {"versionRef": "0..HEAD"}),
    Ask(f"GET {_SPACE}/diff", {"versionRef": "WORD-tag", "other": "HEAD"}, ids=_OWN),
    Ask(f"GET {_SPACE}/search", {"versionRef": "WORD-tag"}, ids=_OWN),
    Ask(f"GET {_SPACE}/search", {"versionRef": "WORD-branch:HEAD"}, ids=_OWN),
    Ask(f"GET {_SPACE}/branches/{{branch_id}}", ids=_OWN),
    Ask(f"GET {_SPACE}/tags/{{tag_id}}", ids=_OWN),
    Ask(f"DELETE {_SPACE}/changesets", {"version": "lt=2"}),
    Ask(f"POST {_SPACE}/tags", body={"id": "WORD-tag"}),
    Ask(f"PATCH {_SPACE}/tags/{{tag_id}}", body={"description": "y"}),
    Ask(f"DELETE {_SPACE}/tags/{{tag_id}}"),
    Ask(f"POST {_SPACE}/branches", body={"id": "WORD-branch"}),
    Ask(f"PATCH {_SPACE}/branches/{{branch_id}}", body={"description": "y"}),
    Ask(f"PATCH {_SPACE}/branches/{{branch_id}}", body={"id": "WORD-renamed"}),
    Ask(f"POST {_SPACE}/branches/{{branch_id}}", body={"type": "Merge"}),
    Ask(f"DELETE {_SPACE}/branches/{{branch_id}}"),
    Ask(f"POST {_SPACE}/rollback", body={"versionRef": "1"}),
    Ask(f"POST {_SPACE}/revert", body={"version": 1}),
]


def _is_named(ask: Ask) -> bool:
    """Whether it makes something that has the word in its name."""
    return str(ask.body["id"]).startswith("WORD")


_MAKE = {f"POST /hub/{kind}" for kind in ("handlers", "connectors", "storages", "roles", "spaces")}
# The creator of an object gets rights to it, so that creations come last.
ASKED = sorted(
    _ASKED, key=lambda ask: (ask.operation in _MAKE, ask.operation in _MAKE and _is_named(ask))
)


def covered() -> set[str]:
    """The operations that there is a request for."""
    return {ask.operation for ask in ASKED}

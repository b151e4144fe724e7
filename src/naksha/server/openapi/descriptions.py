"""Descriptions in the OpenAPI document: introduction, tags, parameters and example bodies."""

from __future__ import annotations

from typing import Any, Final

_INTRODUCTION: Final = """
A hub for versioned features. Clients access *spaces*; every write to a space creates a version that
can be read, compared, tagged, branched, merged and restored.

Bodies are JSON, whatever their `Content-Type`. An error is an `ErrorResponse`: `errorMessage`
describes the problem and the remedy, `field` names the parameter or member, and `streamId`
identifies the request in the server's log. Unknown parameters are ignored.
"""
TAGS: Final = {
    "operation": "Health, metrics and instances of the hub.",
    "spaces": "Public names of feature collections, each with a pipeline.",
    "connectors": "Configurations of event handlers, the stages of a space's pipeline.",
    "storages": "Databases and files that hold collections of features.",
    "configuration": "Change log of the configuration.",
    "subscriptions": "Ordered at-least-once delivery of changes to connectors.",
    "jobs": "Spark jobs on whole collections.",
    "roles": "Named rights matrices that tokens refer to.",
    "lookup": "States and transactions by id, in any storage.",
    "features": "Read, search and write features.",
    "changes": "Change feeds: pages with long polling, or event streams.",
    "ogc": "OGC API – Tiles: the vector tiles of each space, as a collection, in two grids.",
    "versions": "Changesets, tags, branches, merges, diffs, rollback and revert.",
}
_PARAMETERS: Final = {
    "space_id": "The id of the space.",
    "connector_id": "The id of the connector.",
    "storage_id": "The id of the storage.",
    "role_id": "The id of the role.",
    "subscription_id": "The id of the subscription.",
    "job_id": "The id of the job.",
    "feature_id": "The id of the feature.",
    "branch_id": "The name of the branch.",
    "tag_id": "The name of the tag.",
    "meta_id": "The id of the meta feature.",
    "collection_id": "The id of the collection.",
    "snapshot_id": "The name of the snapshot.",
    "state_id": "The GUID (`uuid` of the feature's namespace) or UUID of the state.",
    "transaction_id": "The number (`txn`) or UUID of the transaction.",
    "token": "The token.",
    "type": "Tile scheme: `web` (`8_134_86`), `tms`, `quadkey` (`12020321`) or `here`.",
    "tileMatrixSetId": "The grid: `WebMercatorQuad` or `WorldCRS84Quad`.",
    "tileMatrix": "The level of the tile.",
    "tileRow": "The row of the tile, from the north.",
    "tileCol": "The column of the tile, from the west.",
    "version": "The number of the version.",
    "versionRef": "A version, or a range such as `3..9`; `*` means all.",
    "includeSystemTags": "Include tags that programs created for their own use.",
    "context": "Layer of a space that extends another one to write to; `super` is read-only.",
    "startVersion": "The first version.",
    "endVersion": "The last version.",
    "startTime": "Earliest time (epoch milliseconds), inclusive.",
    "endTime": "Latest time (epoch milliseconds), inclusive.",
    "pageToken": "The `nextPageToken` of the previous page.",
    "limit": "Maximum number of items to return.",
    "west": "Western edge in degrees; a box with `west` > `east` crosses the antimeridian.",
    "south": "Southern edge in degrees.",
    "east": "Eastern edge in degrees.",
    "north": "Northern edge in degrees.",
    "lat": "Latitude of a point; requires `lon`.",
    "lon": "Longitude of a point; requires `lat`.",
    "refSpaceId": "Space of the feature to search around; requires `refFeatureId`.",
    "refFeatureId": "Id of the feature to search around; requires `refSpaceId`.",
    "h3Index": "H3 cell to search in.",
    "tweaks.strength": "Degree of the reduction: 1 to 100, or low, lowmed, med, medhigh, high.",
}
"""Descriptions of parameters that have none of their own, by name."""

_SPACE: Final = "/hub/spaces/{space_id}"
_FEATURE: Final = {
    "type": "Feature",
    "id": "main-street",
    "geometry": {"type": "LineString", "coordinates": [[8.6, 50.11], [8.68, 50.11]]},
    "properties": {"name": "Main Street", "speed": 50},
}
_FEATURES: Final = {"type": "FeatureCollection", "features": [_FEATURE]}
_PATCH: Final = {"type": "Feature", "properties": {"speed": 30}}
_VIEW: Final = {"id": "layers", "className": "view", "properties": {"spaceIds": ["edits", "roads"]}}
_ROLE: Final = {"id": "editor", "urm": {"naksha": {"useSpaces": [{}], "updateFeatures": [{}]}}}
_STORAGE: Final = {"id": "maps", "properties": {"location": "postgresql://maps@db/maps"}}
_SUBSCRIPTION: Final = {
    "id": "search",
    "source": {"spaceId": "roads"},
    "filter": {"properties": "p.speed>50"},
    "eventHandlerIds": ["notify-search"],
}
_AS_IN_XYZ: Final = {
    "id": "each-road",
    "destination": "notify-search",
    "config": {"type": "PER_FEATURE"},
}
_ONE: Final = "/hub/subscriptions/{subscription_id}"
EXAMPLES: Final[dict[tuple[str, str], Any]] = {
    ("post", "/hub/spaces"): {"id": "roads", "title": "Roads"},
    ("put", _SPACE): {"id": "roads", "title": "All roads"},
    ("patch", _SPACE): {"title": "All roads", "description": None},
    ("post", f"{_SPACE}/provenance"): {"source": "survey-2026.geojson", "tool": "curl"},
    ("post", f"{_SPACE}/copy"): {"targetSpaceId": "motorways", "onFeatureExists": "replace"},
    **{("post", f"/hub/{name}"): _VIEW for name in ("connectors", "handlers")},
    ("put", "/hub/handlers/{connector_id}"): _VIEW,
    ("patch", "/hub/connectors/{connector_id}"): {"active": False},
    ("post", "/hub/storages"): _STORAGE,
    ("put", "/hub/storages/{storage_id}"): _STORAGE,
    ("post", "/hub/roles"): _ROLE,
    ("put", "/hub/roles/{role_id}"): _ROLE,
    ("patch", "/hub/roles/{role_id}"): {"description": "Editors of the map."},
    ("post", "/hub/jobs"): {"job": "partition", "spaceId": "roads"},
    ("post", "/hub/subscriptions"): _SUBSCRIPTION,
    ("put", _ONE): _SUBSCRIPTION,
    ("patch", _ONE): {"active": False},
    ("post", f"{_ONE}/reset"): {"since": "beginning"},
    ("post", f"{_ONE}/move"): {"instance": "jX4b0x1mKQoh"},
    ("post", f"{_SPACE}/subscriptions"): _AS_IN_XYZ,
    ("put", f"{_SPACE}/subscriptions/{{subscription_id}}"): {**_AS_IN_XYZ, "id": "search"},
    **{(method, f"{_SPACE}/features"): _FEATURES for method in ("post", "put")},
    ("put", f"{_SPACE}/features/{{feature_id}}"): _FEATURE,
    ("patch", f"{_SPACE}/features/{{feature_id}}"): _PATCH,
    ("post", f"{_SPACE}/spatial"): {"type": "Point", "coordinates": [8.6, 50.11]},
    ("post", f"{_SPACE}/spatial/batch"): {"refSpaceId": "schools", "query": "p.kind=primary"},
    ("patch", "/hub/storages/{storage_id}/collections/{collection_id}"): {
        "deleteAt": 1_900_000_000_000
    },
    ("post", "/hub/storages/{storage_id}/snapshots"): {"id": "2026-q4", "description": "Release."},
    ("post", f"{_SPACE}/tags"): {"id": "summer", "versionRef": "HEAD"},
    ("put", f"{_SPACE}/meta/{{meta_id}}"): {"type": "Feature", "properties": {"by": "ann"}},
    ("patch", f"{_SPACE}/tags/{{tag_id}}"): {"description": "As it was surveyed."},
    ("post", f"{_SPACE}/branches"): {"id": "fix", "description": "New roads in the north."},
    ("patch", f"{_SPACE}/branches/{{branch_id}}"): {"baseRef": "main:HEAD"},
    ("post", f"{_SPACE}/branches/{{branch_id}}"): {"type": "Merge", "targetBranchId": "main"},
    ("post", f"{_SPACE}/rollback"): {"versionRef": "summer", "dryRun": True},
    ("post", f"{_SPACE}/revert"): {"version": 7, "dryRun": True},
}
"""Example bodies, by method and path."""


def describe(document: dict[str, Any]) -> None:
    """Add the descriptions and examples to the document."""
    document["info"]["description"] = _INTRODUCTION.strip()
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                if not parameter.get("description") and parameter["name"] in _PARAMETERS:
                    parameter["description"] = _PARAMETERS[parameter["name"]]
            example = EXAMPLES.get((method, path))
            if example is not None:
                for media, content in operation["requestBody"]["content"].items():
                    if "modification" not in media:
                        content["example"] = example

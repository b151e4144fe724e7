"""What the OpenAPI document says for people: an introduction, what groups of endpoints are about,
what parameters mean that say nothing of it themselves, and bodies that can be sent as they are."""

from __future__ import annotations

from typing import Any, Final

INTRODUCTION: Final = """
A hub for versioned features. Clients speak to *spaces*; every write to one is a version that can be
read, compared, tagged, branched, merged and restored.

Bodies are JSON, whatever their `Content-Type`. An error is an `ErrorResponse`: `errorMessage` says
what is wrong and what to do, `field` where, and `streamId` finds it in the log. Parameters that an
endpoint does not know are ignored.
"""
TAGS: Final = {
    "operation": "Whether the hub is well.",
    "spaces": "Public names, each with features behind it.",
    "connectors": "Configurations of event handlers, the parts of the pipeline of a space.",
    "storages": "Where collections of features are kept.",
    "configuration": "Who changed the configuration, and when.",
    "subscriptions": "Changes that are brought to somebody, in order and at least once.",
    "jobs": "Whole collections on Spark: submitted, watched, cancelled and removed.",
    "roles": "Rights matrices with names, for tokens to use.",
    "lookup": "States and transactions by their ids, in whatever storage they are.",
    "features": "Reading, searching and writing.",
    "changes": "What happens, as it happens: pages that can be waited for, or a stream of events.",
    "versions": "Changesets, tags, branches, merges, differences, and going back.",
}
PARAMETERS: Final = {
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
    "type": "How the tile is named: `web` (`8_134_86`), `tms`, `quadkey` (`12020321`) or `here`.",
    "version": "The number of the version.",
    "versionRef": "A version, or a range such as `3..9`; `*` means all.",
    "includeSystemTags": "Also those that programs have given for themselves.",
    "context": "Of a space that extends another one: where to write; `super` cannot be written.",
    "startVersion": "The first version.",
    "endVersion": "The last version.",
    "startTime": "Not before this time (epoch milliseconds).",
    "endTime": "Not after this time (epoch milliseconds).",
    "pageToken": "The `nextPageToken` of the page before.",
    "limit": "How many are answered at most.",
    "west": "The western edge, in degrees; east of `east`, the box reaches over the date line.",
    "south": "The southern edge, in degrees.",
    "east": "The eastern edge, in degrees.",
    "north": "The northern edge, in degrees.",
    "lat": "The latitude of a point; goes with `lon`.",
    "lon": "The longitude of a point; goes with `lat`.",
    "refSpaceId": "The space of the feature around which is searched.",
    "refFeatureId": "The feature around which is searched; goes with `refSpaceId`.",
    "h3Index": "The hexagon (H3) in which is searched.",
    "tweaks.strength": "How much smaller: 1 to 100, or low, lowmed, med, medhigh, high.",
}
"""By name, for those without a description of their own."""

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
    "eventHandlerIds": ["tell-search"],
}
_AS_IN_XYZ: Final = {
    "id": "each-road",
    "destination": "tell-search",
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
    ("patch", "/hub/roles/{role_id}"): {"description": "Whoever edits the map."},
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
"""Bodies, by method and path."""


def describe(document: dict[str, Any]) -> None:
    """Add to the document what people need to understand it."""
    document["info"]["description"] = INTRODUCTION.strip()
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                if not parameter.get("description") and parameter["name"] in PARAMETERS:
                    parameter["description"] = PARAMETERS[parameter["name"]]
            example = EXAMPLES.get((method, path))
            if example is not None:
                for media, content in operation["requestBody"]["content"].items():
                    if "modification" not in media:
                        content["example"] = example

"""OpenAPI schemas and responses for changesets, tags, branches, diffs, rollback and revert."""

from __future__ import annotations

from typing import Any, Final

from naksha.server.errors import JSON
from naksha.server.openapi.feature_schemas import (
    FEATURE,
    FEATURES,
    INTEGER,
    TEXTS,
    errors,
    listed,
    object_of,
    reference,
    typed,
    write_errors,
)
from naksha.server.routing.declarations import Responses

_TEXT: Final = {"type": "string"}
_NOTHING_OR: Final = {"oneOf": [FEATURE, {"type": "null"}]}
_PAGE: Final = {"nextPageToken": {"type": "string", "pattern": "^[0-9]+$"}}
_CHANGED: Final = {"inserted": FEATURES, "updated": FEATURES, "deleted": FEATURES}
_SPAN: Final = {"startVersion": INTEGER, "endVersion": INTEGER}

CHANGE_FEED: Final = reference("ChangeFeed")
CHANGES: Final = reference("Changes")
CHANGESET: Final = reference("Changeset")
CHANGESETS: Final = reference("ChangesetCollection")
CHANGESET_LOG: Final = reference("ChangesetLog")
SQUASHED: Final = reference("SquashedChangeset")
CHANGESET_STATISTICS: Final = reference("ChangesetsStatisticsResponse")
HISTORY_STATISTICS: Final = reference("HistoryStatisticsResponse")
TAG: Final = reference("VersionTag")
BRANCH: Final = reference("Branch")
CONFLICT: Final = reference("PendingMerge")
DIFF: Final = reference("Diff")
HISTORY: Final = reference("FeatureHistory")
REWRITTEN: Final = reference("VersionOperationResponse")

_VERSION: Final = object_of(
    "value", "estimated", value=INTEGER, estimated={"type": "boolean", "const": False}
)
_UNDECIDED: Final = object_of(
    *("id", "base", "ours", "theirs", "paths"),
    id=_TEXT,
    base=_NOTHING_OR,
    ours=_NOTHING_OR,
    theirs=_NOTHING_OR,
    paths={**TEXTS, "description": "Paths of the properties that both sides changed."},
)
_NAMED: Final = {
    "id": _TEXT,
    "spaceId": _TEXT,
    "description": _TEXT,
    "author": _TEXT,
    "createdAt": INTEGER,
}

_CHANGED_COLLECTION: Final = object_of(
    "id",
    id=_TEXT,
    created=INTEGER,
    updated=INTEGER,
    deleted=INTEGER,
    purged=INTEGER,
    bbox={"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
    statesKept={
        "type": "boolean",
        "description": "False: history is off or expired, so `features` lacks these changes.",
    },
    changed={"type": "boolean", "description": "Whether the collection itself changed."},
)

SCHEMAS: Final[dict[str, Any]] = {
    "Changes": object_of(
        *("type", "storage", "version", "txn", "publishedAt", "startedAt", "appId"),
        *("part", "isLast", "collections", "features"),
        type=typed("Changes"),
        storage=_TEXT,
        version=INTEGER,
        txn=_TEXT,
        publishedAt=INTEGER,
        startedAt=INTEGER,
        appId=_TEXT,
        author=_TEXT,
        message=_TEXT,
        part={**INTEGER, "description": "A large transaction is split into parts, from 0 on."},
        isLast={"type": "boolean", "description": "Whether this is the last part."},
        collections=listed(_CHANGED_COLLECTION),
        features=listed(
            object_of(
                *("action", "collection", "feature"),
                action={"type": "string", "enum": ["CREATE", "UPDATE", "DELETE"]},
                collection=_TEXT,
                feature=FEATURE,
            )
        ),
    ),
    "ChangeFeed": object_of(
        *("type", "items", "next", "last"),
        type=typed("ChangeFeed"),
        items=listed(CHANGES),
        next={"type": "string", "description": "Position of the next page, for `since`."},
        last={**INTEGER, "description": "The last version; `next` equals it when up to date."},
    ),
    "Changeset": object_of(
        *("type", "version", "createdAt", "inserted", "updated", "deleted"),
        type=typed("Changeset"),
        version=INTEGER,
        txn=_TEXT,
        author=_TEXT,
        appId=_TEXT,
        createdAt=INTEGER,
        message=_TEXT,
        **_CHANGED,
        **_PAGE,
    ),
    "ChangesetCollection": object_of(
        *("type", "startVersion", "endVersion", "versions"),
        type=typed("ChangesetCollection"),
        versions={
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": CHANGESET,
        },
        **_SPAN,
        **_PAGE,
    ),
    "ChangesetLog": object_of(
        *("type", "changesets"),
        type=typed("ChangesetLog"),
        changesets=listed(
            object_of(
                *("version", "txn", "author", "appId", "createdAt", "publishedAt"),
                *("inserted", "updated", "deleted", "bbox"),
                version=INTEGER,
                txn=_TEXT,
                author=_TEXT,
                appId=_TEXT,
                createdAt=INTEGER,
                publishedAt=INTEGER,
                message=_TEXT,
                inserted={**INTEGER, "description": "Number of features."},
                updated={**INTEGER, "description": "Number of features."},
                deleted={**INTEGER, "description": "Number of features."},
                bbox={
                    "type": ["array", "null"],
                    "items": {"type": "number"},
                    "minItems": 4,
                    "maxItems": 4,
                    "description": "Box around the geometries before and after the changes.",
                },
            )
        ),
        **_PAGE,
    ),
    "SquashedChangeset": object_of(
        *("type", "startVersion", "endVersion", "inserted", "updated", "deleted"),
        type={"type": "string", "enum": ["Changeset", "CompactChangeset"]},
        **_SPAN,
        **_CHANGED,
    ),
    "ChangesetsStatisticsResponse": object_of(
        *("type", "minVersion", "maxVersion"),
        type=typed("ChangesetsStatisticsResponse"),
        minVersion=INTEGER,
        maxVersion=INTEGER,
    ),
    "HistoryStatisticsResponse": object_of(
        *("type", "minVersion", "maxVersion"),
        type=typed("HistoryStatisticsResponse"),
        minVersion=_VERSION,
        maxVersion=_VERSION,
    ),
    "VersionTag": object_of(
        *("id", "spaceId", "version", "versionRef", "system"),
        branchId=_TEXT,
        version=INTEGER,
        versionRef=_TEXT,
        system={"type": "boolean"},
        **_NAMED,
    ),
    "Branch": object_of(
        *("id", "spaceId", "baseRef", "state"),
        baseRef=_TEXT,
        state=_TEXT,
        merges={"type": "object", "additionalProperties": _TEXT},
        conflicts={**TEXTS, "description": "Pending merges."},
        conflictSolvingBranch={
            **_TEXT,
            "description": "Branch to resolve the conflicts on, while the state is IN_CONFLICT.",
        },
        **_NAMED,
    ),
    "PendingMerge": object_of(
        *("id", "kind", "author", "createdAt", "features"),
        id=_TEXT,
        kind=_TEXT,
        author=_TEXT,
        createdAt=INTEGER,
        features=listed(_UNDECIDED),
    ),
    "Diff": object_of(
        *("type", "startVersion", "endVersion", "changes"),
        type=typed("Diff"),
        changes=listed(
            object_of(
                *("id", "action", "paths"),
                id=_TEXT,
                action=_TEXT,
                paths=TEXTS,
                old=FEATURE,
                new=FEATURE,
            )
        ),
        **_SPAN,
    ),
    "FeatureHistory": object_of(
        *("type", "steps"),
        type=typed("FeatureHistory"),
        steps=listed(
            object_of(
                *("id", "action", "at", "feature"),
                id=_TEXT,
                action=_TEXT,
                author={"type": ["string", "null"]},
                appId=_TEXT,
                at=INTEGER,
                patch={"description": "Changes by this step (RFC 6902)."},
                feature=FEATURE,
            )
        ),
    ),
    "VersionOperationResponse": object_of(
        *("type", "version"),
        type=typed("VersionOperationResponse"),
        version={"type": ["integer", "null"], "description": "Null if nothing changed."},
        inserted=TEXTS,
        updated=TEXTS,
        deleted=TEXTS,
        conflicts=listed(_UNDECIDED),
    ),
}


def returns(description: str, schema: dict[str, Any], *medias: str) -> Responses:
    """Return the responses of an endpoint that reads."""
    content = {media: {"schema": schema} for media in medias or (JSON,)}
    return {200: {"description": description, "content": content}, **errors()}


def changes(description: str, schema: dict[str, Any]) -> Responses:
    """Return the responses of an endpoint that changes something."""
    content = {JSON: {"schema": schema}}
    return {200: {"description": description, "content": content}, **write_errors()}


def removes(description: str) -> Responses:
    """Return the responses of an endpoint that only removes something."""
    return {204: {"description": description}, **write_errors()}

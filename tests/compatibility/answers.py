"""Results of a storage and a hub as plain JSON that is the same in every run.

Everything goes through what users see: `naksha.connect`, REST and Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from naksha.api import Database
from naksha.hub.auth.keys import KeyFile
from naksha.hub.auth.tokens import TokenValidator
from naksha.hub.pipeline.request_context import Actor
from naksha.model.errors import NakshaError
from naksha.model.state import State
from naksha.model.transaction import Transaction
from naksha.server.process.settings_sources import read_settings

Answers = dict[str, Any]
TOWN: Final = ("roads", "shops", "points")
"""The collections of the storage, one of them without history."""
SPACES: Final = ("roads", "towns", "edits", "map")
_PLAIN: Final = (
    "/spaces",
    "/connectors",
    "/storages",
    "/roles",
    "/subscriptions",
    "/jobs",
    "/spaces/roads/tags",
    "/spaces/roads/branches",
    "/spaces/roads/branches/open/conflicts",
    "/spaces/roads/changesets",
    "/spaces/roads/changesets?versionRef=fix",
    "/spaces/roads/diff?versionRef=3..9",
    "/spaces/roads/features/a/history",
    "/spaces/roads/search?p.speed>50",
    "/spaces/roads/search?tags=main",
    "/spaces/roads/bbox?west=8&south=49&east=9&north=51",
    "/spaces/roads/search?versionRef=summer",
    "/spaces/roads/search?versionRef=fix",
    "/spaces/roads/search?versionRef=open",
    "/spaces/roads/features/c",
)
_UNSTEADY: Final = frozenset(
    {
        *("byteSize", "dataSize", "featureCount", "estimatedFeatureCount", "compressedSize"),
        *("contentUpdatedAt", "instance", "nextPageToken", "next", "partitions", "connectors"),
    }
)
"""Members that depend on when, and by whom, something is asked; tokens are of one process."""


def storage_answers(database: Database) -> Answers:
    """All collections, versions, branches, tags and the log of a storage."""
    last = database.version().seq_number
    found: Answers = {
        "collections": _plain(database.collections(dropped=True)),
        "log": [_entry(one) for one in database.log()],
        **_names(database),
        "meta": {name: database[name].all_meta() for name in TOWN},
        "version": last,
    }
    refs = [*map(str, range(1, last + 1)), "first", "HEAD"]
    for name in TOWN:
        found[f"{name} deleted"] = _told(lambda name=name: _by_id(database[name].deleted()))
        for ref in refs:
            found[f"{name} {ref}"] = _told(
                lambda name=name, ref=ref: _by_id(database[name].at(ref).query())
            )
    for branch in ("idea", "rival"):
        found[f"roads {branch}"] = _by_id(database.branch(branch)["roads"].query())
    found["roads in a box"] = _by_id(database["roads"].query(bbox=(8, 49, 9, 51)))
    found["roads by tag"] = _by_id(database["roads"].query(tags=["main"]))
    found["history"] = database["roads"].history("a")
    found["diff"] = [
        [change.action, change.id, change.paths(), *map(_uuid, (change.old, change.new))]
        for change in database.versions.diff(f"1..{last}", "roads")
    ]
    return found


def _entry(one: Transaction) -> list[Any]:
    """A transaction, with what the log tells of it."""
    signals = [
        [each.action, each.id, each.text, each.created, each.updated, each.deleted, each.bbox]
        for each in one.signals
    ]
    when = [one.started_ms, one.published_ms]
    return [one.seq_number, str(one.txn), one.app_id, one.author, one.overlay, when, signals]


def _names(database: Database) -> Answers:
    """Tags, branches and open conflicts."""
    versions = database.versions
    return {
        "tags": [
            [one.name, one.branch, one.description, one.version.seq_number, one.created_ms]
            for one in versions.tags()
        ],
        "branches": [
            [one.name, one.number, one.description, one.conflicts, one.created_ms]
            for one in versions.branches()
        ],
        "conflicts": [
            [
                *(one.id, one.kind, one.count, one.created_ms),
                [[each.id, each.paths] for each in versions.undecided(one.id)],
            ]
            for one in versions.conflicts()
        ],
    }


def _uuid(state: State | None) -> str | None:
    return None if state is None else state.uuid


def _told(read: Any) -> Any:
    try:
        return read()
    except NakshaError as error:
        return {"error": error.code}


def _by_id(features: Iterator[Mapping[str, Any]]) -> list[Any]:
    return sorted((dict(one) for one in features), key=lambda one: str(one["id"]))


def _plain(value: Any) -> Any:
    """Return the JSON form of a response, without estimated values."""
    return _steady(msgspec.json.decode(msgspec.json.encode(value)))


def settings_answers(path: Path) -> Answers:
    """A file of settings, as it is understood."""
    found: Answers = msgspec.to_builtins(
        read_settings(["--config", str(path)], {}, program="naksha serve")
    )
    return found


def token_answers(key: str, token: str) -> Answers:
    """What a token says, checked with a key."""
    actor = TokenValidator([KeyFile.parse(key)]).actor(token)
    return {
        "app": actor.app_id,
        "author": actor.author,
        "realm": actor.realm,
        "rights": _named_rights(actor),
    }


def _named_rights(actor: Actor) -> dict[str, Any]:
    """The attributes and roles that a right is granted by."""
    found: dict[str, Any] = {}
    for right, grants in actor.rights.grants.items():
        found[right.value] = [[[one.attribute, one.text] for one in grant] for grant in grants]
    for right, roles in actor.rights.roles.items():
        found.setdefault(right.value, []).extend([[one.role, one.right.value] for one in roles])
    return found


def hub_answers(client: httpx.Client) -> Answers:
    """Return the configuration of a hub and the responses of its spaces."""
    found: Answers = {path: _answer(client, path) for path in _PLAIN}
    for space in SPACES:
        for path in (f"/spaces/{space}", f"/spaces/{space}/search", f"/spaces/{space}/count"):
            found[path] = _answer(client, path)
    for id in ("tell", "later"):
        found[f"/subscriptions/{id}"] = _answer(client, f"/subscriptions/{id}")
    span = client.get("/spaces/roads/changesets/statistics").raise_for_status().json()
    for version in range(1, span["maxVersion"] + 1):
        path = f"/spaces/roads/search?versionRef={version}"
        found[path] = _answer(client, path)
    return found


def _answer(client: httpx.Client, path: str) -> Any:
    answer = client.get(path)
    body: Any = _steady(answer.json()) if answer.content else None
    if answer.is_error:
        return {"status": answer.status_code, "code": body["code"]}
    return body


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _steady(one) for name, one in value.items() if name not in _UNSTEADY}
    if isinstance(value, list):
        found = [_steady(one) for one in value]
        if all(isinstance(one, dict) and "id" in one for one in found):
            found.sort(key=lambda one: str(one["id"]))
        return found
    return value

"""All results of a storage as JSON, for comparison with those of an earlier release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from naksha.model.errors import NakshaError
from naksha.model.query import Bbox, Query, States
from naksha.model.transaction import LogFilter
from naksha.model.version import HEAD, AtSeq, VersionSelector
from naksha.spi.storage import BranchLayer
from naksha.sqlite import SqliteStorage

QUERIES = {
    "all": Query(),
    "box": Query(spatial=Bbox(0, 0, 2, 2)),
    "tag": Query(tags=(("a",),)),
    "mrid": Query(mrid_prefix="c"),
    "qrid": Query(qrid_prefix="1"),
    "author": Query(authors=("bob",)),
}


async def record(storage: SqliteStorage, branches: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """All collections, versions, branches and log entries."""
    infos = [msgspec.to_builtins(info) for info in await storage.collections(dropped=True)]
    last = await storage.resolve(HEAD)
    versions = [AtSeq(n) for n in range(1, last.seq_number + 1)]
    names = [info.id for info in await storage.collections()]
    views: dict[str, Any] = {"main": storage}
    for name, layers in branches.items():
        views[name] = storage.on_branch([BranchLayer(*layer) for layer in layers])
    log = await storage.transactions(where=LogFilter(overlays=None))
    return {
        "infos": infos,
        "log": [msgspec.to_builtins(each) for each in log],
        "kept": [each.value for each in await storage.stored_objects("tag")],
        "meta": {name: await storage.all_meta(name) for name in names},
        "states": {
            f"{view} {name}": {
                "HEAD": await _answers(each, name, HEAD, QUERIES),
                **{
                    str(at.seq_number): await _answers(each, name, at, {"all": Query()})
                    for at in versions
                },
            }
            for view, each in views.items()
            for name in names
        },
    }


async def _answers(
    storage: Any, name: str, at: VersionSelector, queries: Mapping[str, Query]
) -> dict[str, Any]:
    """Whole features at HEAD, state ids at versions, or the error."""
    found: dict[str, Any] = {}
    for key, query in queries.items():
        for kind in States:
            asked = msgspec.structs.replace(query, states=kind)
            try:
                states = [state async for state in storage.states(name, asked, at)]
            except NakshaError as error:
                found[f"{key} {kind.name}"] = f"{type(error).__name__}: {error}"
                continue
            if at is HEAD and key == "all":
                answers = sorted(state.raw.decode() for state in states)
            else:
                answers = sorted(f"{state.uuid} {state.xyz['txn_next']}" for state in states)
            found[f"{key} {kind.name}"] = answers
    return found

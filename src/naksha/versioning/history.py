"""The history of features: each of their states with who, when and what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from naksha.model import merge
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.versioning.diff import CHUNK, check_readable, lookup, visible
from naksha.versioning.forks import fork_of
from naksha.versioning.places import Place


class Step(msgspec.Struct, frozen=True):
    """A state of a feature, and the one before it, if there was one."""

    id: str
    state: State
    previous: State | None

    @property
    def who(self) -> tuple[str | None, str]:
        """Author and app id."""
        xyz = self.state.xyz
        return xyz["author"], xyz["appId"]

    @property
    def when_ms(self) -> int:
        """The start of the transaction, epoch milliseconds."""
        return int(self.state.xyz["updatedAt"])

    @property
    def action(self) -> str:
        """CREATE, UPDATE or DELETE."""
        return str(self.state.xyz["action"])

    def paths(self) -> list[str]:
        """The places that changed, as JSON pointers; nothing for a deletion."""
        return merge.changed_paths(self._before(), visible(self.state))

    def patch(self) -> list[dict[str, Any]]:
        """The RFC 6902 patch from the state before."""
        return merge.json_patch(self._before(), visible(self.state))

    def _before(self) -> dict[str, Any]:
        # What is created anew, after a deletion too, comes from nothing.
        if self.previous is None or self.action == "CREATE":
            return {}
        return visible(self.previous)


async def history(
    first: Place, last: Place, collection: str, query: Query | None = None
) -> AsyncIterator[Step]:
    """All states that began after one version, until and with another one of the same line,
    ordered by feature and time. With a query only states that match it."""
    asked = query or Query()
    if asked.limit is not None or asked.cursor is not None or asked.replaced_since is not None:
        raise InvalidArgument("A history has no limit, cursor or other versions", field="query")
    if first.line.layers != last.line.layers:
        raise InvalidArgument("A history is of one line", field="first")
    for place in (first, last):
        await check_readable(place, collection)
    txn = fork_of(first, last).txn
    since = msgspec.structs.replace(asked, states=States.ALL, txn_from=txn + 1)
    wanted: dict[str, str] = {}
    async for state in last.storage.states(collection, since, last.at):
        wanted[state.heading().uuid] = state.id
    ids = sorted(set(wanted.values()))
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        before = await lookup(first, collection, part)
        all_since = Query(states=States.ALL, ids=tuple(part), txn_from=txn + 1)
        found = [state async for state in last.storage.states(collection, all_since, last.at)]
        found.sort(key=lambda state: (state.id, state.txn))
        for state in found:
            if state.uuid in wanted:
                yield Step(state.id, state, before.get(state.id))
            before[state.id] = state

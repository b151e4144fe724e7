"""Replay of concurrent writes one transaction after the other, and its invariants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from naksha.model.state import WriteOutcome
from naksha.psql.connection.driver import Direct

Deed = tuple[int, str, WriteOutcome]
"""Transaction, collection and outcome, in the order of the work inside the transaction."""


class World:
    """The state ids that are live and dead in one collection at one version."""

    def __init__(self, live: dict[str, str] | None = None, dead: dict[str, str] | None = None):
        self.live = dict(live or {})
        self.dead = dict(dead or {})

    def apply(self, done: WriteOutcome) -> None:
        """One outcome; it must have been possible."""
        if done.action == "RETAINED":
            return
        assert done.uuid is not None or done.action == "PURGED"
        uuid = str(done.uuid)
        match done.action:
            case "CREATED":
                assert done.id not in self.live
                self.dead.pop(done.id, None)
                self.live[done.id] = uuid
            case "UPDATED":
                assert done.id in self.live
                self.live[done.id] = uuid
            case "DELETED":
                del self.live[done.id]
                self.dead[done.id] = uuid
            case "RESTORED":
                del self.dead[done.id]
                self.live[done.id] = uuid
            case "PURGED":
                del self.dead[done.id]


def replay(deeds: Iterable[Deed], txns: Sequence[int], collection: str) -> dict[int, World]:
    """The world after every transaction, by txn."""
    by_txn: dict[int, list[WriteOutcome]] = defaultdict(list)
    for txn, where, outcome in deeds:
        if where == collection:
            by_txn[txn].append(outcome)
    assert set(by_txn) <= set(txns)
    worlds, world = {}, World()
    for txn in txns:
        world = World(world.live, world.dead)
        for outcome in by_txn[txn]:
            world.apply(outcome)
        worlds[txn] = world
    return worlds


class Interval(NamedTuple):
    """A state and when it was visible; `end` is 0 while it is."""

    begin: int
    end: int
    action: str
    version: int
    uuid: str
    puuid: str | None

    @property
    def visible(self) -> bool:
        return self.end == 0 or self.begin < self.end


async def intervals(connection: Direct, collection: str) -> dict[str, list[Interval]]:
    """All states of every feature, wherever they are, in txn order."""
    tables = " UNION ALL ".join(
        f'SELECT i, jsondata FROM "{collection}{suffix}"' for suffix in ("", "_del", "_hst")
    )
    rows = await connection.fetch(
        "SELECT jsondata->>'id' AS id, naksha_xyz_txn(jsondata) AS begin, naksha_xyz_txn_next("
        "jsondata) AS end, x->>'action' AS action, (x->>'version')::int8 AS version, "
        "x->>'uuid' AS uuid, x->>'puuid' AS puuid "
        f"FROM ({tables}) AS t, naksha_xyz(jsondata) AS x ORDER BY begin, i"
    )
    found: dict[str, list[Interval]] = defaultdict(list)
    for row in rows:
        found[row["id"]].append(Interval(*tuple(row)[1:]))
    return found


async def check_intervals(connection: Direct, collection: str) -> None:
    """States of a feature follow each other without gap or overlap, with their versions and the
    chain of their ids."""
    for feature_id, states in (await intervals(connection, collection)).items():
        visible = [state for state in states if state.visible]
        hidden = {state.uuid: state.begin for state in states if not state.visible}
        assert len({state.uuid for state in visible}) == len(visible)
        _check_first(visible[0], hidden)
        for one, two in pairwise(visible):
            _check_pair(one, two, hidden, (feature_id, one, two))
        assert visible[-1].end == 0 or visible[-1].action == "DELETE", feature_id


def _check_first(state: Interval, hidden: dict[str, int]) -> None:
    """It was created, if only earlier in the same transaction."""
    if state.action == "CREATE":
        assert state.puuid is None, state
    else:
        assert hidden[str(state.puuid)] == state.begin, state


def _check_pair(one: Interval, two: Interval, hidden: dict[str, int], where: Any) -> None:
    assert 0 < one.end <= two.begin, where
    if one.action == "DELETE" and one.end < two.begin:
        # It was purged, and starts again.
        _check_first(two, hidden)
        return
    if one.action == "DELETE" and two.action == "CREATE" and two.version == 1:
        assert two.puuid is None, where
        return
    assert one.end == two.begin, where
    assert one.version < two.version, where
    if two.action == "CREATE":
        assert two.puuid is None, where
        assert one.action == "DELETE" or hidden, where
    else:
        assert two.puuid == one.uuid or hidden[str(two.puuid)] == two.begin, where

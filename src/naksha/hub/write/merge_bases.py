"""Base states of three-way merges: what the writer had read, if it is not HEAD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from naksha.hub.write.decide import Known
from naksha.hub.write.entries import Entry
from naksha.hub.write.failures import Failures
from naksha.hub.write.namespaces import PLACE, Said, said_in
from naksha.hub.write.rules import Rules
from naksha.model.errors import Expired, InvalidArgument, NotFound
from naksha.model.query import Op, Or, Query, States, Test
from naksha.model.state import XYZ, State
from naksha.spi.storage import StorageReader

VERSION_PATH: Final = ("properties", XYZ, "version")
CHUNK: Final = 1_000
"""Number of features whose states are read at once."""
Wanted = tuple[Entry, Said]


async def find_bases(
    reader: StorageReader, asked: Iterable[tuple[Entry, Known]], rules: Rules, failures: Failures
) -> dict[str, State]:
    """Return the base of each existing feature that is to be merged.

    It is the state that the feature names by uuid or version, else its state at the version of the
    request, else HEAD. A base that is no longer kept is left out.
    """
    bases: dict[str, State] = {}
    by_uuid: list[Wanted] = []
    by_version: list[Wanted] = []
    for entry, known in asked:
        if known.head is None or entry.feature is None:
            continue
        with failures.of(entry):
            said = said_in(entry.feature)
            if rules.number_of(said.uuid) is not None:
                if rules.is_same(said.uuid, known.head):
                    bases[entry.id] = known.head
                else:
                    by_uuid.append((entry, said))
            elif said.version is not None:
                if said.version == known.head.xyz["version"]:
                    bases[entry.id] = known.head
                else:
                    by_version.append((entry, said))
            else:
                bases[entry.id] = known.head if known.read is None else known.read
    bases |= await _states_by_uuid(reader, by_uuid, failures)
    if by_version:
        assert rules.collection is not None
        bases |= await _states_by_version(reader, rules.collection.id, by_version)
    return bases


async def _states_by_uuid(
    reader: StorageReader, wanted: Sequence[Wanted], failures: Failures
) -> dict[str, State]:
    """Return the states that entries name by uuid, if they are kept.

    Each is read separately, since a base other than HEAD is rare.
    """
    found: dict[str, State] = {}
    for entry, said in wanted:
        assert said.uuid is not None
        with failures.of(entry):
            try:
                state = await reader.state(said.uuid)
            except (NotFound, Expired):
                continue
            if state.id != entry.id:
                raise InvalidArgument(
                    f"The uuid of feature {entry.id!r:.64} is that of a state of feature "
                    f"{state.id!r:.64}; send the uuid that was read with the feature",
                    field=f"{PLACE}.uuid",
                )
            found[entry.id] = state
    return found


async def _states_by_version(
    reader: StorageReader, collection: str, wanted: Sequence[Wanted]
) -> dict[str, State]:
    """Return the states that entries name by feature version, if they are kept."""
    found: dict[str, State] = {}
    for start in range(0, len(wanted), CHUNK):
        part = wanted[start : start + CHUNK]
        versions = {entry.id: said.version for entry, said in part}
        query = Query(ids=tuple(versions), states=States.ALL, where=_any_of(versions))
        async for state in reader.states(collection, query):
            if state.xyz["version"] == versions[state.id]:
                found[state.id] = _later(found.get(state.id), state)
    return found


def _any_of(versions: Mapping[str, int | None]) -> Or:
    return Or(tuple(Test(VERSION_PATH, Op.EQ, version) for version in set(versions.values())))


def _later(one: State | None, other: State) -> State:
    """Return the later of two states with the same version; the earlier was never visible."""
    return other if one is None or other.txn >= one.txn else one

"""Base states of three-way merges: what the writer had read, if it is not HEAD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from naksha.hub.write.entries import Entry
from naksha.hub.write.failures import Failures
from naksha.hub.write.namespaces import PLACE, SentNamespace, sent_namespace_of
from naksha.hub.write.rules import Rules
from naksha.hub.write.write_plan import FeatureStates
from naksha.model.errors import Expired, InvalidArgument, NotFound
from naksha.model.query import Op, Or, Query, States, Test
from naksha.model.state import XYZ, State
from naksha.spi.storage import StorageReader

_VERSION_PATH: Final = ("properties", XYZ, "version")
_CHUNK_FEATURES: Final = 1_000
"""Number of features whose states are read at once."""
_EntryWithNamespace = tuple[Entry, SentNamespace]


async def find_bases(
    reader: StorageReader,
    features: Iterable[tuple[Entry, FeatureStates]],
    rules: Rules,
    failures: Failures,
) -> dict[str, State]:
    """Return the base of each existing feature that is to be merged.

    It is the state that the feature names by uuid or version, else its state at the version of the
    request, else HEAD. A base that is no longer kept is left out.
    """
    bases: dict[str, State] = {}
    by_uuid: list[_EntryWithNamespace] = []
    by_version: list[_EntryWithNamespace] = []
    for entry, states in features:
        if states.head is None or entry.feature is None:
            continue
        with failures.of(entry):
            namespace = sent_namespace_of(entry.feature)
            if rules.number_of(namespace.uuid) is not None:
                if rules.is_same(namespace.uuid, states.head):
                    bases[entry.id] = states.head
                else:
                    by_uuid.append((entry, namespace))
            elif namespace.version is not None:
                if namespace.version == states.head.xyz["version"]:
                    bases[entry.id] = states.head
                else:
                    by_version.append((entry, namespace))
            else:
                bases[entry.id] = states.head if states.read is None else states.read
    bases |= await _states_by_uuid(reader, by_uuid, failures)
    if by_version:
        assert rules.collection is not None
        bases |= await _states_by_version(reader, rules.collection.id, by_version)
    return bases


async def _states_by_uuid(
    reader: StorageReader, entries: Sequence[_EntryWithNamespace], failures: Failures
) -> dict[str, State]:
    """Return the states that entries name by uuid, if they are kept.

    Each is read separately, since a base other than HEAD is rare.
    """
    bases: dict[str, State] = {}
    for entry, namespace in entries:
        assert namespace.uuid is not None
        with failures.of(entry):
            try:
                state = await reader.state(namespace.uuid)
            except (NotFound, Expired):
                continue
            if state.id != entry.id:
                raise InvalidArgument(
                    f"The uuid of feature {entry.id!r:.64} is that of a state of feature "
                    f"{state.id!r:.64}; send the uuid that was read with the feature",
                    field=f"{PLACE}.uuid",
                )
            bases[entry.id] = state
    return bases


async def _states_by_version(
    reader: StorageReader, collection: str, entries: Sequence[_EntryWithNamespace]
) -> dict[str, State]:
    """Return the states that entries name by feature version, if they are kept."""
    bases: dict[str, State] = {}
    for start in range(0, len(entries), _CHUNK_FEATURES):
        chunk = entries[start : start + _CHUNK_FEATURES]
        versions = {entry.id: namespace.version for entry, namespace in chunk}
        query = Query(ids=tuple(versions), states=States.ALL, where=_any_of(versions))
        async for state in reader.states(collection, query):
            if state.xyz["version"] == versions[state.id]:
                bases[state.id] = _later(bases.get(state.id), state)
    return bases


def _any_of(versions: Mapping[str, int | None]) -> Or:
    return Or(tuple(Test(_VERSION_PATH, Op.EQ, version) for version in set(versions.values())))


def _later(one: State | None, other: State) -> State:
    """Return the later of two states with the same version; the earlier was never visible."""
    return other if one is None or other.txn >= one.txn else one

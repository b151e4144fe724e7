"""Walk of the objects of a pointer: its log, and the index of each commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from naksha.catalog.commits import Commit
from naksha.catalog.entities import EntitiesCommit, EntityChange
from naksha.catalog.index import SortedIndex
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.object_rows import assembled
from naksha.catalog.objects import Object, ObjectRef
from naksha.model.errors import StorageCorrupt


async def log_down(
    reader: RealmReader, head: Object[Any], oldest: int
) -> AsyncIterator[Object[Commit]]:
    """Iterate over the commits from the head down to the one with the number `oldest`.

    It ends early if one is missing. Commits below `oldest` are not read, because they may be
    partially deleted.
    """
    commit, kind = head, head.ref.type
    yield commit
    while (wanted := commit.value.seq - oldest) > 0:
        refs = [ObjectRef(kind, id) for id in commit.value.tail[:wanted]]
        rows = await reader.rows(refs)
        for ref in refs:
            found = assembled(ref, rows)
            if found is None:
                return
            commit = found
            yield commit
        if not refs:
            return


def index_of(commit: EntitiesCommit, reader: RealmReader) -> SortedIndex:
    """Return the index of a commit."""
    return SortedIndex(reader.fetch_values, commit.index)


async def entity_refs(index: SortedIndex) -> AsyncIterator[ObjectRef]:
    """Iterate over the objects of all entities of an index."""
    async for key, value in index.items():
        ref = ObjectRef.from_bytes(value)
        if ref is None:
            raise StorageCorrupt(f"Entity {key!r} of an index has no object; run `naksha doctor`")
        yield ref


def changed_refs(changes: tuple[EntityChange, ...]) -> list[ObjectRef]:
    """Return the previous and the new objects of the entities that a commit changed."""
    refs = (ObjectRef.from_bytes(data) for change in changes for data in (change.old, change.ref))
    return [ref for ref in refs if ref is not None]

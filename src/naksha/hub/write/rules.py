"""Rules of a modification, and the collection that they apply to."""

from __future__ import annotations

from typing import NamedTuple

from naksha.hub.pipeline.requests import IfExists, Modification
from naksha.hub.write.namespaces import TagChange
from naksha.model.collection import CollectionInfo
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.state import State
from naksha.model.write_checks import lock_of


class Rules(NamedTuple):
    """The rules of a modification."""

    modification: Modification
    tags: TagChange
    detects_conflicts: bool
    """Whether conflicts are detected: a feature must name its current version."""
    storage: StorageIdentity
    collection: CollectionInfo | None

    def number_of(self, uuid: str | None) -> int | None:
        """Return the number of a state of this collection, or None for other states."""
        if uuid is None or self.collection is None:
            return None
        return lock_of(uuid, self.storage, self.collection)

    @property
    def is_merge(self) -> bool:
        """Whether sent features are merged with current ones."""
        return self.modification.if_exists is IfExists.MERGE

    def is_same(self, uuid: str | None, state: State) -> bool:
        """Whether a uuid names this state."""
        number = self.number_of(uuid)
        return number is not None and number == self.number_of(state.heading().uuid)

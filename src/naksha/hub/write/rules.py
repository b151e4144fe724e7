"""What a request asks for, and the collection that it is asked of."""

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
    detects: bool
    """Whether a feature must say the version that is there."""
    storage: StorageIdentity
    collection: CollectionInfo | None

    def number_of(self, uuid: str | None) -> int | None:
        """The number of a state of this collection; None for those of others."""
        if uuid is None or self.collection is None:
            return None
        return lock_of(uuid, self.storage, self.collection)

    @property
    def is_merge(self) -> bool:
        """Whether what is there is merged with what is sent."""
        return self.modification.if_exists is IfExists.MERGE

    def is_same(self, uuid: str | None, state: State) -> bool:
        """Whether a state is the one that is named."""
        number = self.number_of(uuid)
        return number is not None and number == self.number_of(state.heading().uuid)

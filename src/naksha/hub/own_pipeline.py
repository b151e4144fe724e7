"""The pipeline that a space has when it names no connectors."""

from __future__ import annotations

from naksha.hub.objects import Connector, Space
from naksha.hub.setting_up import DEFAULT_STORAGE


def own_connectors(space: Space) -> list[Connector]:
    """What a space has that names no connectors: a collection, over the space that it extends."""
    connectors = space_rules(space)
    if space.extends is not None:
        connectors.append(
            Connector(
                id="extends",
                class_name="view",
                properties={"extends": space.extends.space_id},
            )
        )
    storage_id = DEFAULT_STORAGE if space.storage is None else space.storage.id
    params = {} if space.storage is None else space.storage.params
    connectors.append(
        Connector(
            id="storage", class_name="storage", properties={**params, "storageId": storage_id}
        )
    )
    return connectors


def space_rules(space: Space) -> list[Connector]:
    """What comes before all connectors, because the space says so."""
    return [Connector(id="readOnly", class_name="read-only")] if space.read_only else []

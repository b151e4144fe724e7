"""The pipeline that a space has when it names no connectors."""

from __future__ import annotations

from typing import Any, Final

from naksha.hub.objects import Connector, Space
from naksha.hub.setting_up import DEFAULT_STORAGE
from naksha.model.errors import InvalidArgument

VIRTUAL: Final = "virtualspace"
"""The storage, and the parameter, of a space that is made of others."""


def own_connectors(space: Space) -> list[Connector]:
    """What a space has that names no connectors: a collection, over the space that it extends; or
    what it is made of."""
    connectors = space_rules(space)
    if is_virtual(space):
        connectors.append(Connector(id=VIRTUAL, class_name="view", properties=_view_of(space)))
        return connectors
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


def is_virtual(space: Space) -> bool:
    """Whether a space is made of others, in the words of the Data Hub: no storage is meant."""
    choice = space.storage
    return choice is not None and choice.id == VIRTUAL and VIRTUAL in choice.params


def _view_of(space: Space) -> dict[str, Any]:
    """The view that is meant. There, the last space is the one on top."""
    assert space.storage is not None
    told = space.storage.params[VIRTUAL]
    kind = next(iter(told)) if isinstance(told, dict) and len(told) == 1 else None
    if kind not in _VIEWS or not isinstance(told[kind], list | tuple):
        raise InvalidArgument(
            f"It has one of {', '.join(_VIEWS)}, with an array of ids of spaces; for anything else"
            " name a connector in eventHandlerIds",
            field=f"storage.params.{VIRTUAL}",
        )
    ids = [*told[kind]]
    is_union = _VIEWS[kind]["viewType"] == "UNION"
    return {**_VIEWS[kind], "spaceIds": ids if is_union else ids[::-1]}


_GROUP: Final = {"viewType": "UNION", "writes": "origin"}
_VIEWS: Final[dict[str, dict[str, Any]]] = {
    "group": _GROUP,
    "merge": {"viewType": "MERGED", "namesOrigin": True},
    "override": {"viewType": "LAYERED", "namesOrigin": True},
    "custom": _GROUP,
}
"""Of a custom view a connector of the Data Hub decides; here it shows all features as they are."""


def space_rules(space: Space) -> list[Connector]:
    """What comes before all connectors, because the space says so."""
    return [Connector(id="readOnly", class_name="read-only")] if space.read_only else []

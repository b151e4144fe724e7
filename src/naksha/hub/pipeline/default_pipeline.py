"""Default pipeline of a space that names no connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from naksha.hub.config.objects import Connector, ProcessorRef, Space
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.model.errors import InvalidArgument

VIRTUAL: Final = "virtualspace"
"""Storage id and parameter of a virtual space, which combines other spaces."""


def own_connectors(space: Space) -> list[Connector]:
    """Return the connectors of a space that names none.

    They are a collection, layered over the space that it extends, if any; or a view for a virtual
    space.
    """
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
    """Return whether a space is a virtual space of the Data Hub, which has no storage."""
    choice = space.storage
    return choice is not None and choice.id == VIRTUAL and VIRTUAL in choice.params


def _view_of(space: Space) -> dict[str, Any]:
    """Return the view's properties. In the Data Hub, the last space is the topmost layer."""
    assert space.storage is not None
    virtual = space.storage.params[VIRTUAL]
    kind = next(iter(virtual)) if isinstance(virtual, dict) and len(virtual) == 1 else None
    if kind not in _VIEWS or not isinstance(virtual[kind], list | tuple):
        raise InvalidArgument(
            f"A virtual space needs one of {', '.join(_VIEWS)}, with an array of space ids;"
            " for anything else name a connector in eventHandlerIds",
            field=f"storage.params.{VIRTUAL}",
        )
    ids = [*virtual[kind]]
    is_union = _VIEWS[kind]["viewType"] == "UNION"
    return {**_VIEWS[kind], "spaceIds": ids if is_union else ids[::-1]}


_GROUP: Final = {"viewType": "UNION", "writes": "origin"}
_VIEWS: Final[dict[str, dict[str, Any]]] = {
    "group": _GROUP,
    "merge": {"viewType": "MERGED", "namesOrigin": True},
    "override": {"viewType": "LAYERED", "namesOrigin": True},
    "custom": _GROUP,
}
"""In the Data Hub, a connector implements a custom view; here it shows all features unchanged."""


# ---- Processors ------------------------------------------------------------------------------


def own_processor(ref: ProcessorRef) -> Connector | None:
    """Return the connector for a built-in processor of HERE's platform, using the hub's handlers.

    Returns None for any other processor, which is a connector of the realm.

    Raises:
        InvalidArgument: The processor has parameters that the handler does not support.
    """
    if ref.id not in PROCESSORS:
        return None
    name, handler = PROCESSORS[ref.id]
    params = ref.params or {}
    if {*params} != {name}:
        raise InvalidArgument(
            f"The processor {ref.id} takes one parameter, {name}, not {sorted(params)!r:.80}",
            field="processors",
        )
    if ref.id == _RULE_TAGGER:
        return Connector(id=ref.id, class_name=handler, properties={"rules": params[name]})
    schema = _schema_of(params[name])
    return Connector(id=ref.id, class_name=handler, properties={"schema": schema})


_RULE_TAGGER: Final = "rule-tagger"
_SCHEMA_VALIDATOR: Final = "schema-validator"
PROCESSORS: Final[Mapping[str, tuple[str, str]]] = {
    _RULE_TAGGER: ("taggingRules", "tag-filter"),
    _SCHEMA_VALIDATOR: ("schema", "validation"),
}
"""Parameter and handler of each built-in processor."""


def _schema_of(schema: object) -> object:
    """Return the schema, which clients may also send as a JSON string."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"The schema of the processor {_SCHEMA_VALIDATOR} is not valid JSON: {error}. URLs are "
            "not supported, as the hub fetches nothing; send the schema itself",
            field="processors",
        ) from None


def space_rules(space: Space) -> list[Connector]:
    """Return the connectors that precede all others because of the space's own settings."""
    return [Connector(id="readOnly", class_name="read-only")] if space.read_only else []

"""The pipeline that a space has when it names no connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from naksha.hub.config.objects import Connector, ProcessorRef, Space
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
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


# ---- Processors ------------------------------------------------------------------------------


def own_processor(ref: ProcessorRef) -> Connector | None:
    """The connector for a processor that HERE's platform had for all spaces, made of the handlers
    of the hub. None for any other: that one is a connector of the realm.

    Raises:
        InvalidArgument: It has parameters that the handler cannot express.
    """
    if ref.id not in PROCESSORS:
        return None
    name, handler = PROCESSORS[ref.id]
    params = ref.params or {}
    if {*params} != {name}:
        raise InvalidArgument(
            f"The processor {ref.id} has one parameter, {name}; not {sorted(params)!r:.80}",
            field="processors",
        )
    if ref.id == RULE_TAGGER:
        return Connector(id=ref.id, class_name=handler, properties={"rules": params[name]})
    schema = _schema_of(params[name])
    return Connector(id=ref.id, class_name=handler, properties={"schema": schema})


RULE_TAGGER: Final = "rule-tagger"
SCHEMA_VALIDATOR: Final = "schema-validator"
PROCESSORS: Final[Mapping[str, tuple[str, str]]] = {
    RULE_TAGGER: ("taggingRules", "tag-filter"),
    SCHEMA_VALIDATOR: ("schema", "validation"),
}
"""The parameter and the handler of each of these processors."""


def _schema_of(schema: object) -> object:
    """The schema, which clients also send as a text."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"The schema of the processor {SCHEMA_VALIDATOR} is not JSON: {error}. An address is "
            "not supported: send the schema itself, the hub fetches nothing",
            field="processors",
        ) from None


def space_rules(space: Space) -> list[Connector]:
    """What comes before all connectors, because the space says so."""
    return [Connector(id="readOnly", class_name="read-only")] if space.read_only else []

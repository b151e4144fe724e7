"""Parse features from request bodies: a feature, a collection, or a list of modifications."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, OnConflict
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import check_feature_id
from naksha.model.value_text import value_text

E = TypeVar("E", bound=StrEnum)
LIST = "FeatureModificationList"


def features_of(body: Any, field: str = "body") -> tuple[dict[str, Any], ...]:
    """Return the features of a body that is a FeatureCollection or a single Feature."""
    kind = _kind_of(body) if isinstance(body, dict) else None
    if kind == "Feature":
        return ({"type": kind, **body},)
    if kind != "FeatureCollection":
        raise InvalidArgument(
            f"{field}.type is {kind!r:.64}; expected Feature or FeatureCollection",
            field=f"{field}.type",
        )
    found = _objects(
        body.get("features", []), "features" if field == "body" else f"{field}.features"
    )
    return tuple(one if "type" in one else {"type": "Feature", **one} for one in found)


def _kind_of(body: dict[str, Any]) -> Any:
    """Return the GeoJSON type, inferred from the members if `type` is missing."""
    if "type" in body:
        return body["type"]
    if "features" in body:
        return "FeatureCollection"
    return "Feature" if {"id", "geometry", "properties"} & body.keys() else None


def feature_of(body: Any, id: str) -> dict[str, Any]:
    """Return the one feature of a body; the id of the path replaces its own."""
    if not isinstance(body, dict) or body.get("type", "Feature") != "Feature":
        raise InvalidArgument(
            "The request body must be one GeoJSON Feature; write several features with POST",
            field="body.type",
        )
    return {"type": "Feature", **body, "id": id}


def modifications_of(body: Any, otherwise: Modification) -> tuple[Modification, ...]:
    """Return the modifications of a body.

    `otherwise` has the rules of the query string, for a body without rules of its own.
    """
    if not isinstance(body, dict) or body.get("type") != LIST:
        return (_with_features(otherwise, features_of(body)),)
    listed = _objects(body.get("modifications", []), "modifications")
    return tuple(_modification(one, f"modifications[{place}]") for place, one in enumerate(listed))


def _modification(one: dict[str, Any], field: str) -> Modification:
    data = one.get("featureData")
    ids = one.get("featureIds") or []
    if not isinstance(ids, list):
        raise InvalidArgument(
            f"{field}.featureIds must be an array of feature ids, not {value_text(ids)}",
            field=f"{field}.featureIds",
        )
    return Modification(
        features=() if data is None else features_of(data, f"{field}.featureData"),
        ids=tuple(
            check_feature_id(id, field=f"{field}.featureIds[{place}]")
            for place, id in enumerate(ids)
        ),
        if_exists=_choice(IfExists, one, "onFeatureExists", IfExists.PATCH, field),
        if_not_exists=_choice(IfNotExists, one, "onFeatureNotExists", IfNotExists.CREATE, field),
        on_conflict=_choice(OnConflict, one, "onMergeConflict", OnConflict.ERROR, field),
    )


def _with_features(rules: Modification, features: tuple[dict[str, Any], ...]) -> Modification:
    return Modification(
        features=features,
        if_exists=rules.if_exists,
        if_not_exists=rules.if_not_exists,
        on_conflict=rules.on_conflict,
    )


def _objects(value: Any, field: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        raise InvalidArgument(
            f"{field} must be an array of objects, not {value_text(value)}", field=field
        )
    for place, one in enumerate(value):
        if not isinstance(one, dict):
            raise InvalidArgument(
                f"{field}[{place}] must be an object, not {value_text(one)}",
                field=f"{field}[{place}]",
            )
    return tuple(value)


def _choice(kind: type[E], one: dict[str, Any], name: str, default: E, field: str) -> E:
    value = one.get(name)
    if value is None:
        return default
    try:
        return kind(value.lower() if isinstance(value, str) else value)
    except ValueError:
        raise InvalidArgument(
            f"{field}.{name} is {value!r:.64}; use one of {', '.join(kind)}",
            field=f"{field}.{name}",
        ) from None

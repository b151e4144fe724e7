"""Spaces with a few features, for the tests of the REST API."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import httpx

GEO_JSON = {"Content-Type": "application/geo+json"}
XYZ = "@ns:com:here:xyz"
_numbers = itertools.count()


def new_space(client: httpx.Client, **more: Any) -> str:
    """The path of a new space."""
    id = f"town-{next(_numbers)}"
    answer = client.post("/spaces", json={"id": id, "title": "A town", **more})
    assert answer.status_code in (200, 201), answer.text
    return f"/spaces/{id}"


def id_of(space: str) -> str:
    """The id in the path of a space."""
    return space.rpartition("/")[2]


def point(
    id: str | None,
    lon: float = 0.0,
    lat: float = 0.0,
    *,
    tags: Sequence[str] = (),
    **properties: Any,
) -> dict[str, Any]:
    """A feature."""
    feature: dict[str, Any] = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [lon, lat]},
        "properties": {**properties, **({XYZ: {"tags": [*tags]}} if tags else {})},
    }
    return feature if id is None else {"id": id, **feature}


def collection(*features: dict[str, Any]) -> dict[str, Any]:
    """Several features."""
    return {"type": "FeatureCollection", "features": [*features]}


def put(client: httpx.Client, space: str, *features: dict[str, Any], **query: Any) -> Any:
    """Write features and return the response."""
    answer = client.put(f"{space}/features", json=collection(*features), params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def found(answer: httpx.Response) -> list[str]:
    """The ids of an answer, sorted."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/geo+json"
    return sorted(ids_of(answer.json()["features"]))


def ids_of(features: Iterable[dict[str, Any]]) -> list[str]:
    """Their ids."""
    return [feature["id"] for feature in features]


def error(answer: httpx.Response, status: int, field: str | None = None) -> dict[str, Any]:
    """The envelope of an error."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["type"] == "ErrorResponse"
    if field is not None:
        assert body.get("field") == field, body
    return body

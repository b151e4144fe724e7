"""The data of the tests: two spaces with a history that two people wrote."""

from __future__ import annotations

from typing import Any

import httpx

Geometry = dict[str, Any]
XYZ = "@ns:com:here:xyz"
BRIDGE = [8.60, 50.10]
MOVED_BRIDGE = [8.602, 50.10]
MAIN_STREET = [[8.55, 50.08], [8.60, 50.10], [8.65, 50.12]]
PARK = [[[8.62, 50.06], [8.68, 50.06], [8.68, 50.09], [8.62, 50.09], [8.62, 50.06]]]


def feature(
    feature_id: str, shape: str, coordinates: Any, *tags: str, **values: Any
) -> dict[str, Any]:
    """A GeoJSON feature."""
    return {
        "type": "Feature",
        "id": feature_id,
        "geometry": {"type": shape, "coordinates": coordinates},
        "properties": {**values, XYZ: {"tags": list(tags)}},
    }


def write(client: httpx.Client, space: str, *features: dict[str, Any]) -> None:
    """Write features as one version."""
    body = {"type": "FeatureCollection", "features": list(features)}
    client.put(f"/hub/spaces/{space}/features", json=body).raise_for_status()


def fill(ann: httpx.Client, ben: httpx.Client) -> None:
    """Write the spaces `city` and `empty`.

    Versions of `city`: 1 a bridge, a street, a park, a café; 2 Ben moves and renames the bridge;
    3 Ann closes the café; 4 Ann adds a school.
    """
    ann.post("/hub/spaces", json={"id": "city", "title": "A small city"}).raise_for_status()
    ann.post("/hub/spaces", json={"id": "empty", "title": "Nothing yet"}).raise_for_status()
    write(
        ann,
        "city",
        feature("bridge", "Point", BRIDGE, "checked", name="Old Bridge", kind="bridge", lanes=2),
        feature("main-street", "LineString", MAIN_STREET, name="Main Street", kind="road", lanes=4),
        feature("park", "Polygon", PARK, "checked", "green", name="West Park", kind="park"),
        feature("cafe", "Point", [8.58, 50.12], name="Café Zürich", kind="food"),
    )
    write(
        ben,
        "city",
        feature(
            "bridge", "Point", MOVED_BRIDGE, "checked", name="New Bridge", kind="bridge", lanes=2
        ),
    )
    ann.delete("/hub/spaces/city/features/cafe").raise_for_status()
    write(ann, "city", feature("school", "Point", [8.66, 50.11], name="High School", kind="school"))
    ann.post(
        "/hub/spaces/city/tags", json={"id": "as-built", "version": first_version(ann)}
    ).raise_for_status()


def first_version(client: httpx.Client) -> int:
    """The version that created the features of `city`."""
    found = client.get("/hub/spaces/city/log", params={"newestFirst": "false", "limit": 1}).json()
    return int(found["changesets"][0]["version"])

"""A space with changes of all kinds: points, lines and areas that are created, changed, deleted."""

from __future__ import annotations

from typing import NamedTuple

import httpx

from tests.server.web.places import feature, write

SPACE = "district"
SQUARE = [[8.60, 50.10], [8.64, 50.10], [8.64, 50.13], [8.60, 50.13], [8.60, 50.10]]
SQUARE_CUT = [
    [8.60, 50.10],
    [8.64, 50.10],
    [8.64, 50.12],
    [8.63, 50.13],
    [8.60, 50.13],
    [8.60, 50.10],
]
FIELD = [[[8.66, 50.10], [8.70, 50.10], [8.70, 50.13], [8.66, 50.13], [8.66, 50.10]]]
YARD = [[[8.54, 50.10], [8.58, 50.10], [8.58, 50.13], [8.54, 50.13], [8.54, 50.10]]]
LANE = [[8.56, 50.08], [8.60, 50.085], [8.64, 50.08]]
BENT_LANE = [[8.56, 50.08], [8.60, 50.075], [8.64, 50.08]]
ROAD = [[8.56, 50.06], [8.64, 50.06]]
TRACK = [[8.56, 50.05], [8.64, 50.05]]


class Versions(NamedTuple):
    """Versions of the space: as surveyed, after Ben's changes, and after Ann's."""

    survey: int
    ben: int
    ann: int


def fill_district(ann: httpx.Client, ben: httpx.Client, space: str = SPACE) -> Versions:
    """Write the space, the tag `survey` and the branch `plan`."""
    ann.post("/hub/spaces", json={"id": space, "title": "District"}).raise_for_status()
    found = [
        _version(
            ann,
            space,
            feature("square", "Polygon", [SQUARE], name="Square", kind="plaza"),
            feature("field", "Polygon", FIELD, name="Field", kind="grass"),
            feature("lane", "LineString", LANE, name="Lane", kind="road"),
            feature("track", "LineString", TRACK, name="Track", kind="road"),
            feature("tree", "Point", [8.66, 50.08], name="Tree", kind="tree"),
            feature("kiosk", "Point", [8.68, 50.07], name="Kiosk", kind="shop"),
            feature("bench", "Point", [8.58, 50.09], name="Bench", kind="seat"),
        )
    ]
    tag = {"id": "survey", "version": found[0]}
    ann.post(f"/hub/spaces/{space}/tags", json=tag).raise_for_status()
    found.append(
        _version(
            ben,
            space,
            feature("square", "Polygon", [SQUARE_CUT], name="Market Square", kind="plaza"),
            feature("lane", "LineString", BENT_LANE, name="Lane", kind="road"),
            feature("tree", "Point", [8.664, 50.082], name="Tree", kind="tree"),
            feature("yard", "Polygon", YARD, name="Yard", kind="grass"),
        )
    )
    write(
        ann,
        space,
        feature("road", "LineString", ROAD, name="New Road", kind="road"),
        feature("lamp", "Point", [8.70, 50.08], name="Lamp", kind="light"),
    )
    for name in ("field", "track"):
        ann.delete(f"/hub/spaces/{space}/features/{name}").raise_for_status()
    ann.delete(f"/hub/spaces/{space}/features/kiosk").raise_for_status()
    found.append(_last(ann, space))
    branch = {"id": "plan", "baseRef": "main:HEAD"}
    ann.post(f"/hub/spaces/{space}/branches", json=branch).raise_for_status()
    planned = feature("pond", "Point", [8.62, 50.07], name="Pond", kind="water")
    body = {"type": "FeatureCollection", "features": [planned]}
    path = f"/hub/spaces/{space}/features"
    ann.put(path, params={"versionRef": "plan"}, json=body).raise_for_status()
    return Versions(*found)


def _version(client: httpx.Client, space: str, *features: dict[str, object]) -> int:
    write(client, space, *features)
    return _last(client, space)


def _last(client: httpx.Client, space: str) -> int:
    found = client.get(f"/hub/spaces/{space}/log", params={"limit": 1}).json()
    return int(found["changesets"][0]["version"])

"""Features for benchmarks: roads, generated from a seed, so that they are the same in every run."""

import math
import random
from typing import Any

Feature = dict[str, Any]


def road(number: int, rng: random.Random, prefix: str = "road") -> Feature:
    """Generate a short line of three to six vertices with five attributes."""
    lon, lat = rng.uniform(-179, 179), rng.uniform(-80, 80)
    heading = rng.uniform(0, 2 * math.pi)
    line = []
    for step in range(rng.randint(3, 6)):
        distance = step * 0.002
        line.append(
            [
                round(lon + distance * math.cos(heading) + rng.uniform(0, 0.0005), 7),
                round(lat + distance * math.sin(heading) + rng.uniform(0, 0.0005), 7),
            ]
        )
    return {
        "id": f"{prefix}-{number}",
        "type": "Feature",
        "geometry": {"type": "LineString", "coordinates": line},
        "properties": {
            "name": f"Street number {number}",
            "speedLimit": rng.choice([30, 50, 60, 80, 100, 120]),
            "lanes": rng.randint(1, 4),
            "oneway": rng.random() < 0.3,
            "surface": rng.choice(["asphalt", "concrete", "gravel", "paved"]),
            "@ns:com:here:xyz": {"tags": [rng.choice(["primary", "secondary", "residential"])]},
        },
    }


def roads(count: int, seed: int = 1) -> list[Feature]:
    """Generate a number of roads."""
    rng = random.Random(seed)
    return [road(number, rng) for number in range(count)]


def edited(features: list[Feature], seed: int = 2) -> list[Feature]:
    """Return edited copies of features, with another speed limit and a moved first vertex."""
    rng = random.Random(seed)
    return [_edit(feature, rng) for feature in features]


def _edit(feature: Feature, rng: random.Random) -> Feature:
    coordinates = [list(position) for position in feature["geometry"]["coordinates"]]
    coordinates[0][0] = round(coordinates[0][0] + rng.uniform(0.0001, 0.0005), 7)
    properties = {**feature["properties"], "speedLimit": rng.choice([10, 20, 70, 90])}
    geometry = {"type": "LineString", "coordinates": coordinates}
    return {**feature, "geometry": geometry, "properties": properties}

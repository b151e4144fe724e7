"""Write `cities.json` from the Natural Earth data in the wheel of geopandas 0.14.4.

    pip download --no-deps geopandas==0.14.4
    python web/data/extract_cities.py geopandas-0.14.4-py3-none-any.whl

The file is committed; this program is only needed to write it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import pyogrio
import shapely

_FOLDER = "geopandas/datasets/naturalearth_cities/"
_SOURCE = (
    "Natural Earth 1:110m populated places, version {version}, public domain, "
    "https://www.naturalearthdata.com, from the wheel {wheel}"
)

_DAMAGED = {"?saka": "Osaka", "Chi?in?u": "Chisinau"}
"""Names that have lost letters in the file."""


def main() -> None:
    """Read the wheel that the command line names, and write `cities.json` next to this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_FOLDER):
                archive.extract(name, directory)
        folder = Path(directory, _FOLDER)
        version = (folder / "naturalearth_cities.VERSION.txt").read_text().strip()
        _, _, shapes, (names,) = pyogrio.raw.read(folder / "naturalearth_cities.shp")
    points = shapely.from_wkb(shapes)
    cities = sorted(
        [_DAMAGED.get(name, str(name)), round(point.x, 3), round(point.y, 3)]
        for name, point in zip(names, points, strict=True)
    )
    made = {"source": _SOURCE.format(version=version, wheel=wheel.name), "cities": cities}
    target = Path(__file__).with_name("cities.json")
    target.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.write(f"{target}: {len(cities)} cities\n")


if __name__ == "__main__":
    main()

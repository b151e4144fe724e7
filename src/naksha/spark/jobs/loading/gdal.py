"""GDAL, held to files of a few kinds and to this machine. It takes longer to load than all else,
and most loads go without it.

It knows a file by what is in it, whatever its name is, and there are kinds of files that only lead
to others, or to servers: whoever may name a file of a directory has no right to those. So the
process of a job lets it know no kinds but those that are documented, and it goes nowhere for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

KINDS: Final = "Shapefile, GeoPackage, FlatGeobuf, GML or KML"
"""What may be opened, for people."""
DRIVERS: Final = frozenset({"ESRI Shapefile", "GPKG", "FlatGeobuf", "GML", "KML", "LIBKML"})
_SETTINGS: Final = {
    # What a GML file says of its columns may be at a server, and so may parts of its features.
    "GML_DOWNLOAD_SCHEMA": "NO",
    "GML_SKIP_RESOLVE_ELEMS": "ALL",
}
_line: Final = threading.Lock()
_held: Final = threading.Event()


def hold() -> None:
    """This process does nothing but a job: from its first file on, GDAL knows no other kinds. Where
    others use it, too, drivers that are taken away end the process; there whoever opens a file
    looks afterwards of which kind it is."""
    _held.set()


@contextmanager
def opening() -> Iterator[Any]:
    """The package `pyogrio`, while it opens a file. What is set belongs to the whole process, where
    others may use it too, hence it is given back."""
    with _line:
        pyogrio = _loaded()
        before = {name: pyogrio.get_gdal_config_option(name) for name in _SETTINGS}
        try:
            pyogrio.set_gdal_config_options(_SETTINGS)
            yield pyogrio
        finally:
            pyogrio.set_gdal_config_options(before)


@cache
def _loaded() -> Any:
    import pyogrio  # noqa: PLC0415
    from pyogrio._ogr import _register_drivers  # noqa: PLC0415

    if _held.is_set():
        others = [name for name in pyogrio.list_drivers() if name not in DRIVERS]
        pyogrio.set_gdal_config_options({"GDAL_SKIP": ",".join(others)})
        _register_drivers()  # It leaves out those that are to be skipped, known or not.
    return pyogrio

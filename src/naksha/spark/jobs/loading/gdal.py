"""Restricted access to GDAL: only a few drivers, and no network access.

GDAL detects formats by content, regardless of the name, and some formats only refer to other files
or to servers, which the user of a job may not be allowed to read. So a job process enables only the
documented drivers and disables their downloads.

The package is imported lazily: that takes longer than all other imports, and most loads do not need
it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

KINDS: Final = "Shapefile, GeoPackage, FlatGeobuf, GML or KML"
"""Supported formats, for messages."""
DRIVERS: Final = frozenset({"ESRI Shapefile", "GPKG", "FlatGeobuf", "GML", "KML", "LIBKML"})
_SETTINGS: Final = {
    # The schema of a GML file, and parts of its features, may be on a server.
    "GML_DOWNLOAD_SCHEMA": "NO",
    "GML_SKIP_RESOLVE_ELEMS": "ALL",
}
_line: Final = threading.Lock()
_held: Final = threading.Event()


def hold() -> None:
    """Remove all other drivers from this process once GDAL is loaded; call it in job processes.

    In a process with other users of GDAL, removing drivers may crash it. There the driver of each
    file is checked after opening it.
    """
    _held.set()


@contextmanager
def opening() -> Iterator[Any]:
    """Provide the package `pyogrio` for opening a file.

    Its settings are global to the process, so they are restored at the end of the block.
    """
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
        _register_drivers()  # it also unregisters the skipped ones
    return pyogrio

"""GDAL, held to files of a few kinds and to this machine. It takes longer to load than all else,
and most loads go without it.

It knows a file by what is in it, whatever its name is, and there are kinds of files that only lead
to others, or to servers: whoever may name a file of a directory has no right to those. So it may
know no kinds but those that are documented while a file is opened, and goes nowhere for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

KINDS: Final = "Shapefile, GeoPackage, FlatGeobuf, GML or KML"
"""What may be opened, for people."""
_DRIVERS: Final = frozenset({"ESRI Shapefile", "GPKG", "FlatGeobuf", "GML", "KML", "LIBKML"})
_SKIPPED: Final = "GDAL_SKIP"
_SETTINGS: Final = {
    # What a GML file says of its columns may be at a server, and so may parts of its features.
    "GML_DOWNLOAD_SCHEMA": "NO",
    "GML_SKIP_RESOLVE_ELEMS": "ALL",
}
_line: Final = threading.Lock()


@contextmanager
def opening() -> Iterator[Any]:
    """The package `pyogrio`, while it opens a file of one of the `KINDS`. What it knows belongs to
    the whole process, where others may use it too, hence it is given back."""
    import pyogrio  # noqa: PLC0415
    from pyogrio._ogr import _register_drivers  # noqa: PLC0415

    with _line:
        others = [name for name in pyogrio.list_drivers() if name not in _DRIVERS]
        wanted = {**_SETTINGS, _SKIPPED: ",".join(others)}
        before = {name: pyogrio.get_gdal_config_option(name) for name in wanted}
        try:
            pyogrio.set_gdal_config_options(wanted)
            _register_drivers()  # It leaves out those that are to be skipped, known or not.
            yield pyogrio
        finally:
            pyogrio.set_gdal_config_options(before)
            _register_drivers()

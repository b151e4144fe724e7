"""A map of differences as one HTML file: the viewer that is built from `web/`, and the data."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from naksha.model.errors import InvalidArgument, NotSupported
from naksha.model.state import XYZ, State
from naksha.model.version import Version
from naksha.versioning import FeatureDiff

_CHANGES_MAX: Final = 50_000
"""A browser draws no more than this from one file."""
_VIEWER: Final = ("server", "web", "static", "compare.html")
_PLACEHOLDER: Final = b"NAKSHA_COMPARISON"
"""Text in the viewer that the data, in gzip and base64, replaces."""
_KEPT: Final = ("author", "appId", "updatedAt", "tags", "version")
"""Members of the namespace that the map shows; the others would be half of the file."""


class MapFile:
    """The file to write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Raise an error, before anything is read, if the file cannot be written."""
        viewer()
        if not self._path.parent.is_dir():
            raise InvalidArgument(
                f"The directory {str(self._path.parent)!r} does not exist; create it, or choose "
                "another file for --map",
                field="map",
            )

    async def write(
        self,
        collection: str,
        refs: tuple[str, str],
        versions: tuple[Version, Version],
        changes: AsyncIterator[FeatureDiff],
    ) -> Counter[str]:
        """Write the differences; returns how many there are of each action."""
        counts: Counter[str] = Counter()
        found: list[dict[str, Any]] = []
        async for change in changes:
            counts[change.action.value] += 1
            found.append(_change_json(change))
            if len(found) > _CHANGES_MAX:
                raise InvalidArgument(
                    f"There are more than {_CHANGES_MAX} differences, too many for one map; choose "
                    "closer versions, or only some with --author or --bbox",
                    field="map",
                )
        ends = [
            {"ref": ref, "version": version.seq_number, "publishedAt": version.published_ms}
            for ref, version in zip(refs, versions, strict=True)
        ]
        document = {"collection": collection, "from": ends[0], "to": ends[1], "changes": found}
        packed = gzip.compress(msgspec.json.encode(document), 9, mtime=0)
        self._path.write_bytes(viewer().replace(_PLACEHOLDER, base64.b64encode(packed)))
        return counts


def viewer() -> bytes:
    """Return the HTML of the viewer.

    Raises:
        NotSupported: The viewer has not been built.
    """
    file = files("naksha").joinpath(*_VIEWER)
    if not file.is_file():
        raise NotSupported(
            "The viewer for --map has not been built; in the repository, run scripts/setup.sh web"
        )
    return file.read_bytes()


def _change_json(change: FeatureDiff) -> dict[str, Any]:
    sides = {"old": change.old, "new": change.new}
    shown = {name: _feature_json(side) for name, side in sides.items() if side is not None}
    return {"id": change.id, "action": change.action.value, "paths": change.paths(), **shown}


def _feature_json(state: State) -> dict[str, Any]:
    feature = state.feature
    namespace = feature["properties"][XYZ]
    kept = {name: namespace[name] for name in _KEPT if namespace.get(name) is not None}
    return {**feature, "properties": {**feature["properties"], XYZ: kept}}

"""Files of a load, and their division into pieces that tasks read."""

from __future__ import annotations

import codecs
import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument, NotFound
from naksha.spark.jobs.loading.spec import FileFormat, FileSource
from naksha.spark.jobs.publish_directory import MANIFEST, REPORT

PIECE_BYTES: Final = 32 * 1024 * 1024
"""Approximate size of the piece of a file of lines that one task reads."""
PIECE_FEATURES: Final = 50_000
"""Number of features of a vector file that one task reads."""
REJECTS_SUFFIX: Final = ".rejects.jsonl"
"""Default suffix of files for rejected records. Such files are only loaded if they are named
explicitly."""
_HIDDEN: Final = ("_", ".")
_BLOCK: Final = 1024 * 1024
_SUFFIXES: Final = {
    ".geojson": FileFormat.GEOJSON,
    ".json": FileFormat.GEOJSON,
    ".geojsonl": FileFormat.LINES,
    ".geojsonseq": FileFormat.LINES,
    ".geojsons": FileFormat.LINES,
    ".ndjson": FileFormat.LINES,
    ".jsonl": FileFormat.LINES,
    ".ndgeojson": FileFormat.LINES,
    ".parquet": FileFormat.PARQUET,
    ".geoparquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".shp": FileFormat.VECTOR,
    ".gpkg": FileFormat.VECTOR,
    ".fgb": FileFormat.VECTOR,
    ".gml": FileFormat.VECTOR,
    ".kml": FileFormat.VECTOR,
    ".zip": FileFormat.VECTOR,
}


class FilePiece(msgspec.Struct, frozen=True):
    """Part of a file: bytes or records from `start` to `end`, and the number of its first line."""

    path: str
    start: int = 0
    end: int | None = None
    line: int = 1
    layer: str | None = None
    encoding: str | None = None
    """Encoding of its texts, if it is given."""
    size: int = PIECE_BYTES
    """Approximate number of bytes to read; several small pieces are read by one task."""
    batch_rows: int = 1
    """Number of records of a vector file that are read at once."""


class FoundFiles(NamedTuple):
    """Files to read, and files in the same directories that are left out, for a report."""

    files: list[str]
    left_out: list[str]


def files_of(spec: FileSource) -> list[str]:
    """Return the files to read, see `found_files`."""
    return found_files(spec).files


def found_files(spec: FileSource) -> FoundFiles:
    """Find the files of paths, directories and patterns, in order.

    Raises:
        NotFound: A path or pattern does not match any file.
    """
    found = FoundFiles([], [])
    for pattern in spec.files:
        path = Path(pattern)
        if path.is_dir():
            files, left_out = _files_in(path)
            found.left_out.extend(str(each.absolute()) for each in left_out)
        elif path.exists():
            files = [path]
        else:
            files = [each for each in _matches(pattern) if not _is_rejects(each)]
        if not files:
            raise NotFound(f"No file matches {pattern!r}", field="files")
        found.files.extend(str(each.absolute()) for each in files)
    if not found.files:
        raise InvalidArgument("The option files must name at least one file", field="files")
    return found


def _matches(pattern: str) -> list[Path]:
    """Return the files that match a pattern, which may be absolute."""
    # Path.glob does not accept absolute patterns.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
    return [path for path in paths if not path.is_dir()]


def _files_in(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the files to read in a directory, by their suffixes, and the other files."""
    taken: list[Path] = []
    others: list[Path] = []
    for each in sorted(directory.rglob("*")):
        if not each.is_dir():
            is_meant = _is_known(each) and not _is_hidden(each.relative_to(directory))
            (taken if is_meant else others).append(each)
    wholes = {each.with_suffix("") for each in taken if _is_vector(each)}
    return taken, [each for each in others if not _is_beside(each, wholes)]


def _is_beside(path: Path, wholes: set[Path]) -> bool:
    """Whether a file need not be reported as left out.

    Such files are parts of other files, like `.dbf` of `.shp`, rejected records, reports of jobs,
    and temporary files.
    """
    stem = path.with_suffix("")
    if stem in wholes or stem.with_suffix("") in wholes:
        return True
    is_left = path.name.startswith(_HIDDEN) and not _is_known(path)
    return is_left or _is_rejects(path) or path.name in (REPORT, MANIFEST)


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not _is_rejects(path)


def _is_vector(path: Path) -> bool:
    return _SUFFIXES[path.suffix.lower()] is FileFormat.VECTOR


def _is_rejects(path: Path) -> bool:
    return path.name.endswith(REJECTS_SUFFIX)


def _is_hidden(path: Path) -> bool:
    """Whether a path is temporary or hidden, such as `_temporary` or `.crc`."""
    return any(part.startswith(_HIDDEN) for part in path.parts)


def format_of(spec: FileSource, files: list[str]) -> FileFormat:
    """Determine the format, which must be the same for all files."""
    if spec.format is not FileFormat.AUTO:
        return spec.format
    kinds = {_format_of(Path(path)) for path in files}
    if len(kinds) > 1:
        named = ", ".join(sorted(kinds))
        raise InvalidArgument(
            f"The files must have the same format, not {named}; load them separately", field="files"
        )
    return kinds.pop()


def _format_of(path: Path) -> FileFormat:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise InvalidArgument(
            f"The format of {path.name!r} is unknown; set the option format, or use one of the"
            f" suffixes {known}",
            field="format",
        )
    if found is FileFormat.GEOJSON and _has_lines(path):
        return FileFormat.LINES
    return found


def _has_lines(path: Path) -> bool:
    """Whether each line of a file is a JSON document, regardless of its suffix."""
    with path.open("rb") as file:
        first = file.readline(_BLOCK).removeprefix(codecs.BOM_UTF8)
        second = file.readline(_BLOCK)
    try:
        # Invalid UTF-8 is reported when the file is read.
        msgspec.json.decode(first.lstrip(b"\x1e").decode(errors="replace"))
        return bool(second.strip())
    except (msgspec.DecodeError, RecursionError):
        return False


def pieces_of(path: str) -> Iterator[FilePiece]:
    """Divide a file into pieces of whole lines, with the numbers of their first lines.

    It has to be read for that, which takes a fraction of the time of the load.
    """
    start = position = 0
    line = first = 1
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut and position + cut - start >= PIECE_BYTES:
                line += block.count(b"\n", 0, cut)
                yield FilePiece(path, start, position + cut, first)
                start, first = position + cut, line
                line += block.count(b"\n", cut)
            else:
                line += block.count(b"\n")
            position += len(block)
    if position > start:
        yield FilePiece(path, start, position, first)

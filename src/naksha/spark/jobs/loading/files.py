"""The files of a load, and the pieces they are read in: each by one task."""

from __future__ import annotations

import codecs
import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument, NotFound
from naksha.spark.jobs.loading.spec import Format, Source
from naksha.spark.jobs.publish_directory import MANIFEST, REPORT

PIECE_BYTES: Final = 32 * 1024 * 1024
"""About how much of a file with lines one task reads."""
PIECE_FEATURES: Final = 50_000
"""How many features of a vector file one task reads."""
REJECTS_SUFFIX: Final = ".rejects.jsonl"
"""Records that were rejected are kept in files of such names unless told otherwise; they are loaded
only by those who name them."""
_HIDDEN: Final = ("_", ".")
_BLOCK: Final = 1024 * 1024
_SUFFIXES: Final = {
    ".geojson": Format.GEOJSON,
    ".json": Format.GEOJSON,
    ".geojsonl": Format.LINES,
    ".geojsonseq": Format.LINES,
    ".geojsons": Format.LINES,
    ".ndjson": Format.LINES,
    ".jsonl": Format.LINES,
    ".ndgeojson": Format.LINES,
    ".parquet": Format.PARQUET,
    ".geoparquet": Format.PARQUET,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".shp": Format.VECTOR,
    ".gpkg": Format.VECTOR,
    ".fgb": Format.VECTOR,
    ".gml": Format.VECTOR,
    ".kml": Format.VECTOR,
    ".zip": Format.VECTOR,
}


class Piece(msgspec.Struct, frozen=True):
    """A part of a file: bytes from `start` to `end`, or records, and the line that it begins at."""

    path: str
    start: int = 0
    end: int | None = None
    line: int = 1
    layer: str | None = None
    encoding: str | None = None
    """Of its texts, where somebody says it."""
    size: int = PIECE_BYTES
    """About how many bytes it takes to read it: small ones are read by one task."""
    batch_rows: int = 1
    """How many of the records of a vector file are read at once."""


class Found(NamedTuple):
    """The files that are meant, and those of their directories that are not, whose owner may wonder
    about that."""

    files: list[str]
    left_out: list[str]


def files_of(spec: Source) -> list[str]:
    """The files that are meant, see `found_files`."""
    return found_files(spec).files


def found_files(spec: Source) -> Found:
    """The files that are meant by paths, directories, or patterns, in order.

    Raises:
        NotFound: There is none.
    """
    found = Found([], [])
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
            raise NotFound(f"There is no file {pattern!r}", field="files")
        found.files.extend(str(each.absolute()) for each in files)
    if not found.files:
        raise InvalidArgument("Name at least one file", field="files")
    return found


def _matches(pattern: str) -> list[Path]:
    """Files that fit a pattern, whatever of it is absolute."""
    # Path.glob takes no absolute one.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
    return [path for path in paths if not path.is_dir()]


def _files_in(directory: Path) -> tuple[list[Path], list[Path]]:
    """Those in a directory, by their endings, and what else is there."""
    taken: list[Path] = []
    others: list[Path] = []
    for each in sorted(directory.rglob("*")):
        if not each.is_dir():
            is_meant = _is_known(each) and not _is_hidden(each.relative_to(directory))
            (taken if is_meant else others).append(each)
    wholes = {each.with_suffix("") for each in taken if _is_vector(each)}
    return taken, [each for each in others if not _is_beside(each, wholes)]


def _is_beside(path: Path, wholes: set[Path]) -> bool:
    """Whether nobody would miss it: a part of another file, as `.dbf` of `.shp`, what was rejected,
    or what programs leave on their way."""
    stem = path.with_suffix("")
    if stem in wholes or stem.with_suffix("") in wholes:
        return True
    is_left = path.name.startswith(_HIDDEN) and not _is_known(path)
    return is_left or _is_rejects(path) or path.name in (REPORT, MANIFEST)


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not _is_rejects(path)


def _is_vector(path: Path) -> bool:
    return _SUFFIXES[path.suffix.lower()] is Format.VECTOR


def _is_rejects(path: Path) -> bool:
    return path.name.endswith(REJECTS_SUFFIX)


def _is_hidden(path: Path) -> bool:
    """Whether others left it there on the way: `_temporary`, `.crc`."""
    return any(part.startswith(_HIDDEN) for part in path.parts)


def format_of(spec: Source, files: list[str]) -> Format:
    """What kind of files they are; all of the same."""
    if spec.format is not Format.AUTO:
        return spec.format
    kinds = {_format_of(Path(path)) for path in files}
    if len(kinds) > 1:
        named = ", ".join(sorted(kinds))
        raise InvalidArgument(f"Files of one kind are loaded at a time, not {named}", field="files")
    return kinds.pop()


def _format_of(path: Path) -> Format:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise InvalidArgument(
            f"{path.name!r} could be anything: name the format, or use one of {known}",
            field="format",
        )
    if found is Format.GEOJSON and _has_lines(path):
        return Format.LINES
    return found


def _has_lines(path: Path) -> bool:
    """Whether each line is a document of its own, whatever the file is called."""
    with path.open("rb") as file:
        first = file.readline(_BLOCK).removeprefix(codecs.BOM_UTF8)
        second = file.readline(_BLOCK)
    try:
        # Whether its bytes are text is looked at by whoever reads it.
        msgspec.json.decode(first.lstrip(b"\x1e").decode(errors="replace"))
        return bool(second.strip())
    except (msgspec.DecodeError, RecursionError):
        return False


def pieces_of(path: str) -> Iterator[Piece]:
    """A file with lines in pieces that begin and end with a line, and the number of their first
    line: it is read once for that, which takes a fraction of what follows."""
    start = position = 0
    line = first = 1
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut and position + cut - start >= PIECE_BYTES:
                line += block.count(b"\n", 0, cut)
                yield Piece(path, start, position + cut, first)
                start, first = position + cut, line
                line += block.count(b"\n", cut)
            else:
                line += block.count(b"\n")
            position += len(block)
    if position > start:
        yield Piece(path, start, position, first)

"""Validation of records: valid ones become features, invalid ones are reported with a reason."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import shapely

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.features import PreparedFeatures
from naksha.spark.jobs.frame import JobProgress
from naksha.spark.jobs.loading.files import REJECTS_SUFFIX
from naksha.spark.jobs.loading.shapes import PLACES, shapes_of
from naksha.spark.jobs.loading.spec import FileSource
from naksha.spi.arrow import INPUT
from naksha.spi.staging import checked

REJECTED: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("record", pa.string()),
    ]
)
"""Schema of rejected records, with their origin and reason."""
_LINE_BYTES_MAX: Final = 32 * limits.REJECT_LENGTH_MAX
_SMALL: Final = 256
"""Maximum number of records whose valid ones are staged together if one of them is invalid."""


class CheckedBatch(NamedTuple):
    """Result of checking a batch.

    It has the features (`INPUT`), the same features ready to be staged, the number of features that
    were changed at the date line, and the rejected records (`REJECTED`). Features with the same id
    are in different parts, because duplicates can only be resolved across all batches.
    """

    given: list[pa.RecordBatch]
    features: list[PreparedFeatures]
    adjusted: int
    rejected: pa.RecordBatch


class RecordChecker(msgspec.Struct, frozen=True):
    """Parameters of tasks that check records; small and picklable."""

    info: CollectionInfo
    crs: str | None
    clockwise: frozenset[str] = frozenset()
    """Sources whose outer rings are clockwise."""
    is_cut: bool = True
    """Whether geometries are cut at the date line."""

    def check(self, batch: pa.RecordBatch) -> CheckedBatch:
        """Separate a batch of records into features and rejected records."""
        shapes = shapes_of(batch, self.crs, self.clockwise, is_cut=self.is_cut)
        problems = dict(enumerate(batch.column("problem").to_pylist()))
        problems = {n: text for n, text in problems.items() if text is not None}
        problems = shapes.problems | problems
        given = _given(batch, shapes.wkb)
        rows = [n for n in range(batch.num_rows) if n not in problems]
        features: list[PreparedFeatures] = []
        parts = [self._good(given, part, problems, features) for part in self._unique(given, rows)]
        good = [n for part in parts for n in part]
        adjusted = int(shapes.adjusted[good].sum())
        adjusted += sum(filter(None, batch.column("adjusted").take(_rows(good)).to_pylist()))
        chosen = [_chosen(given, part) for part in parts if part]
        return CheckedBatch(chosen, features, adjusted, _rejected(batch, problems))

    def _unique(self, given: pa.RecordBatch, rows: list[int]) -> list[list[int]]:
        """Divide rows into parts with unique ids; usually there is one part."""
        prefix = self.info.id_prefix or ""
        ids = given.column("id").to_pylist()
        named = [None if ids[n] is None else ids[n].removeprefix(prefix) for n in rows]
        known = [id_ for id_ in named if id_ is not None]
        if len(set(known)) == len(known):
            return [rows]
        parts: list[list[int]] = []
        times: Counter[str] = Counter()
        for n, id_ in zip(rows, named, strict=True):
            place = 0 if id_ is None else times[id_]
            if id_ is not None:
                times[id_] += 1
            if place == len(parts):
                parts.append([])
            parts[place].append(n)
        return parts

    def _good(
        self,
        given: pa.RecordBatch,
        rows: list[int],
        problems: dict[int, str],
        features: list[PreparedFeatures],
    ) -> list[int]:
        """Return the rows that the storage accepts, and add them to `features`.

        The reasons for rejecting the other rows are added to `problems`. Invalid rows are found by
        bisection, because a batch is checked as a whole.
        """
        if not rows:
            return rows
        try:
            features.append(checked(_chosen(given, rows), self.info))
            return rows
        except (InvalidArgument, LimitExceeded) as error:
            broken = error
        if len(rows) == 1:
            problems[rows[0]] = broken.message
            return []
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        if len(rows) > _SMALL:
            return [n for half in halves for n in self._good(given, half, problems, features)]
        # The valid rows of a small part are staged together.
        good = [n for half in halves for n in self._good(given, half, problems, [])]
        if good:
            features.append(checked(_chosen(given, good), self.info))
        return good


def _chosen(given: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    return given if len(rows) == given.num_rows else given.take(_rows(rows))


def _rows(positions: list[int]) -> pa.Array:
    return pa.array(positions, pa.int64())


def _given(batch: pa.RecordBatch, wkb: list[bytes | None]) -> pa.RecordBatch:
    columns = [
        pa.array(wkb, pa.binary()) if name == "geometry" else batch.column(name)
        for name in INPUT.names
    ]
    arrays = [column.cast(field.type) for column, field in zip(columns, INPUT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INPUT)


def _rejected(batch: pa.RecordBatch, problems: dict[int, str]) -> pa.RecordBatch:
    rows = sorted(problems)
    found = batch.take(_rows(rows)).to_pylist()
    return pa.RecordBatch.from_pylist(
        [
            {
                "source": each["source"],
                "line": each["line"],
                "id": _cut(each["id"]),
                "reason": _cut(problems[n]),
                "record": _cut(each["record"] or _shown(each)),
            }
            for n, each in zip(rows, found, strict=True)
        ],
        schema=REJECTED,
    )


def _cut(text: str | None) -> str | None:
    """Truncate a text, because the rejected records of all tasks are held by one process."""
    length_max = limits.REJECT_LENGTH_MAX
    if text is None or len(text) <= length_max:
        return text
    return f"{text[:length_max]} … (truncated, {len(text)} characters in total)"


def _shown(row: dict[str, Any]) -> str:
    """Format a record as a feature, with the source of its geometry if that is invalid."""
    wkb: bytes | None = row["geometry"]
    members = _json(row["members"])
    feature = {
        "type": "Feature",
        "id": row["id"],
        "geometry": _geometry(wkb),
        "properties": _json(row["properties"]),
        **(members if isinstance(members, dict) else {}),
    }
    rest = {name: row[name] for name in ("tags", "crid", *PLACES) if row[name] is not None}
    if wkb is not None and feature["geometry"] is None:
        rest["wkb"] = wkb.hex()
    return msgspec.json.encode(feature | rest).decode()


def _geometry(wkb: bytes | None) -> Any:
    """Convert WKB to GeoJSON; None if that is not possible."""
    try:
        text = shapely.to_geojson(shapely.from_wkb(wkb, on_invalid="ignore"))
        return None if text is None else _json(text)
    except (shapely.errors.ShapelyError, NotImplementedError):
        return None  # not valid WKB, or a curve


def _json(text: str | None) -> Any:
    """Decode JSON; return the text itself if it is not valid JSON."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text


def check_rejects(spec: FileSource) -> None:
    """Validate the options for rejected records before any file is read."""
    if spec.rejects_max < 0:
        raise InvalidArgument(
            f"The option rejects_max must be 0 or more, not {spec.rejects_max}",
            field="rejects_max",
        )


def check_place(spec: FileSource, files: Sequence[str]) -> Path:
    """Return the path of the file for rejected records.

    Raises:
        InvalidArgument: It is an existing file with other content, such as an input file.
    """
    path = Path(spec.rejects or f"{_first_of(spec, files)}{REJECTS_SUFFIX}").absolute()
    if not path.exists():
        return path
    if any(Path(file).exists() and path.samefile(file) for file in files):
        raise InvalidArgument(
            f"The file for rejected records must not be the input file {path}", field="rejects"
        )
    if not _holds_rejected(path):
        raise InvalidArgument(
            f"The file for rejected records {path} exists with other content; use another file",
            field="rejects",
        )
    return path


def _holds_rejected(path: Path) -> bool:
    """Whether a file contains rejected records, or is empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        # Longer than any line with a truncated record, id and reason, even if all is escaped.
        line = file.readline(_LINE_BYTES_MAX)
    try:
        first = msgspec.json.decode(line) if line else dict.fromkeys(REJECTED.names)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() == set(REJECTED.names)


def keep_rejected(
    spec: FileSource, files: Sequence[str], rejected: Sequence[Any], progress: JobProgress
) -> str | None:
    """Write rejected records, if any, to a file and report it; return its path.

    Raises:
        LimitExceeded: There are more than `rejects_max`.
    """
    if not rejected:
        return None
    file = _write(check_place(spec, files), rejected)
    if len(rejected) > spec.rejects_max:
        raise LimitExceeded(
            f"More than {spec.rejects_max} records were rejected, and nothing was done; see {file} "
            "for the first ones, or increase rejects_max",
            field="rejects_max",
        )
    progress.say(f"{len(rejected)} records were rejected, with their reasons in {file}")
    return file


def _first_of(spec: FileSource, files: Sequence[str]) -> Path:
    """Return the first file or directory that is named or matches a pattern."""
    first = Path(spec.files[0])
    return first if first.exists() else Path(files[0])


def _write(path: Path, rejected: Sequence[Any]) -> str:
    """Write rejected records to a file, one JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rejected, key=lambda row: (row.source, row.line or 0))
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unfinished.open("wb") as file:
        for row in ordered:
            line = {name: row[name] for name in REJECTED.names}
            file.write(msgspec.json.encode(line) + b"\n")
    unfinished.replace(path)
    return str(path)

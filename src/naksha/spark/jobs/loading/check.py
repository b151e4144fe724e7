"""Records as features: what is one is given on, what is wrong with others is told, not lost."""

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
from naksha.spark.jobs.frame import Progress
from naksha.spark.jobs.loading.files import REJECTS_SUFFIX
from naksha.spark.jobs.loading.shapes import PLACES, shapes_of
from naksha.spark.jobs.loading.spec import Source
from naksha.spi.arrow import GIVEN
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
"""A record that is no feature: where it is from, and what is wrong with it."""
_LINE_BYTES_MAX: Final = 32 * limits.REJECT_LENGTH_MAX
_SMALL: Final = 256
"""Records of which those that are right are put together again when one of them is wrong."""


class Checked(NamedTuple):
    """The features of a batch (`GIVEN`), the same ready to be staged, how many of them had to be
    changed at the date line, and the records that are none (`REJECTED`). An id that comes again is
    in another part: it is no fault of the record, but somebody has to look at all of them."""

    given: list[pa.RecordBatch]
    features: list[PreparedFeatures]
    adjusted: int
    rejected: pa.RecordBatch


class Checker(msgspec.Struct, frozen=True):
    """What tasks need to know to check records: small and picklable."""

    info: CollectionInfo
    crs: str | None
    clockwise: frozenset[str] = frozenset()
    """Sources whose outer rings are clockwise."""
    is_cut: bool = True
    """Whether geometries are cut at the date line."""

    def check(self, batch: pa.RecordBatch) -> Checked:
        """Tell features from what is none."""
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
        return Checked(chosen, features, adjusted, _rejected(batch, problems))

    def _unique(self, given: pa.RecordBatch, rows: list[int]) -> list[list[int]]:
        """The rows in parts that have each id once; nearly always that is one."""
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
        """Those of the rows that the storage takes, also as `features`; what is wrong with others
        is noted."""
        if not rows:
            return rows
        try:
            features.append(checked(_chosen(given, rows), self.info))
            return rows
        except (InvalidArgument, LimitExceeded) as error:
            broken = error
        if len(rows) == 1:
            problems[rows[0]] = _reason(broken)
            return []
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        if len(rows) > _SMALL:
            return [n for half in halves for n in self._good(given, half, problems, features)]
        # Those that are right are staged together.
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
        for name in GIVEN.names
    ]
    arrays = [column.cast(field.type) for column, field in zip(columns, GIVEN, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=GIVEN)


def _reason(error: InvalidArgument | LimitExceeded) -> str:
    return error.message if error.field is None else f"{error.field}: {error.message}"


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
    """What is told of a text: all tasks together tell so many that one process must hold them."""
    length_max = limits.REJECT_LENGTH_MAX
    if text is None or len(text) <= length_max:
        return text
    return f"{text[:length_max]} … (cut here: it has {len(text)} characters)"


def _shown(row: dict[str, Any]) -> str:
    """A record as a feature, with what its geometry was to be made of, if there is none."""
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
    """As GeoJSON, if it can be."""
    try:
        text = shapely.to_geojson(shapely.from_wkb(wkb, on_invalid="ignore"))
        return None if text is None else _json(text)
    except (shapely.errors.ShapelyError, NotImplementedError):
        return None  # No WKB, or a curve.


def _json(text: str | None) -> Any:
    """What a text has in it, or itself where it is no JSON."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text


def check_rejects(spec: Source) -> None:
    """Refuse what nobody can mean of rejected records, before anything is read."""
    if spec.rejects_max < 0:
        raise InvalidArgument("It is a number of records, 0 or more", field="rejects_max")


def check_place(spec: Source, files: Sequence[str]) -> Path:
    """The file for rejected records.

    Raises:
        InvalidArgument: Something else is there, one of the files that are read above all.
    """
    path = Path(spec.rejects or f"{_first_of(spec, files)}{REJECTS_SUFFIX}").absolute()
    if not path.exists():
        return path
    if any(Path(file).exists() and path.samefile(file) for file in files):
        raise InvalidArgument(f"{path} is a file that is read", field="rejects")
    if not _holds_rejected(path):
        raise InvalidArgument(
            f"{path} is there already, and has no rejected records in it; it is not overwritten",
            field="rejects",
        )
    return path


def _holds_rejected(path: Path) -> bool:
    """Whether it is a file of rejected records, or has nothing in it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        # Of a record, its id and the reason so much is told at the most; signs may be escaped.
        line = file.readline(_LINE_BYTES_MAX)
    try:
        first = msgspec.json.decode(line) if line else dict.fromkeys(REJECTED.names)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() == set(REJECTED.names)


def keep_rejected(
    spec: Source, files: Sequence[str], rejected: Sequence[Any], progress: Progress
) -> str | None:
    """Write rejected records of the files to one of their own, if there are some, and tell of it.

    Raises:
        LimitExceeded: There are too many of them.
    """
    if not rejected:
        return None
    file = _write(check_place(spec, files), rejected)
    if len(rejected) > spec.rejects_max:
        raise LimitExceeded(
            f"More than {spec.rejects_max} records were rejected, the first ones are in {file}; "
            "nothing was done",
            field="rejects_max",
        )
    progress.say(f"{len(rejected)} records were rejected, with their reasons in {file}")
    return file


def _first_of(spec: Source, files: Sequence[str]) -> Path:
    """The first file or directory that is named, or that fits a pattern."""
    first = Path(spec.files[0])
    return first if first.exists() else Path(files[0])


def _write(path: Path, rejected: Sequence[Any]) -> str:
    """A line for each rejected record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rejected, key=lambda row: (row.source, row.line or 0))
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unfinished.open("wb") as file:
        for row in ordered:
            line = {name: row[name] for name in REJECTED.names}
            file.write(msgspec.json.encode(line) + b"\n")
    unfinished.replace(path)
    return str(path)

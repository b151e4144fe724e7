"""Reader of CSV and similar files as rows of strings.

This module splits files into records, so that the line of each record is known even if it is
invalid. Arrow then parses many records at a time.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import FilePiece
from naksha.spark.jobs.loading.layouts import Layout, columns_of
from naksha.spark.jobs.loading.tables import (
    Broken,
    Table,
    in_pieces,
    problem_rows,
    rows_of,
    with_own_fields,
)

_RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a record; a longer one is taken for an unclosed quote."""
_BLOCK: Final = 4 * 1024 * 1024
"""Size of a read from a file."""
_DELIMITERS: Final = (",", ";", "\t", "|")
_MARK: Final = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8."""
_RETURN: Final = b"\r"
_UTF_8: Final = "utf-8"
_NEWLINES: Final = b"\r\n"

TextRecords = list[tuple[int, bytes]]
"""Records with the numbers of their first lines."""


def of_csv(spark: SparkSession, files: list[str], encoding: str | None = None) -> Table:
    """Read files as rows of strings; their first lines have the names of the columns."""
    pieces = [FilePiece(path, encoding=encoding) for path in files]
    layouts = [
        Layout(
            piece.path, StructType([StructField(name, StringType()) for name in _names_in(piece)])
        )
        for piece in pieces
    ]
    schema = with_own_fields(columns_of(layouts))
    read = partial(read_rows, schema)
    return Table(in_pieces(spark, pieces, from_arrow_schema(schema), read), layouts)


def read_rows(schema: pa.Schema, piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file, with null in missing columns, and its invalid records."""
    path, encoding = piece.path, piece.encoding or _UTF_8
    delimiter = _delimiter(path)
    names: list[str] | None = None
    with _opened(path) as file:
        for found in _records(file, delimiter, path):
            if names is None:
                names = _names_of(piece, found, delimiter)
                del found[0]
            broken: Broken = []
            texts = _texts(found, broken, encoding)
            if texts:
                yield from _rows(schema, path, names, delimiter, texts)
            yield from problem_rows(schema, path, broken)


# ---- Records -------------------------------------------------------------------------------------


def _opened(path: str) -> BinaryIO:
    file = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
    if file.read(len(_MARK)) != _MARK:
        file.seek(0)
    return file


def _records(file: BinaryIO, delimiter: str, path: str) -> Iterator[TextRecords]:
    """Yield the records of a file in blocks, without empty lines."""
    match = _record_pattern(delimiter).match
    line, rest, size, is_end = 1, b"", _BLOCK, False
    while not is_end:
        more = file.read(size)
        is_end = len(more) < size
        text = rest + more
        if is_end and text and not text.endswith((b"\n", _RETURN)):
            text += b"\n"
        elif text.endswith(_RETURN):
            text += file.read(1)  # it may be the first half of \r\n
        found, end = [], 0
        while (record := match(text, end)) is not None:
            found.append(record[0])
            end = record.end()
        rest = text[end:]
        numbered, line = _numbered(found, line)
        if rest and (is_end or len(rest) > _RECORD_BYTES_MAX):
            raise InvalidArgument(
                f"{path}: the record in line {line} contains an unclosed quote",
                field="files",
            )
        size = max(_BLOCK, len(rest))
        if numbered:
            yield numbered


@lru_cache
def _record_pattern(delimiter: str) -> re.Pattern[bytes]:
    """Compile the pattern of a record.

    A quote is only special at the start of a field, which then extends to the closing quote. Inside
    such a field two quotes are an escaped quote, so the closing one is not followed by another.
    There is only one way to match a text, so that the pattern never backtracks. (Possessive
    quantifiers would be equivalent, but are broken in Python before 3.11.5.)
    """
    sign = re.escape(delimiter).encode()
    plain = rb"[^%b\r\n]*" % sign
    quoted = rb'"[^"]*(?:""[^"]*)*"(?!")'
    field = rb'(?:%b%b|(?!")%b)' % (quoted, plain, plain)
    return re.compile(rb"%b(?:%b%b)*(?:\r\n|\n|\r)" % (field, sign, field))


def _numbered(found: list[bytes], line: int) -> tuple[TextRecords, int]:
    """Return records with the numbers of their first lines, from `line` on, and the next line."""
    ends = list(accumulate(map(_lines_in, found), initial=line))
    numbered = [
        (start, record)
        for start, record in zip(ends, found, strict=False)
        if len(record) > len(_NEWLINES) or record.strip(_NEWLINES)
    ]
    return numbered, ends[-1]


def _lines_in(record: bytes) -> int:
    count = record.count(b"\n")
    if _RETURN in record:
        count += record.count(_RETURN) - record.count(_NEWLINES)
    return count


def _delimiter(path: str) -> str:
    """Detect the delimiter: the most frequent candidate in the first line that is not empty."""
    with _opened(path) as file:
        lines = file.read(_BLOCK).splitlines()
    first = next((line for line in lines if line), b"")
    return max(_DELIMITERS, key=lambda sign: first.count(sign.encode()))


def _names_in(piece: FilePiece) -> list[str]:
    path = piece.path
    delimiter = _delimiter(path)
    with _opened(path) as file:
        return _names_of(piece, next(_records(file, delimiter, path), []), delimiter)


def _names_of(piece: FilePiece, records: TextRecords, delimiter: str) -> list[str]:
    """Parse the names of the columns from the first record."""
    path = piece.path
    try:
        text = records[0][1].decode(piece.encoding or _UTF_8) if records else ""
        found = next(csv.reader([text.strip("\r\n")], delimiter=delimiter), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"The file {path} is not a valid CSV file: {error}", field="files"
        ) from error
    names = [name.strip() for name in found]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled or not names:
        problem = f"several columns {doubled[0]!r}" if doubled else "no column names"
        raise InvalidArgument(
            f"The file {path} has {problem} in its header; correct the header", field="files"
        )
    return names


# ---- Rows ----------------------------------------------------------------------------------------


def _texts(records: TextRecords, broken: Broken, encoding: str) -> TextRecords:
    """Convert records to UTF-8; others are `broken`, since Arrow could not report them by line."""
    if encoding == _UTF_8:
        with suppress(UnicodeDecodeError):
            b"".join(record for _, record in records).decode()
            return records
    texts: TextRecords = []
    for line, record in records:
        try:
            texts.append((line, record.decode(encoding).encode()))
        except UnicodeDecodeError as error:
            broken.append((line, f"cannot be decoded: {error}", _shown(record, encoding)))
    return texts


def _rows(
    schema: pa.Schema, path: str, names: list[str], delimiter: str, records: TextRecords
) -> Iterator[pa.RecordBatch]:
    """Parse records to rows; invalid records are found by bisection."""
    unfit: dict[int, str] = {}
    try:
        table = _parsed(b"".join(record for _, record in records), names, delimiter, unfit)
        if table.num_rows + len(unfit) != len(records):
            raise pa.ArrowInvalid("the record is not a single row")
    except pa.ArrowInvalid as error:
        if len(records) > 1:
            middle = len(records) // 2
            for half in (records[:middle], records[middle:]):
                yield from _rows(schema, path, names, delimiter, half)
            return
        table, unfit = None, {0: f"cannot be parsed: {error}"}
    if table is not None:
        lines = [line for n, (line, _) in enumerate(records) if n not in unfit]
        yield from rows_of(schema, table, path, lines)
    broken = [(records[n][0], problem, _shown(records[n][1])) for n, problem in unfit.items()]
    yield from problem_rows(schema, path, broken)


def _parsed(text: bytes, names: list[str], delimiter: str, unfit: dict[int, str]) -> pa.Table:
    """Parse records to a table; those with too few or too many columns are added to `unfit`."""

    def key(row: Any) -> str:
        # row.number requires use_threads=False.
        unfit[row.number - 1] = f"has {row.actual_columns} columns, not {row.expected_columns}"
        return "skip"

    return pyarrow.csv.read_csv(
        BytesIO(text),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, column_names=names, block_size=len(text) + 1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=key, newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )


def _shown(record: bytes, encoding: str = _UTF_8) -> str:
    return record.decode(encoding, errors="replace").strip("\r\n")

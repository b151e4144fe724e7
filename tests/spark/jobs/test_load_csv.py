"""Rows of CSV with their line numbers, valid or not, without Spark."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading import delimited
from naksha.spark.jobs.loading.files import FilePiece
from naksha.spark.jobs.loading.tables import LINE, PROBLEM, RECORD, with_own_fields

Row = dict[str, Any]


def read(path: Path, *names: str) -> list[Row]:
    schema = with_own_fields(StructType([StructField(name, StringType()) for name in names]))
    found = delimited.read_rows(schema, FilePiece(str(path)))
    rows: list[Row] = [row for batch in found for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row[LINE]))


def lines_by(rows: list[Row], name: str) -> dict[Any, Any]:
    return {row[name]: row[LINE] for row in rows if row[PROBLEM] is None}


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,"the\nname"\r\n\r\na,"one\ntwo\r\nthree"\r\nb,5" pipe\n\nc,1,2\n'
        b'd\n"e ""e""",\n"f",""'
    )
    rows = read(path, "id", "the\nname", "other")
    assert lines_by(rows, "id") == {"a": 4, "b": 7, 'e "e"': 11, "f": 12}
    assert lines_by(rows, "the\nname").keys() == {"one\ntwo\r\nthree", '5" pipe', None, ""}
    assert {row["other"] for row in rows} == {None}
    broken = [(row[LINE], row[PROBLEM], row[RECORD]) for row in rows if row[PROBLEM] is not None]
    assert broken == [(9, "has 3 columns, not 2", "c,1,2"), (10, "has 1 columns, not 2", "d")]


def test_invalid_utf_8_is_rejected_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,n\na,1\nb,\xff\xfe\nc\xff\nd,4\n")
    rows = read(path, "id", "n")
    assert lines_by(rows, "id") == {"a": 2, "d": 5}
    assert [(row[LINE], row[RECORD]) for row in rows if row[PROBLEM] is not None] == [
        (3, "b,\ufffd\ufffd"),
        (4, "c\ufffd"),
    ]


def test_texts_are_read_in_the_encoding_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('id;größe\na;Köln\nb;"ä;\n"\n'.encode("cp1252") + b"c;\x81\n")
    piece = FilePiece(str(path), encoding="cp1252")
    names = delimited._names_in(piece)
    assert names == ["id", "größe"]
    schema = with_own_fields(StructType([StructField(name, StringType()) for name in names]))
    rows = [row for batch in delimited.read_rows(schema, piece) for row in batch.to_pylist()]
    assert [(row[LINE], row["größe"]) for row in rows] == [(2, "Köln"), (3, "ä;\n"), (5, None)]
    assert rows[2][PROBLEM].startswith("cannot be decoded: 'charmap' codec can't decode byte 0x81")


def test_blanks_around_names_are_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id , lon,"lat " , the name\na,1,2,x\n')
    assert delimited._names_in(FilePiece(str(path))) == ["id", "lon", "lat", "the name"]
    assert read(path, "id", "the name")[0]["the name"] == "x"
    path.write_text("id, id\n")
    with pytest.raises(InvalidArgument, match="several columns 'id'"):
        delimited._names_in(FilePiece(str(path)))


def test_a_row_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    long = "x" * (2 * delimited._BLOCK)
    path.write_text(f'id,n\na,"{long}"\nb,2\n')
    rows = read(path, "id", "n")
    assert [(row["id"], len(row["n"]), row[LINE]) for row in rows] == [
        ("a", len(long), 2),
        ("b", 1, 3),
    ]


def test_an_unclosed_quote_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,n\na,1\nb,"2\nc,3\n')
    with pytest.raises(
        InvalidArgument, match=r"a.csv: the record in line 3 contains an unclosed quote"
    ):
        read(path, "id", "n")


FIELDS = st.text(st.sampled_from('ab",\n\r é'), max_size=5)


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=8), st.integers(1, 40))
def test_rows_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[tuple[str, str]], block: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    lines = []
    for row in (("x", "y"), *given_rows):
        lines.append(len(io.StringIO(text.getvalue(), newline=None).read().split("\n")))
        writer.writerow(row)
    path.write_bytes(text.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK", block)
        rows = read(path, "x", "y")
    assert [(row["x"], row["y"]) for row in rows] == given_rows
    assert [row[LINE] for row in rows] == lines[1:]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_the_delimiter_is_that_of_the_first_line_with_something_in_it(
    tmp_path: Path, newline: bytes
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(newline.join([b"", b"id;n", b"a,b,c;1", b"d;2", b""]))
    rows = read(path, "id", "n")
    assert lines_by(rows, "id") == {"a,b,c": 3, "d": 4}

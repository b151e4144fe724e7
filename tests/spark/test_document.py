"""The chapter on Spark: its examples, run in order in one session."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import ROOT, examples, plain

GUIDE = ROOT / "docs" / "spark.md"


def test_every_python_block_works_as_documented(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = examples(GUIDE, "python")
    assert found
    names: dict[str, object] = {"__name__": "__main__"}
    for example in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.code, f"{GUIDE.name}:{example.line}", "exec"), names)
        assert plain(printed.getvalue()) == plain(example.promised or "")

"""The chapters on jobs: their examples, run in order in one session."""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.main import get_command

from naksha.cli.main import app
from naksha.spark.jobs.registry import job_names
from tests.cli.command import naksha
from tests.docs.blocks import ROOT, examples, plain

PIPELINE = ROOT / "docs" / "pipeline.md"


def run_python(document: Path) -> None:
    """Run the blocks, each with what the ones before it have left."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for example in examples(document, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.code, f"{document.name}:{example.line}", "exec"), names)
        assert plain(printed.getvalue()) == plain(example.promised or "")


def commands() -> list[list[str]]:
    """The commands of the pipeline, in order."""
    texts = [example.code for example in examples(PIPELINE, "bash")]
    return [shlex.split(line)[1:] for text in texts for line in text.splitlines()]


@pytest.mark.parametrize("name", ["loading", "pipeline"])
def test_every_python_block_works_as_documented(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(ROOT / "docs" / f"{name}.md")


def test_every_command_of_the_pipeline_is_understood() -> None:
    group: Any = get_command(app)
    for words in commands():
        context = group.make_context("naksha", list(words))
        _, jobs, rest = group.resolve_command(context, list(words))
        context = jobs.make_context("job", list(rest), parent=context)
        _, job, rest = jobs.resolve_command(context, list(rest))
        job.make_context(job.name, list(rest), parent=context)
    assert {words[1] for words in commands()} == set(job_names())


@pytest.mark.long
def test_every_command_of_the_pipeline_ends_well(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read what the blocks of Python have written."""
    monkeypatch.chdir(tmp_path)
    run_python(PIPELINE)
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in ("history.jsonl", "stops.csv"):
        shutil.copy(name, beside)
    for words in commands():
        ended = naksha(*words, cwd=beside, seconds_max=300)
        assert ended.returncode == 0, (words, ended.stderr)

"""The Python blocks of the documents, each run as a file against a new database."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import DOCUMENTS, ROOT, Example, examples, plain

ALL = [
    pytest.param(example, id=f"{document.relative_to(ROOT)}:{example.line}")
    for document in DOCUMENTS
    for example in examples(document, "python")
    if example.kind == "python"  # a file of a larger example has its name there, and its own test
]


@pytest.mark.parametrize("example", ALL)
def test_every_python_block_has_the_documented_output(
    example: Example, database: str, tmp_path: Path
) -> None:
    program = tmp_path / "example.py"
    program.write_text(example.code)
    result = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        env=os.environ | {"NAKSHA_STORAGE": database},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert example.promised is not None, "an example without output shows nothing"
    assert plain(result.stdout) == plain(example.promised)


def test_the_readme_has_one() -> None:
    assert len(examples(ROOT / "README.md", "python")) == 1

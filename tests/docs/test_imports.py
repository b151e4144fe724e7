"""The documents import public names only, and every public name can be imported."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, documents, examples

PUBLIC = {"naksha", "naksha.spark", "naksha.hub.remote"}
SHIPPED_TESTS = "naksha.testing"
"""A backend imports whole suites of it."""
SOURCE = ROOT / "src" / "naksha"


def imported(code: str) -> set[str]:
    """Return the modules of Naksha that a program imports, or imports names from."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module)
    return {module for module in modules if module.split(".")[0] == "naksha"}


def is_public(module: str) -> bool:
    return module in PUBLIC or f"{module}.".startswith(f"{SHIPPED_TESTS}.")


def is_record(document: Path) -> bool:
    """Return whether a document records the past: decisions and the change log."""
    return document.parent.name == "decisions" or document.name == "CHANGELOG.md"


@pytest.mark.parametrize(
    "document",
    [pytest.param(one, id=one.name) for one in documents() if not is_record(one)],
)
def test_documents_import_public_names_only(document: Path) -> None:
    internal = {
        f"line {example.line}: {module}"
        for example in examples(document, "python")
        for module in imported(example.code)
        if not is_public(module)
    }
    assert internal == set()


def test_docstrings_import_public_names_only() -> None:
    internal = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            for line in (ast.get_docstring(node) or "").splitlines():
                code = line.strip().removeprefix(">>> ")
                if code.startswith(("from naksha", "import naksha")):
                    internal |= {one for one in imported(code) if not is_public(one)}
    assert internal == set()


@pytest.mark.parametrize("name", ["naksha", "naksha.spark"])
def test_every_public_name_exists_and_type_checkers_know_it(name: str) -> None:
    module = import_module(name)
    source = Path(str(module.__file__)).read_text()
    (block,) = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    checked = {
        (statement.module, alias.name, alias.asname)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert {(place, exported) for place, _, exported in checked} == {
        (place, exported) for place, names in vars(module)["_EXPORTS"].items() for exported in names
    }
    for place, defined, exported in checked:
        found = getattr(module, str(exported))
        assert found is getattr(__import__(str(place), fromlist=[defined]), defined)


def test_importing_naksha_loads_no_part_of_it() -> None:
    program = "import sys, naksha; print(sorted(n for n in sys.modules if n.startswith('naksha.')))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"

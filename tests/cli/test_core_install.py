"""An installation with the core requirements only: SQLite works, the rest names its extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from naksha.spi.extras import EXTRAS
from tests.docs.blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = re.compile(r"[A-Za-z0-9._-]+")
MODULES_OF = {"pyjwt": ("jwt", "cryptography")}
"""Import names that differ from those of the distribution."""
EVERY_VERB = """
import json, sys
import typer
from typer.testing import CliRunner
from naksha.cli.main import app

def verbs(command, path=()):
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            found = command.get_command(None, name)
            if found is not None:
                yield from verbs(found, (*path, name))
    else:
        yield path, [
            word
            for one in command.params
            if one.required
            for word in ([] if one.param_type_name == "argument" else [one.opts[0]]) + ["x"]
        ]

root = typer.main.get_command(app)
del root.commands["job"]
ends = {}
for path, arguments in [*verbs(root), (("job", "load"), []), (("job",), ["--help"])]:
    ended = CliRunner().invoke(app, [*path, *arguments])
    is_crash = ended.exception is not None and not isinstance(ended.exception, SystemExit)
    ends[" ".join(path)] = repr(ended.exception) if is_crash else ""
print(json.dumps(ends))
"""


def required(requirements: Sequence[str]) -> Iterator[str]:
    for one in requirements:
        found = NAME.match(one)
        assert found is not None
        yield found[0]


def closure(requirements: Sequence[str]) -> dict[str, Distribution]:
    """Distributions that these need, as they are installed here."""
    found: dict[str, Distribution] = {}
    left = list(required(requirements))
    while left:
        name = left.pop().lower().replace("_", "-")
        if name not in found:
            found[name] = distribution(name)
            more = [one for one in found[name].requires or () if "extra ==" not in one]
            left += [one for one in required(more) if installed(one)]
    return found


def installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the wheel and links to the packages that it requires; its Python."""
    folder = tmp_path_factory.mktemp("core")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for one in closure(PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    install = [*("-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index")]
    subprocess.run(
        [sys.executable, *install, "--no-compile", str(wheel)], check=True, capture_output=True
    )
    return python


def run(core: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(core.with_name("naksha")), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_core_runs_on_sqlite(core: Path, tmp_path: Path) -> None:
    done = run(core, "demo", "--json", "--storage", "file:town.naksha", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["changes"]) > 5
    shown = run(core, "storage", "show", "file:town.naksha", cwd=tmp_path)
    assert shown.stdout.startswith("id: demo\n"), shown.stderr
    for arguments in (
        ["backup", "copy", "--storage", "file:town.naksha"],
        ["restore", "copy", "--storage", "file:restored.naksha"],
        ["maintain", "--storage", "file:restored.naksha"],
        ["doctor", "--storage", "file:restored.naksha"],
    ):
        done = run(core, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    api = "import naksha; naksha.connect('file:x.naksha', app_id='a').close()"
    subprocess.run([core, "-c", api], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo", "--storage", "postgresql://127.0.0.1:1/maps"], "postgres"),
        (["serve"], "server"),
        (["token", "app", "--key", "secret:none"], "server"),
        (["realm", "list"], "server"),
        (["space", "list"], "server"),
        (["backup", "copy"], "server"),
        (["job", "--help"], "spark"),
        (["job", "load", "--storage", "file:town.naksha"], "spark"),
    ],
)
def test_a_missing_extra_is_a_sentence(
    core: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    done = run(core, *arguments, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"is not installed; run: pip install 'naksha[{extra}]'")


def test_the_server_module_names_its_extra(core: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [core, "-m", "naksha.server"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith("naksha: ")
    assert done.stderr.endswith("run: pip install 'naksha[server]'\n")


def test_no_verb_ends_in_a_traceback(core: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [core, "-c", EVERY_VERB], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert {"serve", "sample", "token", "realm list", "job load"} <= ends.keys()
    assert {verb: crash for verb, crash in ends.items() if crash} == {}


def test_every_optional_package_is_known_to_the_message() -> None:
    """A module is named like its distribution, or in the exceptions."""
    optional = PROJECT["optional-dependencies"]
    declared = {
        extra: {
            module
            for name in required(requirements)
            for module in MODULES_OF.get(name, (name.replace("-", "_"),))
        }
        for extra, requirements in optional.items()
        if extra != "all"
    }
    assert declared == {extra: set(modules) for extra, modules in EXTRAS.items()}
    parts = sorted(extra for extra in optional if extra not in ("all", "testing"))
    assert optional["all"] == [f"naksha[{','.join(parts)}]"]

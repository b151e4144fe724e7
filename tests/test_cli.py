"""The `naksha` command as a user types it."""

import pytest
from typer.testing import CliRunner

import naksha
from naksha.cli.main import app


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_printed_alone(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.output.strip() == naksha.__version__


def test_without_a_command_it_prints_help() -> None:
    assert "version" in CliRunner().invoke(app, []).output

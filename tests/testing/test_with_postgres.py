"""A command with a throw-away server beside it, which ends with the command."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from naksha.testing.servers import _watchdog
from naksha.testing.with_postgres import VARIABLE, main

SHOW = f"import os, time; print(os.environ['{VARIABLE}'], flush=True); "
RUNNER = [sys.executable, "-m", "naksha.testing.with_postgres"]


def directory_of(location: str) -> Path:
    return Path(parse_qs(urlsplit(location.strip()).query)["host"][0])


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUNNER, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@pytest.mark.postgres
def test_its_exit_code_is_ours_and_the_server_is_gone() -> None:
    with start(SHOW + "raise SystemExit(7)") as running:
        location, _ = running.communicate(timeout=60)
    assert running.returncode == 7
    assert not directory_of(location).exists()


@pytest.mark.postgres
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_command_then_the_server(number: signal.Signals) -> None:
    with start(SHOW + "time.sleep(60)") as running:
        assert running.stdout is not None
        directory = directory_of(running.stdout.readline())
        assert directory.exists()
        if number == signal.SIGINT:
            os.killpg(running.pid, number)  # as a terminal does it
        else:
            running.send_signal(number)
        code = running.wait(60)
    assert code == 128 + number
    assert _watchdog.wait_until(lambda: not directory.exists(), 20)


def test_it_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for nothing in ([], ["--help"]):
        assert main(nothing) == 2
        assert "usage" in capsys.readouterr().err


@pytest.mark.postgres
def test_an_absent_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "no-such-command"]) == 127
    assert "no-such-command" in capsys.readouterr().err

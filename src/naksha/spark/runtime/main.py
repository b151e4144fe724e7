"""Run a job as a program: read a specification, write JSON lines (`naksha.spi.jobs.messages`).

    python -m naksha.spark run export.json --master spark://host:7077
    python -m naksha.spark describe

Output of Spark and of libraries goes to stderr. SIGTERM cancels the job.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from naksha.model.errors import InvalidArgument, NakshaError
from naksha.model.status_codes import status_codes_of
from naksha.spark.jobs.loading import gdal
from naksha.spark.jobs.registry import describe_jobs, read_spec
from naksha.spark.runtime.job_thread import JobRun
from naksha.spark.runtime.parent_pipe import ParentPipe
from naksha.spark.runtime.progress import LineProgress
from naksha.spark.runtime.sessions import LOCAL
from naksha.spi.jobs.messages import MODULE, FailedMessage

_STDIN: Final = "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m naksha.spark` and return the exit code."""
    options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    out = _own_stdout()
    try:
        if options.command == "describe":
            out.write(msgspec.json.encode(describe_jobs()) + b"\n")
            return 0
        settings = dict(_setting(text) for text in options.settings)
        request = read_spec(_spec_from_parent() if options.attached else _read(options.spec))
    except NakshaError as error:
        out.write(msgspec.json.encode(FailedMessage.of(error)) + b"\n")
        return status_codes_of(error).exit_code
    finally:
        out.flush()
    gdal.hold()
    run = JobRun(request, LineProgress(out), options.master, settings)
    try:
        return run.run()
    except BrokenPipeError:
        return 1  # the reader of the output is gone
    finally:
        run.close()


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", help="Print the available jobs as JSON.")
    run = commands.add_parser("run", help="Run a job.")
    run.add_argument(
        "spec", nargs="?", default=_STDIN, help="File with the specification; - is stdin."
    )
    run.add_argument("--master", default=LOCAL, help=f"Spark master URL. [{LOCAL}]")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="Spark setting; repeatable.",
    )
    run.add_argument(
        "--attached",
        action="store_true",
        help="Read the specification from the first line of stdin; exit when stdin closes.",
    )
    return made


def _own_stdout() -> BinaryIO:
    """Reserve stdout for the JSON lines; redirect all other output, also of children, to stderr."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.set_inheritable(ours, False)
    os.dup2(2, 1)
    return os.fdopen(ours, "wb")


def _spec_from_parent() -> bytes:
    parent = ParentPipe()
    text = parent.specification()
    parent.follow()
    return text


def _read(name: str) -> bytes:
    if name == _STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"The file {name!r} with the specification of the job cannot be read: {error.strerror}",
            field="spec",
        ) from error


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidArgument(f"A Spark setting must be name=value, not {text!r:.80}", field="set")
    return name, value

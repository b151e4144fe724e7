"""Run a script of `cli/sql` in the database's own shell, as a user would."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from naksha.model.errors import NotSupported, Unavailable
from naksha.spi.locations import FILE, path_of


class ShellScript(NamedTuple):
    """A script for the shell of a storage, with its variables filled in."""

    shell: str
    text: str


def script(location: str, name: str, variables: Mapping[str, str]) -> ShellScript:
    """Load a script by name, for the shell of the storage at a location."""
    shell = "sqlite3" if location.startswith(f"{FILE}:") else "psql"
    folder = resources.files("naksha.cli") / "sql"
    text = (folder / f"{name}_{shell}.sql").read_text("utf-8")
    for variable, value in variables.items():
        text = text.replace(f"{{{{{variable}}}}}", value)
    return ShellScript(shell, text)


async def run(location: str, shell_script: ShellScript) -> None:
    """Run a script.

    Raises:
        NotSupported: The storage has no shell, or the shell is not installed.
        Unavailable: The shell failed; the message includes its output.
    """
    program = shutil.which(shell_script.shell)
    known = (f"{FILE}:", "postgres://", "postgresql://")
    if not location.startswith(known):
        raise NotSupported("Plain SQL requires a storage in a file or in PostgreSQL")
    if program is None:
        raise NotSupported(
            f"Plain SQL requires the program {shell_script.shell}, which is not on the PATH; "
            "install it"
        )
    environment, arguments = dict(os.environ), ["-batch", "-bail", str(path_of(location))]
    if shell_script.shell == "psql":
        address, password = _without_password(location)
        arguments = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", address, "-f", "-"]
        if password is not None:
            # Command-line arguments are visible to all users of the machine.
            environment["PGPASSWORD"] = password
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    _, errors = await process.communicate(shell_script.text.encode())
    if process.returncode != 0:
        raise Unavailable(f"{shell_script.shell} failed: {errors.decode(errors='replace').strip()}")


def _without_password(location: str) -> tuple[str, str | None]:
    parts = urlsplit(location)
    if parts.password is None:
        return location, None
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}"
    return urlunsplit(parts._replace(netloc=netloc)), unquote(parts.password)

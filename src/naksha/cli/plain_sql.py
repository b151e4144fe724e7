"""A script in `cli/sql`, run by the program `psql` as a person would run it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from importlib import resources
from urllib.parse import unquote, urlsplit, urlunsplit

from naksha.model.errors import NotSupported, Unavailable


def script(name: str) -> str:
    """The text of a script."""
    return (resources.files("naksha.cli") / "sql" / f"{name}.sql").read_text("utf-8")


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """The script as a person would have typed it, to be shown."""
    for name, value in variables.items():
        text = text.replace(f':"{name}"', value)
    return text


async def run(location: str, text: str, variables: Mapping[str, str]) -> None:
    """Run a script through psql.

    Raises:
        NotSupported: The location is not PostgreSQL's, or there is no psql.
        Unavailable: psql failed; with what it said.
    """
    program = shutil.which("psql")
    if program is None or not location.startswith(("postgres://", "postgresql://")):
        raise NotSupported("Plain SQL needs PostgreSQL, and the program psql on the PATH")
    address, password = _without_password(location)
    arguments = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", address, "-f", "-"]
    for name, value in variables.items():
        arguments += ["-v", f"{name}={value}"]
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # Everybody on the machine can read arguments.
        env=os.environ | ({} if password is None else {"PGPASSWORD": password}),
    )
    _, said = await process.communicate(text.encode())
    if process.returncode != 0:
        raise Unavailable(f"psql failed: {said.decode(errors='replace').strip()}")


def _without_password(location: str) -> tuple[str, str | None]:
    parts = urlsplit(location)
    if parts.password is None:
        return location, None
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}"
    return urlunsplit(parts._replace(netloc=netloc)), unquote(parts.password)

"""Finds the PostgreSQL programs of this machine and the user that may run a server."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from naksha.testing.servers._private_server import ServerNotFoundError

VERSION_MIN = 15


class PostgresNotFoundError(ServerNotFoundError):
    """No PostgreSQL with PostGIS is installed here."""


@dataclass(frozen=True)
class PostgresInstall:
    """One installed PostgreSQL: the directory of its programs."""

    bindir: Path

    @cached_property
    def version(self) -> int:
        """The major version."""
        words = _output(self.bindir / "postgres", "--version").split()
        return int(words[2].split(".")[0]) if len(words) > 2 else 0

    @cached_property
    def extensions(self) -> frozenset[str]:
        """The names of the extensions that a database of this server can create."""
        shared = _output(self.bindir / "pg_config", "--sharedir").strip()
        # Debian has pg_config in a package of its own; its layout is known without it.
        directory = Path(shared or f"/usr/share/postgresql/{self.version}") / "extension"
        return frozenset(path.stem for path in directory.glob("*.control"))

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The names of the libraries that this server can load."""
        directory = _output(self.bindir / "pg_config", "--pkglibdir").strip()
        found = Path(directory or f"/usr/lib/postgresql/{self.version}/lib").glob("*.so")
        return frozenset(path.stem for path in found)

    def program(self, name: str) -> str:
        """The path of one of the programs, as text for a command line."""
        return str(self.bindir / name)


def find_install(extension: str = "postgis") -> PostgresInstall:
    """The newest installed PostgreSQL that has `extension`.

    Raises:
        PostgresNotFoundError: With what to install.
    """
    for bindir in _candidates():
        install = PostgresInstall(bindir)
        if install.version >= VERSION_MIN and extension in install.extensions:
            return install
    raise PostgresNotFoundError(
        f"PostgreSQL {VERSION_MIN} or later with the extension {extension} is not installed; "
        "on Debian: apt-get install postgresql postgresql-postgis"
    )


def _candidates() -> list[Path]:
    """Directories with a `postgres` program: Debian's, newest first, then pg_config's."""
    found = Path("/usr/lib/postgresql").glob("*/bin")
    versioned = [path for path in found if path.parent.name.isdigit()]
    versioned.sort(key=lambda path: int(path.parent.name), reverse=True)
    if program := shutil.which("pg_config"):
        versioned.append(Path(_output(Path(program), "--bindir").strip()))
    return [path for path in versioned if os.access(path / "postgres", os.X_OK)]


def _output(program: Path, argument: str) -> str:
    try:
        result = subprocess.run([program, argument], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout if result.returncode == 0 else ""

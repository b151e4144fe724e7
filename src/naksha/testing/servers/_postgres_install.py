"""Discovery of the PostgreSQL programs installed on this machine."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from naksha.testing.servers._private_server import ServerNotFoundError

VERSION_MIN = 15


class PostgresNotFoundError(ServerNotFoundError):
    """No PostgreSQL with PostGIS is installed on this machine."""


@dataclass(frozen=True)
class PostgresInstall:
    """One installed PostgreSQL, identified by the directory of its programs."""

    bindir: Path

    @cached_property
    def version(self) -> int:
        """The major version, or 0 if it cannot be determined."""
        words = _output(self.bindir / "postgres", "--version").split()
        return int(words[2].split(".")[0]) if len(words) > 2 else 0

    @cached_property
    def extensions(self) -> frozenset[str]:
        """Names of the extensions that a database of this server can create."""
        shared = _output(self.bindir / "pg_config", "--sharedir").strip()
        # Debian ships pg_config in a separate package; without it, fall back to Debian's layout.
        directory = Path(shared or f"/usr/share/postgresql/{self.version}") / "extension"
        return frozenset(path.stem for path in directory.glob("*.control"))

    @cached_property
    def libraries(self) -> frozenset[str]:
        """Names of the libraries that this server can load."""
        directory = _output(self.bindir / "pg_config", "--pkglibdir").strip()
        found = Path(directory or f"/usr/lib/postgresql/{self.version}/lib").glob("*.so")
        return frozenset(path.stem for path in found)

    def program(self, name: str) -> str:
        """Return the path of a program, as text for a command line."""
        return str(self.bindir / name)


def find_install(extension: str = "postgis") -> PostgresInstall:
    """Return the newest installed PostgreSQL that has `extension`.

    Raises:
        PostgresNotFoundError: With the packages to install.
    """
    for bindir in _candidates():
        install = PostgresInstall(bindir)
        if install.version >= VERSION_MIN and extension in install.extensions:
            return install
    raise PostgresNotFoundError(
        f"PostgreSQL {VERSION_MIN} or later with the extension {extension} is not installed; "
        "on Debian, run: apt-get install postgresql postgresql-postgis"
    )


def _candidates() -> list[Path]:
    """Return directories with a `postgres` program: Debian's, newest first, then pg_config's."""
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

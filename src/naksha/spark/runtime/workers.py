"""Spark's Python workers, which look for garbage after every task."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

DAEMON: Final = "pyspark.daemon"
"""The program that workers are; they run one task after the other."""

_known = 0


def spare_modules() -> None:
    """In a worker, what modules have made is looked at once. Spark collects all garbage after every
    task: with our modules and those of Arrow that would take a tenth of a second, which is longer
    than many tasks."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == DAEMON:
        gc.callbacks.append(_collected)


def _collected(phase: str, info: dict[str, Any]) -> None:
    """Right after all garbage was collected, what is left is no garbage: where modules were loaded
    since, most of it is theirs and stays."""
    global _known  # noqa: PLW0603 - so is what garbage collection knows
    if phase == "stop" and info["generation"] == 2 and len(sys.modules) != _known:
        _known = len(sys.modules)
        gc.freeze()

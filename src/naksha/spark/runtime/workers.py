"""Tuning of Spark's Python workers, which run the garbage collector after every task."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
"""Main module of the workers, which run one task after the other."""

_known = 0


def spare_modules() -> None:
    """Exclude the objects of loaded modules from garbage collection in a worker.

    Spark runs a full collection after every task. With the modules of Naksha and Arrow that would
    take a tenth of a second, longer than many tasks.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        gc.callbacks.append(_collected)


def _collected(phase: str, info: dict[str, Any]) -> None:
    """Freeze the objects that survive a full collection after more modules were loaded.

    Most of them belong to the modules and live as long as the process.
    """
    global _known  # noqa: PLW0603 - the state of the garbage collector is global, too
    if phase == "stop" and info["generation"] == 2 and len(sys.modules) != _known:
        _known = len(sys.modules)
        gc.freeze()

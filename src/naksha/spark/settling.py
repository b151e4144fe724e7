"""Spark's Python processes look for garbage after each task, through everything they ever loaded.
With our modules and drivers that is several hundred thousand objects, none of which is garbage:
it took more than half of the time that a task needs to read its split. So they are set aside."""

from __future__ import annotations

import gc
import sys
from typing import Final

_SPARKS: Final = "pyspark.daemon"
"""What such a process runs."""
_modules: int = 0
"""How many there were when something was set aside last."""


def settle() -> None:
    """After new modules were loaded: look for garbage once more, and then no longer among what is
    there now. Only in a process of Spark's; any other has its own ways."""
    global _modules  # noqa: PLW0603 - so it is with what belongs to a process
    if len(sys.modules) > _modules and is_sparks():
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def is_sparks() -> bool:
    """Whether this process was started by Spark to run tasks."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _SPARKS

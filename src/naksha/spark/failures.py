"""What went wrong, found again behind what Spark makes of it: an error that is raised in a process
of an executor, or while Spark plans, comes back as a text with a traceback in it."""

from __future__ import annotations

import re
from typing import Final

from naksha.model import errors
from naksha.model.errors import NakshaError
from naksha.spi.jobs import Failed

_RAISED: Final = re.compile(
    r"^\s*naksha\.model\.errors\.(?P<name>\w+): (?P<said>.+)$", re.MULTILINE
)


def failure_of(error: BaseException) -> Failed | None:
    """What Naksha said, or None when it is an error that nobody raised on purpose."""
    if isinstance(error, NakshaError):
        return Failed.of(error)
    raised = _RAISED.findall(str(error))
    if not raised:
        return None
    name, said = raised[-1]
    kind = getattr(errors, name, NakshaError)
    return Failed(kind.code, said.strip())

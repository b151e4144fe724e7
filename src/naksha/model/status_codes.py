"""Mapping of error codes to HTTP status and process exit code.

Both columns are promises to programs, as the codes are: a row is added with a new code and never
changed. Exit codes follow the next step of a script: 2 correct the call (a usage error has the same
number), 69 and 75 (of sysexits.h) retry later, 74 check before retrying, 70 report it, 77 use
another token. An unexpected crash exits with 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from naksha.model.errors import NakshaError


class Outward(NamedTuple):
    """HTTP status and exit code of an error."""

    http_status: int
    exit_code: int


OUTWARD: Final[Mapping[str, Outward]] = MappingProxyType(
    {
        "naksha": Outward(500, 1),
        "invalid_argument": Outward(400, 2),
        "not_supported": Outward(400, 3),
        "not_found": Outward(404, 4),
        "collection_not_found": Outward(404, 4),
        "feature_not_found": Outward(404, 4),
        "version_not_found": Outward(404, 4),
        "pointer_not_found": Outward(404, 4),
        "realm_not_found": Outward(404, 4),
        "not_yet_published": Outward(404, 5),
        "expired": Outward(410, 6),
        "conflict": Outward(409, 7),
        "collection_exists": Outward(409, 7),
        "feature_exists": Outward(409, 7),
        "pointer_exists": Outward(409, 7),
        "in_use": Outward(409, 7),
        "fenced": Outward(409, 7),
        "merge_conflict": Outward(409, 7),
        "limit_exceeded": Outward(413, 8),
        "unavailable": Outward(503, 69),
        "storage_corrupt": Outward(500, 70),
        "retryable": Outward(503, 75),
        "realm_changed": Outward(503, 75),
        "busy": Outward(503, 75),
        "timed_out": Outward(504, 75),
        "realm_inactive": Outward(403, 9),
        "outcome_unknown": Outward(504, 74),
        "read_only": Outward(405, 9),
        "inactive": Outward(428, 9),
        "not_implemented": Outward(501, 3),
        "handler_failed": Outward(500, 70),
        "remote_failed": Outward(502, 70),
        "precondition_failed": Outward(412, 7),
        "unauthorized": Outward(401, 77),
        "forbidden": Outward(403, 77),
        "cancelled": Outward(409, 10),
    }
)

EXIT_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells."""


def outward(error: NakshaError | type[NakshaError]) -> Outward:
    """Return the row of an error; a code without a row uses that of its nearest parent class."""
    kind = error if isinstance(error, type) else type(error)
    for parent in kind.__mro__:
        row = OUTWARD.get(getattr(parent, "code", ""))
        if row is not None:
            return row
    raise AssertionError(f"no class of {kind.__name__} has a row in OUTWARD")

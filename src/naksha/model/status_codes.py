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


class StatusCodes(NamedTuple):
    """HTTP status and exit code of an error."""

    http_status: int
    exit_code: int


OUTWARD: Final[Mapping[str, StatusCodes]] = MappingProxyType(
    {
        "naksha": StatusCodes(500, 1),
        "invalid_argument": StatusCodes(400, 2),
        "not_supported": StatusCodes(400, 3),
        "not_found": StatusCodes(404, 4),
        "collection_not_found": StatusCodes(404, 4),
        "feature_not_found": StatusCodes(404, 4),
        "version_not_found": StatusCodes(404, 4),
        "pointer_not_found": StatusCodes(404, 4),
        "realm_not_found": StatusCodes(404, 4),
        "not_yet_published": StatusCodes(404, 5),
        "expired": StatusCodes(410, 6),
        "conflict": StatusCodes(409, 7),
        "collection_exists": StatusCodes(409, 7),
        "feature_exists": StatusCodes(409, 7),
        "pointer_exists": StatusCodes(409, 7),
        "in_use": StatusCodes(409, 7),
        "fenced": StatusCodes(409, 7),
        "merge_conflict": StatusCodes(409, 7),
        "limit_exceeded": StatusCodes(413, 8),
        "unavailable": StatusCodes(503, 69),
        "storage_corrupt": StatusCodes(500, 70),
        "retryable": StatusCodes(503, 75),
        "realm_changed": StatusCodes(503, 75),
        "busy": StatusCodes(503, 75),
        "timed_out": StatusCodes(504, 75),
        "realm_inactive": StatusCodes(403, 9),
        "outcome_unknown": StatusCodes(504, 74),
        "read_only": StatusCodes(405, 9),
        "inactive": StatusCodes(428, 9),
        "not_implemented": StatusCodes(501, 3),
        "handler_failed": StatusCodes(500, 70),
        "remote_failed": StatusCodes(502, 70),
        "precondition_failed": StatusCodes(412, 7),
        "unauthorized": StatusCodes(401, 77),
        "forbidden": StatusCodes(403, 77),
        "cancelled": StatusCodes(409, 10),
    }
)

EXIT_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells."""


def status_codes_of(error: NakshaError | type[NakshaError]) -> StatusCodes:
    """Return the row of an error; a code without a row uses that of its nearest parent class."""
    kind = error if isinstance(error, type) else type(error)
    for parent in kind.__mro__:
        row = OUTWARD.get(getattr(parent, "code", ""))
        if row is not None:
            return row
    raise AssertionError(f"no class of {kind.__name__} has a row in OUTWARD")

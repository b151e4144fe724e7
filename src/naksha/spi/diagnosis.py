"""Findings of a diagnosis: what is wrong with an installation, and the command that repairs it.

A backend that can be diagnosed has `diagnose(location, …)`, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from naksha.model.errors import NakshaError
from naksha.spi.locations import BackendGroup, redacted


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will fail under some load or at some time."""
    ERROR = "error"


class DiagnosisResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of one check."""

    check: str
    severity: Severity
    message: str
    fix: str = ""
    """Command or setting that repairs it."""
    code: str = ""
    """Code of an error, which determines the exit code."""


class DiagnosisLoad(msgspec.Struct, frozen=True):
    """Needs of the processes of the installation, and their time."""

    connections: int = 0
    now_us: int = 0
    """Time of this machine."""
    skew_seconds_max: float = 0
    is_expected: bool = False
    """Whether a catalog lists the data, so that it must exist."""


def ok(check: str, message: str) -> DiagnosisResult:
    """Build the finding that a check found nothing wrong."""
    return DiagnosisResult(check, Severity.OK, message)


def warning(check: str, message: str, fix: str) -> DiagnosisResult:
    """Build a warning."""
    return DiagnosisResult(check, Severity.WARNING, message, fix)


def absent(check: str, what: str, load: DiagnosisLoad) -> DiagnosisResult:
    """Build the finding that data does not exist: a warning if it is expected."""
    if load.is_expected:
        return warning(
            check,
            f"{what} does not exist, although the catalog lists it",
            "naksha restore DIRECTORY   # or mount its disk; none is needed if it never had data",
        )
    return ok(check, f"{what} does not exist yet")


def failed(check: str, error: NakshaError, fix: str = "") -> DiagnosisResult:
    """Build the finding of a check that raised an error."""
    return DiagnosisResult(check, Severity.ERROR, " ".join(error.message.split()), fix, error.code)


async def diagnose(
    group: BackendGroup, location: str, options: Mapping[str, Any], load: DiagnosisLoad
) -> list[DiagnosisResult]:
    """Diagnose a storage or a catalog; a backend without a diagnosis has no findings."""
    where = f"{group.noun} {redacted(location)}"
    try:
        backend = group.find(location)
        if not hasattr(backend, "diagnose"):
            return []
        place = {"schema": options["schema"]} if "schema" in options else {}
        found: list[DiagnosisResult] = await backend.diagnose(location, load, **place)
    except NakshaError as error:
        return [failed(where, error)]
    return [msgspec.structs.replace(one, check=f"{where}: {one.check}") for one in found]

"""The command `doctor`: what is wrong with an installation, and the command that repairs it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from naksha.cli.operations.backups import Schema, StorageOption
from naksha.cli.operations.machine_checks import check_disks, check_machine
from naksha.cli.verbs import Verb, catalog_verb
from naksha.model import limits
from naksha.model.errors import NakshaError, StorageCorrupt
from naksha.model.status_codes import OUTWARD
from naksha.spi.diagnosis import (
    DiagnosisLoad,
    DiagnosisResult,
    Severity,
    diagnose,
    failed,
    ok,
    warning,
)
from naksha.spi.locations import CATALOGS, FILE, STORAGES, path_of

if TYPE_CHECKING:
    from naksha.hub.hub import Hub
    from naksha.server.process.settings import ServerSettings

group: Final = typer.Typer(name="", no_args_is_help=True)
_STORAGE_CONNECTIONS: Final = 17
"""Connections of an open storage: its pool, and one to publish."""
_CATALOG_CONNECTIONS: Final = 10
_MARKS: Final = {Severity.OK: "ok", Severity.WARNING: "warning", Severity.ERROR: "ERROR"}


@catalog_verb(group, "doctor")
def doctor(verb: Verb, storage: StorageOption = None, schema: Schema = None) -> None:
    """Check the machine and a hub, or one storage; each problem comes with a command.

    Nothing is changed. The exit code is 0 if there are only warnings, else that of the first error.
    """
    storage = verb.chosen_storage(storage)
    if storage is None:
        findings = asyncio.run(_check_hub(verb))
    else:
        findings = asyncio.run(_check_storage(verb, storage, schema))
    if verb.as_json:
        verb.print_table(
            [(one.check, str(one.severity), one.message, one.fix) for one in findings],
            *("check", "severity", "message", "fix"),
        )
    else:
        _print(findings)
    error = next((one for one in findings if one.severity is Severity.ERROR), None)
    if error is not None:
        raise typer.Exit(OUTWARD[error.code].exit_code)


async def _check_storage(verb: Verb, storage: str, schema: str | None) -> list[DiagnosisResult]:
    verb.progress.phase("Checking the machine")
    findings = [*check_machine(), *check_disks(_directories([storage]))]
    verb.progress.phase("Checking the storage")
    options = {} if schema is None else {"schema": schema}
    return findings + await diagnose(STORAGES, storage, options, _load(_STORAGE_CONNECTIONS))


async def _check_hub(verb: Verb) -> list[DiagnosisResult]:
    from naksha.cli.local_hub import settings_of

    settings = settings_of(verb.arguments, verb.target.program)
    catalog = settings.catalog_location
    verb.progress.phase("Checking the machine")
    findings = check_machine()
    verb.progress.phase("Checking the catalog")
    found = await diagnose(CATALOGS, catalog, {}, _load(_CATALOG_CONNECTIONS * settings.workers))
    findings += found
    locations = [catalog]
    if not any(one.severity is Severity.ERROR for one in found):
        try:
            await _check_contents(verb, settings, findings, locations)
        except NakshaError as error:
            findings.append(failed("catalog", error))
    return findings + check_disks([settings.data_directory, *_directories(locations)])


async def _check_contents(
    verb: Verb,
    settings: ServerSettings,
    findings: list[DiagnosisResult],
    locations: list[str],
) -> None:
    """Check the realms in a catalog, and their storages; add what is found, and where they are."""
    from naksha.cli.local_hub import reading_hub

    async with reading_hub(settings) as hub:
        findings += await _check_realms(hub)
        things = [one async for one in hub.storages_configured() if one[1].active]
        places: dict[tuple[str, Any], tuple[str, dict[str, Any]]] = {}
        for realm, thing in things:
            location, options = hub.storages.located(thing)
            places.setdefault((location, options.get("schema")), (f"{realm}/{thing.id}", options))
    locations += [location for location, _ in places]
    databases = [one for one, _ in places if STORAGES.scheme_of(one) != FILE]
    connections = settings.workers * (_CATALOG_CONNECTIONS + _STORAGE_CONNECTIONS * len(databases))
    load = _load(connections, is_expected=True)
    for (location, _), (name, options) in places.items():
        verb.progress.phase(f"Checking the storage {name}")
        findings += await diagnose(STORAGES, location, options, load)


async def _check_realms(hub: Hub) -> list[DiagnosisResult]:
    """Check that all objects exist, that no realm is unfinished, and the clocks of instances."""
    from naksha.catalog.maintenance import Maintenance
    from naksha.catalog.maintenance.verification import Consistency
    from naksha.catalog.realms import RealmStatus

    findings = []
    for check in await Maintenance(hub.catalog).check():
        name = f"realm {check.realm}"
        if check.consistency is Consistency.CONSISTENT:
            findings.append(ok(name, "all objects of the configuration exist"))
            continue
        error = StorageCorrupt(f"The configuration of the realm {check.realm} is damaged")
        fix = (
            f"naksha restore DIRECTORY   # or, without a backup: naksha realm repair {check.realm}"
        )
        findings.append(failed(name, error, fix))
    for realm in await hub.catalog.realms.list():
        if realm.status in (RealmStatus.LOADING, RealmStatus.CREATED, RealmStatus.INITIALIZING):
            fix = f"naksha realm import {realm.id} FILE --repeat"
            if realm.status is not RealmStatus.LOADING:
                fix = f"naksha realm create {realm.id}"
            findings.append(
                warning(
                    f"realm {realm.id}",
                    f"Creating or importing the realm did not finish: it is {realm.status}",
                    fix,
                )
            )
    for lease in await hub.catalog.node.living():
        seconds = (lease.skew_ms or 0) / 1_000
        if abs(seconds) > limits.CLOCK_SKEW_SECONDS_MAX:
            findings.append(
                warning(
                    f"instance {lease.holder}",
                    f"Its clock is {seconds:,.0f} s from the clock of the database",
                    "timedatectl set-ntp true   # on that machine",
                )
            )
    return findings


def _load(connections: int, *, is_expected: bool = False) -> DiagnosisLoad:
    now_us = time.time_ns() // 1_000
    return DiagnosisLoad(connections, now_us, limits.CLOCK_SKEW_SECONDS_MAX, is_expected)


def _directories(locations: Iterable[str]) -> list[Path]:
    """Return the directories of file locations, and that of temporary files."""
    files = [one for one in locations if one.startswith(f"{FILE}:")]
    return [*(path_of(one).absolute().parent for one in files), Path(tempfile.gettempdir())]


def _print(findings: list[DiagnosisResult]) -> None:
    for one in findings:
        style: dict[str, Any] = {}
        if sys.stdout.isatty() and one.severity is not Severity.OK:
            style = {"fg": "red" if one.severity is Severity.ERROR else "yellow"}
        typer.secho(f"{_MARKS[one.severity]:8}{one.check}: {one.message}", **style)
        if one.fix:
            typer.echo(f"        {one.fix}")
    wrong = [one for one in findings if one.severity is not Severity.OK]
    typer.echo(f"{len(findings)} checks, {len(wrong)} problems")

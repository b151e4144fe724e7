"""The commands `status` and `maintain`: of a running hub, of its catalog, or of one storage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from naksha.cli.hub_client import HubClient, path_to
from naksha.cli.operations.backups import Schema, StorageOption
from naksha.cli.output import print_table
from naksha.cli.storages import check_not_served
from naksha.cli.verbs import Verb, hub_verb
from naksha.model.errors import NakshaError, Retryable
from naksha.spi.locations import redacted
from naksha.spi.maintenance import StorageRound
from naksha.spi.storage_factory import open_storage
from naksha.versioning import maintain_storage

if TYPE_CHECKING:
    from naksha.hub.hub import Hub

group: Final = typer.Typer(name="", no_args_is_help=True)
_MAINTENANCE: Final = path_to("maintenance")
_POLL_SECONDS: Final = 1.0
DONE: Final = "done"
FAILED: Final = "failed"
_SKIPPED: Final = "skipped"
_CATALOG: Final = "(catalog)"
_NO_FILE: Final = "its file does not exist; mount its disk or restore it, unless it was never used"
_ROUND: Final = "maintenance"
"""Field of errors after a round of which a part is done."""
COLUMNS: Final = ("storage", "last", "outcome", "done", "putOff", "failed", "next")


class SubjectRow(NamedTuple):
    """Result of a round in this process."""

    subject: str
    outcome: str
    note: str


@hub_verb(group, "status")
def status(verb: Verb, storage: StorageOption = None, schema: Schema = None) -> None:
    """Print the state of a hub: health, instances, subscriptions and maintenance.

    With --storage, that of one storage: its last version, its collections, and what waits to be
    published.
    """
    storage = verb.chosen_storage(storage)
    if storage is not None:
        check_not_served(storage)
        verb.print_object(asyncio.run(_storage_status(storage, schema)))
        return
    with verb.connected() as client:
        found = _hub_status(verb, client)
    if verb.as_json:
        verb.print_object(found)
        return
    typer.echo(f"hub: {found['health']['status']['result']}")
    for name, check in found["health"].get("checks", {}).items():
        typer.echo(f"{name}: {check['result']}")
    typer.echo(f"instances: {len(found['instances'])}")
    for one in found["subscriptions"]:
        state = one["status"]
        reason = f" ({state['stateReason']})" if "stateReason" in state else ""
        typer.echo(f"subscription {one['id']}: {state['state']}{reason}")
    if "maintenance" in found:
        print_table(_rounds(found["maintenance"]), COLUMNS)


@hub_verb(group, "maintain")
def maintain(
    verb: Verb,
    storage: StorageOption = None,
    schema: Schema = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Only report what a round would do.")
    ] = False,
) -> None:
    """Run a maintenance round and wait for its end.

    With --hub, of all storages of the realm, by the hub. With --storage, of one storage. Else of
    all storages in the catalog, and of the catalog itself, in this process.
    """
    storage = verb.chosen_storage(storage)
    if verb.target.url and storage is None:
        with verb.connected() as client:
            found = _requested_round(verb, client, is_dry=is_dry)
        if verb.as_json:
            verb.print_object(found)
        else:
            print_table(_rounds(found), COLUMNS)
        if any(_failures(one) for one in _subjects(found).values()):
            raise Retryable(
                "Steps of the maintenance round failed; see the notes. The hub retries them",
                field=_ROUND,
            )
        return
    if storage is not None:
        check_not_served(storage)
        done = [asyncio.run(_maintain_storage(storage, schema, is_dry=is_dry))]
    else:
        from naksha.cli.local_hub import with_hub

        work = partial(_maintain_all, verb, is_dry=is_dry)
        done = with_hub(verb.arguments, work, verb.target.program)
    verb.print_table(done, *SubjectRow._fields)
    if any(row.outcome == FAILED for row in done):
        raise Retryable(
            "Parts of the maintenance round failed; correct the causes in the notes and repeat it",
            field=_ROUND,
        )


# ---- Of a running hub ----------------------------------------------------------------------------


def _hub_status(verb: Verb, client: HubClient) -> dict[str, Any]:
    # Only a running hub knows of warnings and rounds.
    detailed = {"detailed": "true"} if verb.target.url else {}
    found = {
        "health": client.request("GET", path_to("health-status"), parameters=detailed),
        "instances": client.request("GET", path_to("instances")),
        "subscriptions": client.request("GET", path_to("subscriptions")),
    }
    if verb.target.url:
        found["maintenance"] = client.request("GET", _MAINTENANCE)
    return found


def _requested_round(verb: Verb, client: HubClient, *, is_dry: bool) -> dict[str, Any]:
    """Request a round, and wait for its end."""
    parameters = {"dryRun": "true"} if is_dry else {}
    found: dict[str, Any] = client.request("POST", _MAINTENANCE, parameters=parameters)
    while waiting := [
        name
        for name, state in _subjects(found).items()
        if state.get("running") or "requestedAt" in state
    ]:
        verb.progress.phase(f"Maintaining {', '.join(waiting[:3])}")
        time.sleep(_POLL_SECONDS)
        found = client.request("GET", _MAINTENANCE)
    return found


def _subjects(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    subjects = {one["storageId"]: one for one in found["storages"]}
    return subjects | ({_CATALOG: found["catalog"]} if "catalog" in found else {})


def _last(state: dict[str, Any]) -> dict[str, Any]:
    """Return the last round of a storage, dry or not."""
    rounds = [state[name] for name in ("lastRound", "lastDryRun") if name in state]
    return max(rounds, key=lambda one: int(one["endedAt"]), default={})


def _failures(state: dict[str, Any]) -> int:
    last = _last(state)
    return int(last.get("failedCount", 0)) + (last.get("outcome") == "failed")


def _rounds(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = []
    for name, state in _subjects(found).items():
        last = _last(state)
        counts = [last.get(count) for count in ("doneCount", "putOffCount", "failedCount")]
        ended, following = _time(last.get("endedAt")), _time(state.get("nextAt"))
        rows.append((name, ended, last.get("outcome"), *counts, following))
    return rows


def _time(epoch_ms: int | None) -> str | None:
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC).isoformat(timespec="seconds")


# ---- In this process -----------------------------------------------------------------------------


async def _storage_status(location: str, schema: str | None) -> dict[str, Any]:
    options = {} if schema is None else {"schema": schema}
    async with open_storage(location, read_only=True, **options) as storage:
        state = await storage.publication()
        return {
            "id": storage.identity.id,
            "number": storage.identity.number,
            "lastVersion": state.last_seq_number,
            "unpublished": state.unpublished,
            "heldBackBy": state.held_back_by,
            "collections": {
                one.id: one.estimated_feature_count for one in await storage.collections()
            },
        }


async def _maintain_storage(location: str, schema: str | None, *, is_dry: bool) -> SubjectRow:
    options = {} if schema is None else {"schema": schema}
    record = StorageRound(is_dry=is_dry)
    async with open_storage(location, must_exist=True, **options) as storage:
        await maintain_storage(storage, record)
    return _row(redacted(location), record)


async def _maintain_all(verb: Verb, hub: Hub, *, is_dry: bool) -> list[SubjectRow]:
    """Maintain all storages of a catalog, and then the catalog; one that fails stops no other."""
    from naksha.hub.maintenance.rounds import catalog_round, storage_round

    found = []
    async for realm, thing in hub.storages_configured():
        name = f"{realm}/{thing.id}"
        if not thing.active:
            found.append(SubjectRow(name, _SKIPPED, "it is inactive"))
            continue
        if not await asyncio.to_thread(hub.storages.exists, thing):
            found.append(SubjectRow(name, _SKIPPED, _NO_FILE))
            continue
        verb.progress.phase(f"Maintaining the storage {name}")
        found.append(await _attempted(name, partial(storage_round, hub, realm, thing), is_dry))
    verb.progress.phase("Maintaining the catalog")
    found.append(await _attempted(_CATALOG, partial(catalog_round, hub), is_dry))
    return found


async def _attempted(
    name: str, work: Callable[[StorageRound], Awaitable[None]], is_dry: bool
) -> SubjectRow:
    record = StorageRound(is_dry=is_dry)
    try:
        await work(record)
    except NakshaError as error:
        return SubjectRow(name, FAILED, str(error))
    return _row(name, record)


def _row(name: str, record: StorageRound) -> SubjectRow:
    """Return what a round did, or would do, and what it did not and why."""
    notes = [
        *record.done,
        *(f"put off: {note.step} ({note.reason})" for note in record.postponed),
        *(f"failed: {step} ({error})" for step, error in record.failures),
    ]
    return SubjectRow(name, FAILED if record.failures else DONE, "; ".join(notes))

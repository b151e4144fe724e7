"""The command `realm`: the life cycle of realms in the catalog of a hub."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from naksha.cli.verbs import Verb, catalog_verb

if TYPE_CHECKING:
    from naksha.catalog.realms import RealmStatus
    from naksha.hub.hub import Hub

realms: Final = typer.Typer(
    name="realm",
    help="Realms of a hub, each with its own spaces, storages and rights.",
    no_args_is_help=True,
)
_CHUNK_BYTES: Final = 1 << 20
RealmId = Annotated[str, typer.Argument(help="Realm id: letters, digits, _ and -.")]


@catalog_verb(realms, "list")
def list_realms(verb: Verb) -> None:
    """List the realms with their status."""

    async def read(hub: Hub) -> list[tuple[str, str]]:
        return [(realm.id, str(realm.status)) for realm in await hub.catalog.realms.list()]

    verb.print_table(_with_hub(verb, read), "id", "status")


@catalog_verb(realms, "create")
def create_realm(verb: Verb, id: RealmId) -> None:
    """Create a realm, and the storage of its features."""
    from naksha.catalog.realms import check_realm_id
    from naksha.hub.config.realm_setup import DEFAULT_STORAGE

    async def make(hub: Hub) -> bool:
        check_realm_id(id)
        known = {realm.id for realm in await hub.catalog.realms.list()}
        realm = await hub.set_up_realm(id)
        await realm.storage(DEFAULT_STORAGE)  # fails now if its location is wrong
        return id in known

    is_known = _with_hub(verb, make, creates=True)
    text = f"Realm {id!r} {'already exists' if is_known else 'created'}."
    _report(verb, text, id=id, created=not is_known)


@catalog_verb(realms, "deactivate")
def deactivate_realm(verb: Verb, id: RealmId) -> None:
    """Stop serving a realm; it keeps all its data."""
    from naksha.catalog.realms import RealmStatus

    _set_status(verb, id, RealmStatus.INACTIVE)


@catalog_verb(realms, "activate")
def activate_realm(verb: Verb, id: RealmId) -> None:
    """Serve an inactive realm again."""
    from naksha.catalog.realms import RealmStatus

    _set_status(verb, id, RealmStatus.ACTIVE)


@catalog_verb(realms, "purge")
def purge_realm(
    verb: Verb,
    id: RealmId,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Confirm that the configuration is deleted for good.")
    ] = False,
) -> None:
    """Delete the configuration of an inactive realm; this cannot be undone.

    A realm can be purged after it was inactive for three days. Maintenance of the catalog then
    deletes its rows. The storages with its features are not deleted.
    """
    from naksha.catalog.realms import RealmStatus
    from naksha.model.errors import InvalidArgument

    if not is_sure:
        raise InvalidArgument(
            f"Purging the realm {id!r} deletes its configuration for good; pass --yes to confirm",
            field="yes",
        )

    async def purge(hub: Hub) -> list[str]:
        places = [
            thing.to_json()["properties"].get("location", "")
            async for realm, thing in hub.storages_configured()
            if realm == id
        ]
        realm = await hub.catalog.realms.get(id)
        if realm.status is not RealmStatus.PURGING:
            await hub.catalog.realms.update(realm, RealmStatus.PURGING)
        return places

    kept = _with_hub(verb, purge)
    text = f"Realm {id!r} is PURGING; the next maintenance of the catalog deletes its rows."
    if kept:
        text += f" Its features stay in {', '.join(kept)}."
    _report(verb, text, id=id, status="PURGING", storagesKept=kept)


@catalog_verb(realms, "delete")
def delete_realm(verb: Verb, id: RealmId) -> None:
    """Delete the record of a purged realm, so that its id can be used again."""

    async def delete(hub: Hub) -> None:
        await hub.catalog.realms.delete(await hub.catalog.realms.get(id))

    _with_hub(verb, delete)
    _report(verb, f"Realm {id!r} deleted; its id can be used again.", id=id, deleted=True)


@catalog_verb(realms, "export")
def export_realm(
    verb: Verb, id: RealmId, file: Annotated[Path, typer.Argument(help="File to create.")]
) -> None:
    """Write the configuration of a realm to a file, without the features in its storages."""
    from naksha.catalog.transfer import export_realm as exported

    async def write(hub: Hub) -> dict[str, Any]:
        catalog = hub.catalog
        await catalog.realms.get(id)
        storages = [thing.id async for realm, thing in hub.storages_configured() if realm == id]
        size = 0
        with _new_file(file) as out:
            async for chunk in exported(catalog.backend, id, catalog.clock.now_us()):
                size += out.write(chunk)
                verb.progress.phase(f"{verb.target.program}: {size:,} bytes")
        return {"id": id, "file": str(file), "bytes": size, "storages": storages}

    done = _with_hub(verb, write)
    text = (
        f"Realm {id!r} exported to {file} ({done['bytes']:,} bytes): its configuration, without "
        f"feature data. The features are in the storages {', '.join(done['storages']) or '(none)'};"
        " `naksha backup` includes them."
    )
    _report(verb, text, **done, includesFeatures=False)


@catalog_verb(realms, "import")
def import_realm(
    verb: Verb,
    id: RealmId,
    file: Annotated[Path, typer.Argument(help="File that `realm export` wrote.")],
    is_inactive: Annotated[
        bool, typer.Option("--inactive", help="Do not serve the realm until it is activated.")
    ] = False,
    is_repeated: Annotated[
        bool, typer.Option("--repeat", help="Repeat an import that was interrupted.")
    ] = False,
) -> None:
    """Create a realm from an exported configuration, under the same id or another one."""
    from naksha.catalog.realms import RealmStatus
    from naksha.catalog.transfer import import_realm as imported

    async def read(hub: Hub) -> str:
        inactive = RealmStatus.INACTIVE
        chunks = _chunks(file)
        realm = await imported(hub.catalog, id, chunks, status=inactive, is_repeated=is_repeated)
        if not is_inactive:
            async with _storages_claimed(hub, id):
                realm = await hub.catalog.realms.update(realm, RealmStatus.ACTIVE)
        return str(realm.status)

    reached = _with_hub(verb, read, creates=True)
    text = f"Realm {id!r} imported from {file}; it is {reached}. Its storages keep their locations."
    _report(verb, text, id=id, status=reached)


@catalog_verb(realms, "repair")
def repair_realm(
    verb: Verb,
    id: RealmId,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Confirm that missing data is given up.")
    ] = False,
) -> None:
    """Repair the configuration of a realm of which the database has lost objects.

    A pointer returns to its newest intact commit; the commits after it are lost. If only an old
    commit is missing, the change log begins after it. Restore a backup instead if there is one.
    """
    from naksha.catalog.maintenance.realm_reader import RealmReader
    from naksha.catalog.maintenance.store_check import check_realm, repair_head, repair_log
    from naksha.catalog.maintenance.verification import Consistency
    from naksha.model.errors import Conflict, InvalidArgument, StorageCorrupt

    async def repair(hub: Hub) -> list[str]:
        reader = RealmReader(hub.catalog.backend, id)
        realm = await hub.catalog.realms.get(id)
        check = await check_realm(reader)
        damaged = [
            one.pointer for one in check.pointers if one.consistency is not Consistency.CONSISTENT
        ]
        if damaged and not is_sure:
            raise InvalidArgument(
                f"The pointers {', '.join(damaged)} of the realm {id!r} are damaged, and their "
                "repair gives up what is missing; pass --yes to confirm",
                field="yes",
            )
        for pointer in damaged:
            try:
                await repair_log(await hub.catalog.persistence_of(realm), pointer)
            except (Conflict, StorageCorrupt):  # more than old commits is missing
                await repair_head(reader, pointer)
        return damaged

    done = _with_hub(verb, repair)
    text = f"Repaired in the realm {id!r}: {', '.join(done) or 'nothing; no pointer is damaged'}."
    _report(verb, text, id=id, repaired=done)


@asynccontextmanager
async def _storages_claimed(hub: Hub, id: str) -> AsyncIterator[None]:
    """Reserve the storages of a realm that is to be served, as if they were added to it.

    Raises:
        Forbidden: A location is not allowed for the realm, or another realm has it.
        Conflict: A storage has the id or the number of another one.
    """
    from naksha.model.errors import NakshaError

    things = [thing async for realm, thing in hub.storages_configured() if realm == id]
    async with AsyncExitStack() as held:
        for thing in things:
            try:
                await held.enter_async_context(hub.claimed(id, thing))
                if thing.identity is not None:
                    await held.enter_async_context(hub.unique(id, thing))
            except NakshaError as error:
                error.message = (
                    f"The realm {id!r} stays INACTIVE, because of its storage {thing.id!r}: "
                    f"{error.message}"
                )
                raise
        yield


@contextmanager
def _new_file(file: Path) -> Iterator[IO[bytes]]:
    """Create a file that only its owner can read, and remove it if the block fails."""
    from naksha.model.errors import InvalidArgument

    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidArgument(
            f"The file {str(file)!r} exists; name a new file", field="file"
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"The file {str(file)!r} cannot be written: {error.strerror}", field="file"
        ) from error
    try:
        with os.fdopen(number, "wb") as out:
            yield out
    except BaseException as error:
        file.unlink()
        if isinstance(error, OSError):
            raise InvalidArgument(
                f"The file {str(file)!r} cannot be written: {error.strerror}", field="file"
            ) from error
        raise


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    from naksha.model.errors import NotFound

    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except FileNotFoundError:
        raise NotFound(f"The file {str(file)!r} does not exist", field="file") from None


def _set_status(verb: Verb, id: str, status: RealmStatus) -> None:
    from naksha.catalog.realms import RealmStatus
    from naksha.model.errors import Conflict

    async def change(hub: Hub) -> None:
        known = hub.catalog.realms
        realm = await known.get(id)
        if realm.status not in (RealmStatus.ACTIVE, RealmStatus.INACTIVE):
            raise Conflict(
                f"The realm {id!r} is {realm.status} and cannot become {status}; only ACTIVE and "
                "INACTIVE realms can be activated and deactivated",
                field="status",
            )
        if realm.status is not status:
            is_served = status is RealmStatus.ACTIVE
            async with _storages_claimed(hub, id) if is_served else nullcontext():
                await known.update(realm, status)

    _with_hub(verb, change)
    _report(verb, f"Realm {id!r} is {status}.", id=id, status=str(status))


def _with_hub(verb: Verb, work: Any, *, creates: bool = False) -> Any:
    from naksha.cli.local_hub import with_hub
    from naksha.server.process.lock_file import FOR_CATALOGS  # the REST API has no realms

    program = verb.target.program
    return with_hub(verb.arguments, work, program, creates=creates, remedy=FOR_CATALOGS)


def _report(verb: Verb, text: str, **members: Any) -> None:
    if verb.as_json:
        verb.print_object(members)
    else:
        typer.echo(text)

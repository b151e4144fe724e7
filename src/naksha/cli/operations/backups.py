"""The commands `backup` and `restore`: of one storage, or of a hub with its catalog."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from naksha.cli.operations.backup_files import (
    BackupFile,
    BackupManifest,
    backend_of,
    described,
    new_directory,
    read_backup,
    remove_copy,
    write_manifest,
)
from naksha.cli.storages import check_not_served
from naksha.cli.verbs import Verb, catalog_verb
from naksha.model.errors import InvalidArgument, NotFound, NotSupported, Retryable
from naksha.spi.backups import (
    back_up_catalog,
    back_up_storage,
    check_empty,
    restore_catalog,
    restore_storage,
)
from naksha.spi.locations import CATALOGS, STORAGES, BackendGroup, redacted

if TYPE_CHECKING:
    from naksha.hub.hub import Hub

group: Final = typer.Typer(name="", no_args_is_help=True)
Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY")]
StorageOption = Annotated[
    str | None,
    typer.Option(
        envvar="NAKSHA_STORAGE",
        help="One storage: a file or URL, such as postgresql:///maps. Default: the hub.",
    ),
]
Schema = Annotated[str | None, typer.Option(help="PostgreSQL schema of that storage.")]
_ATTEMPTS_MAX: Final = 3


class StoragePlace(NamedTuple):
    """Location and options of a storage; with its name, if it belongs to a hub."""

    location: str
    options: dict[str, Any]
    realm: str | None = None
    name: str | None = None
    configured: str = ""
    """The location as it is in the catalog: relative to the data directory of the hub."""


@catalog_verb(group, "backup")
def backup(
    verb: Verb,
    directory: Directory,
    storage: StorageOption = None,
    schema: Schema = None,
    may_miss: Annotated[
        bool,
        typer.Option("--allow-missing", help="Leave out storages of a hub that do not exist."),
    ] = False,
) -> None:
    """Copy a storage, or a hub with its catalog and all its storages, to a new directory.

    Others may read and write meanwhile: every write that was acknowledged before is included, a
    later one completely or not at all. The copy is checked. Nothing is left of a backup that fails.
    """
    storage = verb.chosen_storage(storage)
    if storage is None:
        manifest = asyncio.run(_back_up_hub(verb, directory, may_miss=may_miss))
    else:
        place = StoragePlace(storage, {} if schema is None else {"schema": schema})
        with new_directory(directory):
            files = [asyncio.run(_copied(verb, directory, place, 1))]
            manifest = BackupManifest(created_at=_now(), storages=files)
            write_manifest(directory, manifest)
    _print(verb, manifest, f"Backup in {directory}")


@catalog_verb(group, "restore")
def restore(
    verb: Verb, directory: Directory, storage: StorageOption = None, schema: Schema = None
) -> None:
    """Restore a backup to an empty location, and check the result.

    The backup of a hub is restored to the catalog and the data directory that the flags name, and
    its databases under their own names. A restored storage keeps its id and number: fork it if the
    original stays in use.
    """
    verb.progress.phase("Checking the files of the backup")
    manifest = read_backup(directory)
    storage = verb.chosen_storage(storage)
    if manifest.catalog is None:
        if storage is None:
            raise InvalidArgument(
                "The backup is of one storage; name the location to restore it to with --storage",
                field="storage",
            )
        check_not_served(storage)
        place = StoragePlace(storage, {} if schema is None else {"schema": schema})
        asyncio.run(_restore_storages(verb, directory, [(manifest.storages[0], place)]))
    else:
        if storage is not None and "storage" in verb.typed:
            raise InvalidArgument(
                "The backup is of a hub; name its catalog and data directory with --catalog and "
                "--data, not a storage",
                field="storage",
            )
        _restore_hub(verb, directory, manifest)
    _print(verb, manifest, f"Restored from {directory}")


# ---- Backup --------------------------------------------------------------------------------------


async def _back_up_hub(verb: Verb, directory: Path, *, may_miss: bool) -> BackupManifest:
    """Back up the catalog first: positions in it never precede the changes in the storages."""
    from naksha.cli.local_hub import reading_hub, settings_of

    settings = settings_of(verb.arguments, verb.target.program)
    async with reading_hub(settings) as hub:
        with new_directory(directory):
            catalog, places = await _copied_catalog(
                verb, hub, settings.catalog_location, directory / "catalog"
            )
            files = []
            missing = []
            for number, place in enumerate(places, 1):
                try:
                    files.append(await _copied(verb, directory, place, number))
                except NotFound as error:
                    if not may_miss:
                        raise _missing(place) from error
                    missing.append(f"{place.realm}/{place.name}")
            manifest = BackupManifest(
                created_at=_now(), catalog=catalog, storages=files, missing=missing
            )
            write_manifest(directory, manifest)
    return manifest


async def _copied_catalog(
    verb: Verb, hub: Hub, location: str, path: Path
) -> tuple[BackupFile, list[StoragePlace]]:
    """Copy the catalog, and return it with the storages that it has."""
    for _ in range(_ATTEMPTS_MAX):
        places = await _places(hub)
        verb.progress.phase("Copying the catalog")
        await back_up_catalog(location, path)
        if await _places(hub) == places:
            return described(path, backend=backend_of(CATALOGS, location)), places
        remove_copy(path)
    raise Retryable("Storages are being added or removed; back up when this has ended")


def _missing(place: StoragePlace) -> NotFound:
    return NotFound(
        f"The storage {place.name!r} of the realm {place.realm!r} does not exist at "
        f"{redacted(place.location)!r}; mount its disk or restore it, or pass --allow-missing if "
        "it never had data",
        field="storage",
    )


async def _places(hub: Hub) -> list[StoragePlace]:
    """Return the storages of all realms, each location once."""
    found: dict[tuple[str, Any], StoragePlace] = {}
    async for realm, thing in hub.storages_configured():
        location, options = hub.storages.located(thing)
        configured = str(thing.properties["location"])
        place = StoragePlace(location, options, realm, thing.id, configured)
        found.setdefault((location, options.get("schema")), place)
    return list(found.values())


async def _copied(verb: Verb, directory: Path, place: StoragePlace, number: int) -> BackupFile:
    verb.progress.phase(f"Copying {redacted(place.location)}")
    path = directory / f"storage-{number}"
    facts = await back_up_storage(place.location, path, place.options)
    return described(
        path,
        backend=backend_of(STORAGES, place.location),
        schema=place.options.get("schema"),
        realm=place.realm,
        name=place.name,
        location=place.configured,
        facts=facts,
    )


# ---- Restore -------------------------------------------------------------------------------------


def _restore_hub(verb: Verb, directory: Path, manifest: BackupManifest) -> None:
    """Restore the catalog last, so that no hub opens an incomplete restore."""
    from naksha.cli.local_hub import local_settings
    from naksha.hub.storages.open_storages import absolute_location
    from naksha.server.process.lock_file import FOR_CATALOGS

    assert manifest.catalog is not None
    program = verb.target.program
    with local_settings(verb.arguments, program, creates=True, remedy=FOR_CATALOGS) as settings:
        catalog = settings.catalog_location
        _check_backend(CATALOGS, catalog, manifest.catalog)
        asyncio.run(check_empty(CATALOGS, catalog, {}))
        pairs = [
            (one, StoragePlace(absolute_location(one.location, settings.data_directory), one.place))
            for one in manifest.storages
        ]
        asyncio.run(_restore_storages(verb, directory, pairs))
        verb.progress.phase("Restoring the catalog")
        asyncio.run(restore_catalog(catalog, directory / manifest.catalog.file))


async def _restore_storages(
    verb: Verb, directory: Path, pairs: list[tuple[BackupFile, StoragePlace]]
) -> None:
    """Restore storages after all their locations were found to be empty."""
    for one, place in pairs:
        _check_backend(STORAGES, place.location, one)
        if one.schema != place.options.get("schema"):
            raise NotSupported(
                f"The backup is of the schema {one.schema or '(default)'!r}; restore it under its "
                "own name, with --schema, in another database if that name is in use",
                field="schema",
            )
        await check_empty(STORAGES, place.location, place.options, one.facts)
    for one, place in pairs:
        assert one.facts is not None
        verb.progress.phase(f"Restoring {one.title} to {redacted(place.location)}")
        await restore_storage(place.location, directory / one.file, place.options, one.facts)


def _check_backend(group: BackendGroup, location: str, one: BackupFile) -> None:
    found = backend_of(group, location)
    if found != one.backend:
        raise NotSupported(
            f"The backup of {one.title} was written by the backend {one.backend!r} and cannot be "
            f"restored to {redacted(location)!r}; name a location of the same kind",
            field=group.noun,
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _print(verb: Verb, manifest: BackupManifest, text: str) -> None:
    if verb.as_json:
        storages = [
            msgspec.structs.replace(one, location=redacted(one.location) if one.location else "")
            for one in manifest.storages
        ]
        shown = msgspec.structs.replace(manifest, storages=storages)
        verb.print_object(msgspec.to_builtins(shown))
        return
    typer.echo(f"{text}:")
    for one in (manifest.catalog, *manifest.storages):
        if one is None:
            continue
        counts = "" if one.facts is None else _counts(one)
        typer.echo(f"  {one.title}: {one.bytes:,} bytes{counts}")
    for name in manifest.missing:
        typer.echo(f"  storage {name}: does not exist, not copied")


def _counts(one: BackupFile) -> str:
    assert one.facts is not None
    features = sum(one.facts.features.values())
    return (
        f", version {one.facts.last_version}, {features:,} features in "
        f"{len(one.facts.features)} collections"
    )

"""The command `storage`: storages of a hub, and single storages by their location."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, runtime_checkable

import typer

from naksha.cli.configuration import STORAGE, list_objects, remove_object, show_object
from naksha.cli.output import print_json, running
from naksha.cli.verbs import Verb, hub_verb, json_argument
from naksha.model.errors import NotSupported
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.locations import redacted
from naksha.spi.storage_factory import fork_storage, open_storage

if TYPE_CHECKING:
    from naksha.hub.hub import Hub


storages: Final = typer.Typer(
    name="storage",
    help="Storages, and their ids and numbers in state ids.",
    no_args_is_help=True,
)
Location = Annotated[
    str,
    typer.Argument(help="Such as file:town.naksha or postgresql:///maps.", metavar="LOCATION"),
]
Schema = Annotated[str | None, typer.Option(help="PostgreSQL schema.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
COLUMNS: Final = ("realm", "name", "id", "number", "location")


@hub_verb(storages, "list")
def list_storages(verb: Verb) -> None:
    """List the storages of a running hub's realm, or of all realms of a catalog."""
    if verb.target.url:
        list_objects(verb, STORAGE)
    else:
        verb.print_table(_storage_rows(verb), *COLUMNS)


@hub_verb(storages, "show")
def show_storage(
    verb: Verb,
    storage: Annotated[
        str, typer.Argument(help="Location, or the name of a storage of a hub.", metavar="STORAGE")
    ],
    schema: Schema = None,
) -> None:
    """Print the id, the number and the former ids of a storage, or its entry in a hub."""
    if ":" not in storage:
        show_object(verb, STORAGE, storage)
        return
    check_not_served(storage)
    found = storage_identity(storage, schema)
    if verb.as_json:
        verb.print_object(found)
    else:
        typer.echo("\n".join(lines_of(found)))


@hub_verb(storages, "add")
def add_storage(
    verb: Verb,
    id: Annotated[str, typer.Argument(metavar="ID")],
    location: Location,
    title: Annotated[str, typer.Option(help="Title.")] = "",
    options: Annotated[
        str, typer.Option(help='Options of the backend, as JSON, such as {"schema": "maps"}.')
    ] = "{}",
    is_checked: Annotated[
        bool, typer.Option("--check/--no-check", help="Open the storage before it is added.")
    ] = True,
) -> None:
    """Add a storage to a hub; a new one is created."""
    properties = {**json_argument(options, "options"), "location": location}
    body = {"id": id, "title": title, "properties": properties}
    parameters = {} if is_checked else {"check": "false"}
    with verb.connected() as client:
        verb.print_object(client.request("POST", STORAGE.path, body, parameters))


@hub_verb(storages, "remove")
def remove_storage(verb: Verb, id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Remove a storage that no connector and no space uses from a hub; its data stays."""
    remove_object(verb, STORAGE, id)


@storages.command("fork")
def fork(
    location: Location,
    schema: Schema = None,
    id: Annotated[
        str | None,
        typer.Option(help="New id. Default: derived from the file, schema or database name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a copied storage its own id and number.

    Existing states keep their ids, which the storage still accepts. The storage must not be open in
    any process.
    """
    with running("naksha storage fork", as_json=as_json):
        check_not_served(location)
        forked = _forked_storage(location, schema, id)
        if as_json:
            print_json(forked)
        else:
            typer.echo("\n".join(lines_of(forked)))


@storages.command("keep-log")
def keep_log(
    location: Location,
    days: Annotated[int, typer.Argument(help="Days; the default of a storage is 36500.")],
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Set how long a storage keeps its log and its versions; maintenance expires older ones."""
    with running("naksha storage keep-log", as_json=as_json):
        check_not_served(location)
        asyncio.run(_keep_log(location, schema, days))
        if as_json:
            print_json({"days": days})


@storages.command("view")
def view(location: Location, collection: str, as_json: AsJson = False) -> None:
    """Add a view named like a collection to a file, to edit the collection with sqlite3."""
    with running("naksha storage view", as_json=as_json):
        check_not_served(location)
        add_view(location, collection)
        if as_json:
            print_json({"view": collection})


@runtime_checkable
class HasViews(Protocol):
    """A storage with views for editors that do not use the library."""

    async def add_view(self, collection: str) -> None:
        """Create a view named like a collection."""


def check_not_served(location: str) -> None:
    """Raise Unavailable if the location is a file that a hub serves; the message names the hub."""
    from naksha.server.process import lock_file

    lock_file.check_not_served(location)


def _storage_rows(verb: Verb) -> list[tuple[Any, ...]]:
    """Return realm, name, id, number and location of all storages of a catalog.

    Id and number are unknown until a hub of this release has opened the storage.
    """
    from naksha.cli.local_hub import with_hub  # needs the extra `server`

    async def look(hub: Hub) -> list[tuple[Any, ...]]:
        found = []
        async for realm, thing in hub.storages_configured():
            known = thing.identity
            identity = (None, None) if known is None else (known.id, known.number)
            location = redacted(str(thing.properties.get("location", "")))
            found.append((realm, thing.id, *identity, location))
        return found

    return with_hub(verb.arguments, look, verb.target.program)


def storage_identity(location: str, schema: str | None) -> dict[str, Any]:
    """Return id, number and former ids of the storage at a location."""

    async def look() -> StorageIdentity:
        async with open_storage(location, read_only=True, **_options(schema)) as storage:
            return storage.identity

    return _to_json(asyncio.run(look()))


def _forked_storage(location: str, schema: str | None, id: str | None) -> dict[str, Any]:
    """Give a storage its own id and number, and return them with the former ids."""
    return _to_json(asyncio.run(fork_storage(location, id, **_options(schema))))


def add_view(location: str, collection: str) -> None:
    """Add a view named like a collection."""

    async def add() -> None:
        async with open_storage(location, must_exist=True) as storage:
            if not isinstance(storage, HasViews):
                raise NotSupported(
                    "Views are supported for files only; in PostgreSQL, write to the table of the "
                    "collection"
                )
            await storage.add_view(collection)

    asyncio.run(add())


async def _keep_log(location: str, schema: str | None, days: int) -> None:
    async with open_storage(location, must_exist=True, **_options(schema)) as storage:
        await storage.keep_log(days)


def lines_of(storage: dict[str, Any]) -> list[str]:
    """Format a storage for people."""
    former = [f"former id: {each['id']} (number {each['number']})" for each in storage["former"]]
    return [f"id: {storage['id']}", f"number: {storage['number']}", *former]


def _options(schema: str | None) -> dict[str, Any]:
    return {} if schema is None else {"schema": schema}


def _to_json(identity: StorageIdentity) -> dict[str, Any]:
    former = [{"id": each.id, "number": each.number} for each in identity.former]
    return {"id": identity.id, "number": identity.number, "former": former}

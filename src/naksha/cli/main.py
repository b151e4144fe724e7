"""The root of the `naksha` command; every sub-command is one function."""

import json
from typing import Annotated

import typer

import naksha
from naksha.cli.jobs import JobGroup

app = typer.Typer(
    name="naksha",
    help="A versioned geospatial feature store and hub.",
    no_args_is_help=True,
    add_completion=False,
    # A traceback with the values of variables would show passwords.
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(naksha.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A versioned geospatial feature store and hub."""


@app.command("version")
def show_version() -> None:
    """Print the version."""
    typer.echo(naksha.__version__)


@app.command()
def demo(
    storage: str = typer.Option(
        "file:demo.naksha",
        envvar="NAKSHA_STORAGE",
        help="Where to: a file, or for example postgresql:///maps.",
    ),
    schema: str = typer.Option("naksha_demo", help="The schema, in PostgreSQL."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document instead."),
) -> None:
    """Edit a small town and show what Naksha keeps of it."""
    from naksha.cli.demo import demo as run_demo

    run_demo(storage, schema, as_json)


@app.command(
    add_help_option=False,  # the server knows its flags, and says them
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def serve(context: typer.Context) -> None:
    """Serve the hub; `naksha serve --help` names the settings."""
    from naksha.cli.failures import readable

    with readable(ends_soon=False):
        from naksha.cli.hub import run_server

        run_server(context.args)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sample(context: typer.Context) -> None:
    """Load a real edit history into the space `airports`; flags are those of `naksha serve`."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.sample import load_sample

        typer.echo(load_sample(context.args))


@app.command()
def token(
    app_id: str = typer.Argument(help="The application that the token is for."),
    key: str = typer.Option(help="What it is signed with: secret:FILE, or pem:FILE."),
    author: str | None = typer.Option(None, help="The person that the application acts for."),
    realm: str = typer.Option("default", help="The realm in which it is good."),
    rights: str | None = typer.Option(
        None,
        help='A rights matrix, as {"naksha": {"readFeatures": [{}]}}, or @FILE that has one. '
        "Unless given: everything.",
    ),
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="The name of a role of the realm; may be repeated."),
    ] = None,
    hours: float = typer.Option(1.0, min=0.001, help="How long it is good."),
    key_id: str | None = typer.Option(None, help="The `kid` of the key."),
) -> None:
    """Print a token for a server that has the key."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.tokens import minted

        typer.echo(minted(app_id, key, author, realm, rights, roles or (), hours, key_id))


realms = typer.Typer(help="The realms of a hub, each with its own spaces, storages and rights.")
app.add_typer(realms, name="realm", no_args_is_help=True)


@realms.command(
    "create",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def create_realm(
    context: typer.Context, id: str = typer.Argument(help="Letters, digits, _ and -.")
) -> None:
    """Make a realm; flags are those of `naksha serve`, above all --data, --catalog, --storage."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.hub import make_realm

        typer.echo(make_realm(id, context.args))


@realms.command("list", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def list_realms(context: typer.Context) -> None:
    """Name the realms and their states; flags are those of `naksha serve`."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.hub import realm_lines

        for line in realm_lines(context.args):
            typer.echo(line)


storages = typer.Typer(help="Storages: their ids and numbers, by which state ids name them.")
app.add_typer(storages, name="storage", no_args_is_help=True)
Location = Annotated[
    str,
    typer.Argument(help="For example file:town.naksha or postgresql:///maps.", metavar="LOCATION"),
]
Schema = Annotated[str | None, typer.Option(help="The schema, in PostgreSQL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@storages.command(
    "list", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def list_storages(context: typer.Context) -> None:
    """Print the storages of a catalog: realm, name, id, number and location, one line each; flags
    are those of `naksha serve`."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.storages import storage_lines

        for line in storage_lines(context.args):
            typer.echo(line)


@storages.command("show")
def show_storage(location: Location, schema: Schema = None, as_json: AsJson = False) -> None:
    """Print the id, the number and the former ids of the storage at a location."""
    from naksha.cli.failures import readable

    with readable(as_json=as_json):
        from naksha.cli.storages import lines_of, shown_storage

        found = shown_storage(location, schema)
        typer.echo(json.dumps(found) if as_json else "\n".join(lines_of(found)))


@storages.command("fork")
def fork_storage(
    location: Location,
    schema: Schema = None,
    id: Annotated[
        str | None,
        typer.Option(help="The new id; by default the name of the file, schema or database."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a copied storage an id and a number of its own. States written before keep their ids,
    and the storage still answers to them. The storage must not be open anywhere."""
    from naksha.cli.failures import readable

    with readable(as_json=as_json):
        from naksha.cli.storages import forked_storage, lines_of

        forked = forked_storage(location, schema, id)
        typer.echo(json.dumps(forked) if as_json else "\n".join(lines_of(forked)))


@storages.command("view")
def view_collection(location: Location, collection: str) -> None:
    """Add a view to a file that is named like a collection, to edit it in the program sqlite3."""
    from naksha.cli.failures import readable

    with readable():
        from naksha.cli.storages import add_view

        add_view(location, collection)


app.add_typer(
    typer.Typer(
        cls=JobGroup, help="Jobs on Spark: each runs in a process of its own; Ctrl-C cancels it."
    ),
    name="job",
    no_args_is_help=True,
)

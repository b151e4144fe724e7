"""Root of the `naksha` command; every sub-command is one function."""

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
    # Local variables in a traceback could include passwords.
    pretty_exceptions_show_locals=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(naksha.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A versioned geospatial feature store and hub."""  # noqa: D401 - the help text


@app.command("version")
def show_version() -> None:
    """Print the version."""
    typer.echo(naksha.__version__)


@app.command()
def demo(
    storage: str = typer.Option(
        "file:demo.naksha",
        envvar="NAKSHA_STORAGE",
        help="Storage to write to: a file, or a URL such as postgresql:///maps.",
    ),
    schema: str = typer.Option("naksha_demo", help="PostgreSQL schema."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document instead."),
) -> None:
    """Edit a small town and show its history."""
    from naksha.cli.demo import demo as run_demo

    run_demo(storage, schema, as_json)


@app.command(
    add_help_option=False,  # the server handles --help itself
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def serve(context: typer.Context) -> None:
    """Start the hub server; `naksha serve --help` lists the settings."""
    from naksha.cli.failures import readable_errors

    with readable_errors(ends_soon=False):
        from naksha.cli.hub import run_server

        run_server(context.args)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sample(context: typer.Context) -> None:
    """Load a real edit history into the space `airports`; accepts the flags of `naksha serve`."""
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.sample import load_sample

        typer.echo(load_sample(context.args))


@app.command()
def token(
    app_id: str = typer.Argument(help="Application that the token identifies."),
    key: str = typer.Option(help="Signing key: secret:FILE or pem:FILE."),
    author: str | None = typer.Option(None, help="User on whose behalf the application acts."),
    realm: str = typer.Option("default", help="Realm that the token gives access to."),
    rights: str | None = typer.Option(
        None,
        help='Rights matrix, such as {"naksha": {"readFeatures": [{}]}}, or @FILE to read it '
        "from a file. Default: all rights, unless --role is used.",
    ),
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="Name of a role of the realm; repeatable."),
    ] = None,
    hours: float = typer.Option(1.0, min=0.001, help="Validity in hours."),
    key_id: str | None = typer.Option(None, help="Key id (`kid`)."),
) -> None:
    """Print a token, signed with a key that the server has."""
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.tokens import signed_token

        typer.echo(signed_token(app_id, key, author, realm, rights, roles or (), hours, key_id))


realms = typer.Typer(help="Realms of a hub, each with its own spaces, storages and rights.")
app.add_typer(realms, name="realm", no_args_is_help=True)


@realms.command(
    "create",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def create_realm(
    context: typer.Context, id: str = typer.Argument(help="Realm id: letters, digits, _ and -.")
) -> None:
    """Create a realm; accepts the flags of `naksha serve`, e.g. --data, --catalog, --storage."""
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.hub import make_realm

        typer.echo(make_realm(id, context.args))


@realms.command("list", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def list_realms(context: typer.Context) -> None:
    """List the realms with their status; accepts the flags of `naksha serve`."""
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.hub import realm_lines

        for line in realm_lines(context.args):
            typer.echo(line)


storages = typer.Typer(help="Storages, and their ids and numbers in state ids.")
app.add_typer(storages, name="storage", no_args_is_help=True)
Location = Annotated[
    str,
    typer.Argument(help="Such as file:town.naksha or postgresql:///maps.", metavar="LOCATION"),
]
Schema = Annotated[str | None, typer.Option(help="PostgreSQL schema.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@storages.command(
    "list", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def list_storages(context: typer.Context) -> None:
    """List the storages of a catalog; accepts the flags of `naksha serve`.

    Prints realm, name, id, number and location, one storage per line.
    """
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.storages import storage_lines

        for line in storage_lines(context.args):
            typer.echo(line)


@storages.command("show")
def show_storage(location: Location, schema: Schema = None, as_json: AsJson = False) -> None:
    """Print the id, the number and the former ids of a storage."""
    from naksha.cli.failures import readable_errors

    with readable_errors(as_json=as_json):
        from naksha.cli.storages import lines_of, storage_identity

        found = storage_identity(location, schema)
        typer.echo(json.dumps(found) if as_json else "\n".join(lines_of(found)))


@storages.command("fork")
def fork_storage(
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
    from naksha.cli.failures import readable_errors

    with readable_errors(as_json=as_json):
        from naksha.cli.storages import forked_storage, lines_of

        forked = forked_storage(location, schema, id)
        typer.echo(json.dumps(forked) if as_json else "\n".join(lines_of(forked)))


@storages.command("view")
def view_collection(location: Location, collection: str) -> None:
    """Add a view named like a collection to a file, to edit the collection with sqlite3."""
    from naksha.cli.failures import readable_errors

    with readable_errors():
        from naksha.cli.storages import add_view

        add_view(location, collection)


app.add_typer(
    typer.Typer(
        cls=JobGroup, help="Spark jobs; each runs in a separate process, Ctrl-C cancels it."
    ),
    name="job",
    no_args_is_help=True,
)

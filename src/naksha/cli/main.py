"""Root of the `naksha` command; every sub-command is one function."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

import naksha
from naksha.cli.configuration import connectors, spaces, subscriptions
from naksha.cli.diff import verb as diff
from naksha.cli.failures import print_error
from naksha.cli.jobs import JobGroup
from naksha.cli.operations import backups, doctor, upkeep
from naksha.cli.output import print_json
from naksha.cli.realms import realms
from naksha.cli.storages import AsJson, storages
from naksha.model.errors import InvalidArgument

_USAGE_ERROR: Final[Any] = typer.BadParameter.__base__
"""Base of the errors of wrong calls; typer does not export it."""


class _Root(TyperGroup):
    """The command; with --json, also a wrong call is one JSON document."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run the command."""
        given = sys.argv[1:] if args is None else [*args]
        if "--json" not in given:
            return super().main(given, *more, **options)
        try:
            code = super().main(given, *more, **options | {"standalone_mode": False})
        except _USAGE_ERROR as error:
            print_error(InvalidArgument(error.format_message()), as_json=True)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="naksha",
    cls=_Root,
    help="A versioned geospatial feature store and hub.",
    no_args_is_help=True,
    add_completion=False,
    # Local variables in a traceback could include passwords.
    pretty_exceptions_show_locals=False,
)


def _print(name: str, text: str, as_json: bool) -> None:
    if as_json:
        print_json({name: text})
    else:
        typer.echo(text)


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
def show_version(as_json: AsJson = False) -> None:
    """Print the version."""
    _print("version", naksha.__version__, as_json)


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
        from naksha.server.process.main import serve as run_server

        run_server(context.args, program="naksha serve")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sample(context: typer.Context, as_json: AsJson = False) -> None:
    """Load a real edit history into the space `airports`; accepts the flags of `naksha serve`."""
    from naksha.cli.failures import readable_errors

    with readable_errors(as_json=as_json):
        from naksha.cli.sample import load_sample

        _print("result", load_sample(context.args), as_json)


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
    as_json: AsJson = False,
) -> None:
    """Print a token, signed with a key that the server has."""
    from naksha.cli.failures import readable_errors

    with readable_errors(as_json=as_json):
        from naksha.cli.tokens import signed_token

        signed = signed_token(app_id, key, author, realm, rights, roles or (), hours, key_id)
        _print("token", signed, as_json)


for verbs in (diff, backups, doctor, upkeep):
    app.registered_commands += verbs.group.registered_commands
for group in (realms, storages, spaces, connectors, subscriptions):
    app.add_typer(group)
app.add_typer(
    typer.Typer(
        cls=JobGroup, help="Spark jobs; each runs in a separate process, Ctrl-C cancels it."
    ),
    name="job",
    no_args_is_help=True,
)

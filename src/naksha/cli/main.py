"""The root of the `naksha` command; every sub-command is one function."""

import typer

import naksha

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

"""The root of the `naksha` command; every sub-command is one function."""

import typer

import naksha

app = typer.Typer(
    name="naksha",
    help="A versioned geospatial feature store and hub.",
    no_args_is_help=True,
    add_completion=False,
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

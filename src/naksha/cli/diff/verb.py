"""The verb `diff` and its options."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from naksha.cli.output import print_json, running
from naksha.cli.storages import AsJson, Schema, check_not_served

group: Final = typer.Typer(name="", no_args_is_help=True)
_REF_HELP: Final = "A number, a tag, a branch, branch:number, a time such as 2026-01-31T12:00."


@group.command("diff")
def print_diff(
    storage: Annotated[
        str,
        typer.Option(envvar="NAKSHA_STORAGE", help="A file or URL, such as postgresql:///maps."),
    ],
    collection: Annotated[str, typer.Argument(metavar="COLLECTION")],
    old: Annotated[str, typer.Argument(metavar="FROM", help=f"The older version. {_REF_HELP}")],
    new: Annotated[str, typer.Argument(metavar="TO", help="The newer version, or HEAD.")],
    schema: Schema = None,
    authors: Annotated[
        list[str] | None,
        typer.Option("--author", help="Only features that this author changed; repeatable."),
    ] = None,
    bbox: Annotated[
        str | None,
        typer.Option(
            metavar="W,S,E,N",
            help="Only features that were in this box before a change, or are after it.",
        ),
    ] = None,
    map_path: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Write a map of the changes, one HTML file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the features of a collection that differ between two versions.

    With --map, write them as a map to one HTML file, which needs neither a hub nor a network.
    """
    from naksha.cli.diff import forms

    with running("naksha diff", as_json=as_json) as progress:
        check_not_served(storage)
        query = forms.query_from(authors, bbox)
        comparison = forms.Comparison(storage, schema, collection, (old, new), query)
        if map_path is not None:
            progress.phase(f"Writing {map_path}")
            counts = asyncio.run(forms.write_map(comparison, map_path))
            if as_json:
                print_json({"file": str(map_path), **counts})
            else:
                typer.echo(f"{map_path}: {forms.counts_text(counts)}")
        elif as_json:
            asyncio.run(forms.print_document(comparison))
        else:
            asyncio.run(forms.print_changes(comparison))

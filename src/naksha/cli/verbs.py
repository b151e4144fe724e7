"""Registration of operators' verbs: their common options, output and errors in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from naksha.cli.hub_client import HubClient, HubTarget, connected
from naksha.cli.output import Progress, print_object, print_table, running
from naksha.model.errors import InvalidArgument

_AS_JSON: Final = {
    "as_json": (Annotated[bool, typer.Option("--json", help="Print one JSON document.")], False)
}
_OF_CATALOG: Final = {
    name: (
        Annotated[str | None, typer.Option(f"--{name.replace('_', '-')}", help=help_text)],
        None,
    )
    for name, help_text in (
        ("config", "Configuration file of the hub, as of naksha serve."),
        ("data", "Data directory of the hub. [naksha-data]"),
        ("catalog", "Location of the hub's catalog."),
        ("realm_storage", "Location of the features of new realms."),
        ("realm_storage_options", "Options of that storage, as JSON."),
    )
}
_OF_HUB: Final = {
    "hub": (
        Annotated[
            str | None,
            typer.Option(
                envvar="NAKSHA_HUB",
                help="Address of a running hub; NAKSHA_TOKEN has the token. Default: the catalog "
                "of a hub that does not run, or that is in a database.",
            ),
        ],
        None,
    ),
    "is_insecure": (
        Annotated[
            bool,
            typer.Option("--insecure", help="Send the token to a hub over HTTP without TLS."),
        ],
        False,
    ),
    "realm": (
        Annotated[str | None, typer.Option(help="Realm, without --hub. [default]")],
        None,
    ),
}
Options = Mapping[str, tuple[Any, Any]]


class Verb(NamedTuple):
    """A verb that runs: where its hub is, how it prints, and its progress."""

    target: HubTarget
    as_json: bool
    progress: Progress
    typed: frozenset[str] = frozenset()
    """Parameters that are on the command line, not in the environment."""

    @contextmanager
    def connected(self) -> Iterator[HubClient]:
        """Return the client of the hub for the block."""
        with connected(self.target) as client:
            yield client

    @property
    def arguments(self) -> Sequence[str]:
        """Flags that find the hub's catalog."""
        return self.target.arguments

    def chosen_storage(self, storage: str | None) -> str | None:
        """Return the storage that the verb is about, or None: it is about a hub.

        Options on the command line take precedence over the environment.
        """
        named = [*self.arguments, *(["--hub"] if "hub" in self.typed else [])]
        if storage is None or not named:
            return storage
        if "storage" in self.typed:
            raise InvalidArgument(
                f"--storage cannot be combined with {named[0].partition('=')[0]}: name a storage "
                "or a hub",
                field="storage",
            )
        return None

    def print_table(self, rows: Sequence[Sequence[Any]], *columns: str) -> None:
        """Print rows in the form that was requested."""
        print_table(rows, columns, as_json=self.as_json)

    def print_object(self, value: Mapping[str, Any]) -> None:
        """Print an object in the form that was requested."""
        print_object(value, as_json=self.as_json)


def hub_verb(group: typer.Typer, name: str) -> Callable[[Callable[..., None]], Any]:
    """Register a verb of a hub, running or not: a function of a `Verb` and its own parameters."""
    return _registered(group, name, {**_OF_HUB, **_OF_CATALOG, **_AS_JSON})


def catalog_verb(group: typer.Typer, name: str) -> Callable[[Callable[..., None]], Any]:
    """Register a verb that opens the catalog of a hub."""
    return _registered(group, name, {**_OF_CATALOG, **_AS_JSON})


def json_argument(text: str, field: str) -> Any:
    """Parse an argument: JSON, or @FILE to read it from a file."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{text[1:]!r} cannot be read: {error}", field=field) from error
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{text!r:.80} is not valid JSON: {error}", field=field) from None


def _registered(
    group: typer.Typer, name: str, common: Options
) -> Callable[[Callable[..., None]], Any]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        program = f"naksha {group.info.name or ''} {name}".replace("  ", " ")

        def run(**options: Any) -> None:
            target = HubTarget(
                options.pop("hub", None),
                options.pop("realm", None),
                _flags(options),
                program,
                is_insecure=options.pop("is_insecure", False),
            )
            as_json = options.pop("as_json")
            typed = _typed(options.pop("context"))
            with running(program, as_json=as_json) as progress:
                function(Verb(target, as_json, progress, typed), **options)

        shared = [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for key, (annotation, default) in common.items()
        ]
        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own),
            *shared,
        ]
        run.__doc__ = function.__doc__
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        group.command(name)(run)
        return function

    return register


def _typed(context: typer.Context) -> frozenset[str]:
    """Return the names of the parameters that are on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(
        name for name, source in sources.items() if source and source.name == "COMMANDLINE"
    )


def _flags(options: dict[str, Any]) -> list[str]:
    """Take the settings of the hub out of the options, as flags of `naksha serve`."""
    found = []
    for name in _OF_CATALOG:
        value = options.pop(name, None)
        if value is not None:
            found.append(f"--{name.replace('_', '-')}={value}")
    return found

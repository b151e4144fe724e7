"""The commands `space`, `connector` and `subscription`, and those of `storage` on a hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import typer

from naksha.cli.hub_client import path_to
from naksha.cli.verbs import Verb, hub_verb, json_argument
from naksha.model.errors import InvalidArgument

Id = Annotated[str, typer.Argument(metavar="ID")]
Json = Annotated[str, typer.Argument(metavar="JSON", help="JSON, or @FILE.")]


class ConfigKind(NamedTuple):
    """A kind of configuration objects: its path in the API and the columns of its list."""

    noun: str
    columns: Sequence[tuple[str, str]]
    """Name and path of each column."""
    parameters: Mapping[str, str] = MappingProxyType({})

    @property
    def path(self) -> str:
        return path_to(f"{self.noun}s")


SPACE: Final = ConfigKind(
    "space",
    (("id", "id"), ("storage", "storage.id"), ("owner", "owner"), ("title", "title")),
    {"owner": "*"},
)
CONNECTOR: Final = ConfigKind(
    "connector",
    (("id", "id"), ("class", "className"), ("active", "active"), ("title", "title")),
)
SUBSCRIPTION: Final = ConfigKind(
    "subscription",
    (
        ("id", "id"),
        ("state", "status.state"),
        ("version", "status.version"),
        ("instance", "status.instance"),
        ("reason", "status.stateReason"),
    ),
)
STORAGE: Final = ConfigKind(
    "storage",
    (
        ("name", "id"),
        ("id", "identity.id"),
        ("number", "identity.number"),
        ("location", "properties.location"),
    ),
)

spaces: Final = typer.Typer(name="space", help="Spaces of a hub.", no_args_is_help=True)
connectors: Final = typer.Typer(name="connector", help="Connectors of a hub.", no_args_is_help=True)
subscriptions: Final = typer.Typer(
    name="subscription", help="Subscriptions of a hub and their positions.", no_args_is_help=True
)


def list_objects(verb: Verb, kind: ConfigKind) -> None:
    """Print the objects of a kind."""
    with verb.connected() as client:
        found = client.request("GET", kind.path, parameters=kind.parameters)
    rows = [[_member(one, path) for _, path in kind.columns] for one in found]
    verb.print_table(rows, *(name for name, _ in kind.columns))


def show_object(verb: Verb, kind: ConfigKind, id: str) -> None:
    """Print one object."""
    with verb.connected() as client:
        verb.print_object(client.request("GET", path_to(f"{kind.noun}s", id)))


def remove_object(
    verb: Verb, kind: ConfigKind, id: str, parameters: Mapping[str, str] | None = None
) -> None:
    """Remove an object, and print it."""
    with verb.connected() as client:
        verb.print_object(
            client.request("DELETE", path_to(f"{kind.noun}s", id), parameters=parameters)
        )


def _post(verb: Verb, path: str, body: Any) -> None:
    with verb.connected() as client:
        verb.print_object(client.request("POST", path, body))


def _add_common(group: typer.Typer, kind: ConfigKind) -> None:
    """Add the verbs that all kinds have: list, show, add and change."""

    def list_all(verb: Verb) -> None:
        list_objects(verb, kind)

    def show(verb: Verb, id: Id) -> None:
        show_object(verb, kind, id)

    def add(verb: Verb, object: Json) -> None:  # noqa: A002 - its name in the help text
        _post(verb, kind.path, json_argument(object, kind.noun))

    def change(verb: Verb, id: Id, patch: Json) -> None:
        with verb.connected() as client:
            body = json_argument(patch, "patch")
            verb.print_object(client.request("PATCH", path_to(f"{kind.noun}s", id), body))

    for name, function, text in (
        ("list", list_all, f"List the {kind.noun}s of a realm."),
        ("show", show, f"Print a {kind.noun}."),
        ("add", add, f"Create a {kind.noun} from a JSON object with its id."),
        ("change", change, f"Change a {kind.noun} by a JSON Merge Patch."),
    ):
        function.__doc__ = text
        hub_verb(group, name)(function)


for _group, _kind in (
    (spaces, SPACE),
    (connectors, CONNECTOR),
    (subscriptions, SUBSCRIPTION),
):
    _add_common(_group, _kind)


@hub_verb(spaces, "remove")
def remove_space(
    verb: Verb,
    id: Id,
    keep_collection: Annotated[
        bool, typer.Option("--keep-collection", help="Keep the collection with its features.")
    ] = False,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Confirm that the features are deleted.")
    ] = False,
) -> None:
    """Remove a space; its collection is dropped unless another space is stored in it."""
    if not (is_sure or keep_collection):
        raise InvalidArgument(
            f"Removing the space {id!r} drops its collection with all features; pass --yes to "
            "confirm, or --keep-collection",
            field="yes",
        )
    remove_object(verb, SPACE, id, {"keepCollection": "true"} if keep_collection else None)


@hub_verb(connectors, "remove")
def remove_connector(verb: Verb, id: Id) -> None:
    """Remove a connector that no space uses."""
    remove_object(verb, CONNECTOR, id)


@hub_verb(subscriptions, "remove")
def remove_subscription(verb: Verb, id: Id) -> None:
    """Remove a subscription."""
    remove_object(verb, SUBSCRIPTION, id)


@hub_verb(subscriptions, "move")
def move_subscription(
    verb: Verb,
    id: Id,
    instance: Annotated[
        str | None, typer.Argument(help="Id of the instance. Default: list them.")
    ] = None,
) -> None:
    """Move a subscription to another instance of the hub."""
    if instance is not None:
        _post(verb, path_to("subscriptions", id, "move"), {"instance": instance})
        return
    with verb.connected() as client:
        found = client.request("GET", path_to("instances"))
    # Without --hub, this process is an instance, too, and ends.
    known = [one["id"] for one in found if verb.target.url or not one["self"]]
    raise InvalidArgument(
        f"Name the instance that is to deliver; the instances are {', '.join(known) or '(none)'}",
        field="instance",
    )


@hub_verb(subscriptions, "reset")
def reset_subscription(
    verb: Verb,
    id: Id,
    since: Annotated[str, typer.Argument(help="Version number, `now` or `beginning`.")],
) -> None:
    """Continue a subscription after another version, to replay or to skip changes."""
    _post(verb, path_to("subscriptions", id, "reset"), {"since": since})


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value

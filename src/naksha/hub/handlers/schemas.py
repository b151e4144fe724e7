"""JSON Schemas (draft 2020-12) of connectors: checked once, compiled once, and never fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from naksha.model.errors import InvalidArgument
from naksha.model.limits import JSON_SCHEMA_BYTES_MAX
from naksha.model.merge import pointer

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES: Final = ("$ref", "$dynamicRef")
_SAMPLE: Final[dict[str, Any]] = {"type": "Feature", "id": "", "geometry": None, "properties": {}}


class Schema:
    """A schema for whole features, without the namespace of the storage."""

    def __init__(self, schema: object, field: str) -> None:
        _check(schema, field)
        # A registry of its own: the default one would fetch what a reference names.
        registry: Registry[Any] = Registry()
        self._validator = Draft202012Validator(
            schema,  # type: ignore[arg-type]
            registry=registry,
            format_checker=Draft202012Validator.FORMAT_CHECKER,
        )
        try:
            list(self.problems(_SAMPLE))
        except RecursionError:
            raise InvalidArgument("The schema refers to itself without end", field=field) from None

    def problems(self, feature: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Places in a feature that are wrong, as JSON pointers, and why."""
        for error in self._validator.iter_errors(feature):
            path = ""
            for name in error.absolute_path:
                path = pointer(path, str(name))
            yield path, error.message


def _check(schema: object, field: str) -> None:
    if not isinstance(schema, Mapping | bool):
        raise InvalidArgument("A schema is an object", field=field)
    if len(msgspec.json.encode(schema)) > JSON_SCHEMA_BYTES_MAX:
        raise InvalidArgument(f"A schema has at most {JSON_SCHEMA_BYTES_MAX} bytes", field=field)
    if isinstance(schema, bool):
        return
    if schema.get("$schema", DRAFT) != DRAFT:
        raise InvalidArgument(f"The schema must be of {DRAFT}", field=f"{field}.$schema")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = ".".join(map(str, error.absolute_path))
        raise InvalidArgument(
            f"It is no JSON Schema: {error.message:.300}", field=f"{field}.{path}".rstrip(".")
        ) from None
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(resource)
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise InvalidArgument(
                f"{reference!r:.80} is somewhere else; a schema refers to its own parts only"
                " (#/$defs/…), nothing is fetched",
                field=f"{field}.$ref",
            )
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise InvalidArgument(
                f"The schema has nothing at {reference!r:.80}", field=f"{field}.$ref"
            ) from None


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for name, value in schema.items():
            if name in _REFERENCES and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _references(part)

"""JSON Schemas (draft 2020-12 or 07) of connectors: checked once, compiled once, and never fetched.

Patterns are matched in a time that grows with the text and no faster, so none of them can hold up
everybody else; look-ahead and references back, which cannot be matched so, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from jsonschema_rs import (
    Draft7Validator,
    Draft202012Validator,
    RegexOptions,
    ValidationError,
    meta,
)

from naksha.model.errors import InvalidArgument
from naksha.model.limits import JSON_SCHEMA_BYTES_MAX
from naksha.model.merge import pointer

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_VALIDATORS: Final = {DRAFT: Draft202012Validator, DRAFT_7: Draft7Validator}
_REFERENCES: Final = ("$ref", "$dynamicRef")


class Schema:
    """A schema for whole features, without the namespace of the storage."""

    def __init__(self, schema: object, field: str) -> None:
        _check(schema, field)
        try:
            self._validator = _VALIDATORS[_draft_of(schema)](
                cast(dict[str, Any], schema),
                validate_formats=True,
                pattern_options=RegexOptions(),
            )
        except ValidationError as error:
            raise _no_schema(error, field) from None

    def problems(self, feature: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Places in a feature that are wrong, as JSON pointers, and why."""
        for error in self._validator.iter_errors(feature):
            path = ""
            for name in error.instance_path:
                path = pointer(path, str(name))
            yield path, error.message


def _draft_of(schema: object) -> str:
    named = schema.get("$schema", DRAFT) if isinstance(schema, dict) else DRAFT
    return str(named).removesuffix("#")


def _check(schema: object, field: str) -> None:
    if not isinstance(schema, dict | bool):
        raise InvalidArgument("A schema is an object", field=field)
    if len(msgspec.json.encode(schema)) > JSON_SCHEMA_BYTES_MAX:
        raise InvalidArgument(f"A schema has at most {JSON_SCHEMA_BYTES_MAX} bytes", field=field)
    if isinstance(schema, bool):
        return
    if _draft_of(schema) not in _VALIDATORS:
        raise InvalidArgument(
            f"The schema must be of {' or '.join(_VALIDATORS)}", field=f"{field}.$schema"
        )
    # Before anything is made of it, which would fetch what a reference names.
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise InvalidArgument(
                f"{reference!r:.80} is somewhere else; a schema refers to its own parts only"
                " (#/$defs/…), nothing is fetched",
                field=f"{field}.$ref",
            )
    try:
        meta.validate({"$schema": DRAFT, **schema})
    except ValidationError as error:
        raise _no_schema(error, field) from None


def _no_schema(error: ValidationError, field: str) -> InvalidArgument:
    path = ".".join(map(str, error.instance_path))
    return InvalidArgument(
        f"It is no JSON Schema that can be used here: {error.message:.300}",
        field=f"{field}.{path}".rstrip("."),
    )


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

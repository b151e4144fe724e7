"""JSON Schemas (draft 2020-12 or 07) of connectors: checked and compiled once, never fetched.

Patterns are matched in linear time, so none can block the hub; look-ahead and back-references,
which do not allow that, are refused.
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
from naksha.model.value_text import value_text

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_VALIDATORS: Final = {_DRAFT: Draft202012Validator, _DRAFT_7: Draft7Validator}
_REFERENCES: Final = ("$ref", "$dynamicRef")


class FeatureSchema:
    """Compiled schema for whole features without the storage's namespace."""

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
        """Yield each violation of a feature as a JSON pointer and a message."""
        for error in self._validator.iter_errors(feature):
            path = ""
            for name in error.instance_path:
                path = pointer(path, str(name))
            yield path, error.message


def _draft_of(schema: object) -> str:
    named = schema.get("$schema", _DRAFT) if isinstance(schema, dict) else _DRAFT
    return str(named).removesuffix("#")


def _check(schema: object, field: str) -> None:
    if not isinstance(schema, dict | bool):
        raise InvalidArgument(
            f"{field} must be a JSON Schema: an object or a boolean, not {value_text(schema)}",
            field=field,
        )
    if len(msgspec.json.encode(schema)) > JSON_SCHEMA_BYTES_MAX:
        raise InvalidArgument(
            f"The JSON Schema has more than {JSON_SCHEMA_BYTES_MAX} bytes; shorten it", field=field
        )
    if isinstance(schema, bool):
        return
    if _draft_of(schema) not in _VALIDATORS:
        raise InvalidArgument(
            f"The JSON Schema must declare $schema {' or '.join(_VALIDATORS)}",
            field=f"{field}.$schema",
        )
    # Check references before compiling: the compiler would fetch remote ones.
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise InvalidArgument(
                f"The $ref {reference!r:.80} is not local; a schema may only refer to its own parts"
                " (#/$defs/…), because nothing is fetched",
                field=f"{field}.$ref",
            )
    try:
        meta.validate({"$schema": _DRAFT, **schema})
    except ValidationError as error:
        raise _no_schema(error, field) from None


def _no_schema(error: ValidationError, field: str) -> InvalidArgument:
    path = ".".join(map(str, error.instance_path))
    return InvalidArgument(
        f"The JSON Schema is invalid or not supported: {error.message:.300}",
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

"""The public shape of a struct, a help text and an OpenAPI document, as sorted lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

from msgspec import inspect

T = TypeVar("T")
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_METHODS = ("get", "put", "post", "patch", "delete")


def below(kind: type[T]) -> Iterator[type[T]]:
    """A class and all classes below it."""
    yield kind
    for one in kind.__subclasses__():
        yield from below(one)


def returned_by(function: Callable[..., object]) -> Any:
    """The type of what a function returns."""
    return get_type_hints(function)["return"]


def flags_in(text: str) -> list[str]:
    """The flags of a help text."""
    return sorted(set(_FLAG.findall(text)))


# ---- Structs -------------------------------------------------------------------------------------


def members(kind: Any, known: Mapping[Any, str]) -> list[str]:
    """`path: type` for everything in a struct, by the names that JSON has. A known
    struct inside of it is represented by its name in angle brackets."""
    return sorted(set(_lines(inspect.type_info(kind), "", known, ())))


def _lines(
    kind: inspect.Type, path: str, known: Mapping[Any, str], above: tuple[Any, ...]
) -> Iterator[str]:
    if isinstance(kind, inspect.StructType):
        yield from _struct(kind, path, known, above)
        return
    inner = list(_inside(kind))
    for more, one in inner:
        yield from _lines(one, path + more, known, above)
    if not inner and not isinstance(kind, inspect.NoneType):
        yield f"{path}: {_name(kind)}"


def _inside(kind: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """The types in a type, each with what it adds to the path."""
    match kind:
        case inspect.Metadata(type=inner):
            yield "", inner
        case inspect.UnionType(types=types):
            yield from (("", one) for one in types)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield "[]", item
        case inspect.TupleType(item_types=items):
            yield from ((f"[{place}]", one) for place, one in enumerate(items))
        case inspect.NamedTupleType(fields=fields):
            yield from ((f"[{place}]", one.type) for place, one in enumerate(fields))
        case inspect.DictType(value_type=value):
            yield ".*", value


def _name(kind: inspect.Type) -> str:
    """Return the name of a plain type, or the values of an enumeration."""
    if isinstance(kind, inspect.EnumType):
        return " | ".join(sorted(str(one.value) for one in kind.cls))
    if isinstance(kind, inspect.LiteralType):
        return " | ".join(sorted(map(str, kind.values)))
    return type(kind).__name__.removesuffix("Type").lower()


def _struct(
    kind: inspect.StructType, path: str, known: Mapping[Any, str], above: tuple[Any, ...]
) -> Iterator[str]:
    if path and kind.cls in known:
        yield f"{path}: <{known[kind.cls]}>"
        return
    if kind.cls in above:
        yield f"{path}: <as above>"
        return
    above = (*above, kind.cls)
    first = 0
    if kind.tag is not None:
        first = 1
        where = f"{path}[0]" if kind.array_like else f"{path}.{kind.tag_field}"
        yield f"{where.removeprefix('.')} = {kind.tag}"
    for place, field in enumerate(kind.fields, first):
        where = f"{path}[{place}]" if kind.array_like else f"{path}.{field.encode_name}"
        yield from _lines(field.type, where.removeprefix("."), known, above)
    if not kind.fields and kind.tag is None:
        yield f"{path}: an empty object"


# ---- OpenAPI -------------------------------------------------------------------------------------


def rest(document: dict[str, Any]) -> dict[str, Any]:
    """Operations with their parameters, bodies and answers, without texts; names of components
    are left out, their members are not."""
    schemas = document["components"]["schemas"]
    return {
        "objects": sorted(
            {", ".join(_properties(one, schemas)) for one in schemas.values()} - {""}
        ),
        "enumerations": sorted(
            {" | ".join(map(str, one["enum"])) for one in schemas.values() if "enum" in one}
        ),
        "operations": {
            f"{path} {method.upper()}": _operation(operations[method], schemas)
            for path, operations in document["paths"].items()
            for method in _METHODS
            if method in operations
        },
    }


def _operation(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "answers": {
            status: _contents(answer.get("content", {}), schemas)
            for status, answer in operation["responses"].items()
            if int(status) < 400
        },
        "errors": " ".join(sorted(one for one in operation["responses"] if int(one) >= 400)),
        "id": operation.get("operationId"),
        "parameters": sorted(_parameter(one) for one in operation.get("parameters", ())),
        **({"body": _contents(body, schemas)} if body else {}),
    }


def _parameter(one: dict[str, Any]) -> str:
    return f"{one['in']} {one['name']}{' required' if one.get('required') else ''}"


def _contents(content: dict[str, Any], schemas: dict[str, Any]) -> dict[str, str]:
    return {
        kind: ", ".join(_properties(one.get("schema", {}), schemas))
        for kind, one in content.items()
    }


def _properties(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The members of an object, or of each object in a list or a choice."""
    if "$ref" in schema:
        return _properties(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    found = set(schema.get("properties", ()))
    for name in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(name, ()):
            found |= set(_properties(one, schemas))
    if "items" in schema:
        found |= set(_properties(schema["items"], schemas))
    return sorted(found)

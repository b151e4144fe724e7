"""Transformation steps: small operations on paths, checked when they are configured.

    {"op": "rename",   "from": "properties.maxSpeed", "to": "properties.speed"}
    {"op": "copy",     "from": "properties.name", "to": "properties.label"}
    {"op": "set",      "path": "properties.source", "value": "survey"}
    {"op": "default",  "path": "properties.lanes", "value": 1}
    {"op": "remove",   "path": "properties.internal"}
    {"op": "convert",  "path": "properties.speed", "to": "number"}
    {"op": "template", "path": "properties.label", "template": "{properties.name} ({id})"}

A missing value is not renamed, copied or converted; a template that uses one changes nothing.
`convert` supports string, number, integer and boolean; an unconvertible value is an error on write
and left unchanged on read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from naksha.hub.handlers.paths import Path, get_at, path_of, set_at, writable_path
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported
from naksha.model.json_rules import json_problem
from naksha.model.merge import ABSENT
from naksha.model.value_text import value_text

Feature = dict[str, Any]
_PLACE: Final = re.compile(r"\{([^{}]+)\}")
_TRUE: Final = frozenset({"true", "yes", "1"})
_FALSE: Final = frozenset({"false", "no", "0"})


class Unconvertible(Exception):
    """A value cannot be converted to the requested type."""


class TransformStep(NamedTuple):
    """One step: its function, the path it changes, and the source path if it moves a value."""

    op: str
    path: Path
    source: Path | None
    apply: Callable[[Feature], Feature]

    @property
    def needs_whole(self) -> bool:
        """Whether the step tests for missing values, which a patch cannot show."""
        return self.op in ("default", "template")


def steps_of(value: object, field: str) -> tuple[TransformStep, ...]:
    """Parse the configured steps.

    Raises:
        InvalidArgument: A step is not valid; the field names it.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > limits.TRANSFORM_STEPS_MAX:
        raise InvalidArgument(
            f"{field} must be an array of at most {limits.TRANSFORM_STEPS_MAX} steps", field=field
        )
    return tuple(_step(config, f"{field}[{index}]") for index, config in enumerate(value))


def _step(config: object, field: str) -> TransformStep:
    if not isinstance(config, Mapping):
        raise InvalidArgument(
            f'{field} must be an object with the member "op": one of {", ".join(_STEPS)}',
            field=field,
        )
    op = config.get("op")
    make = _STEPS.get(op) if isinstance(op, str) else None
    if make is None:
        raise InvalidArgument(
            f"{field}.op is {op!r:.40}, which is not an operation; use one of {', '.join(_STEPS)}",
            field=f"{field}.op",
        )
    return make(config, field)


def _changed_path(config: Mapping[str, Any], name: str, field: str) -> Path:
    path = writable_path(config.get(name), f"{field}.{name}")
    if path[0] in ("geometry", "bbox"):
        raise InvalidArgument(
            f"{field}.{name} is {'.'.join(path)!r:.80}, but a step cannot change the geometry or "
            "the bbox",
            field=f"{field}.{name}",
        )
    return path


def _value(config: Mapping[str, Any], field: str) -> Any:
    if "value" not in config:
        raise InvalidArgument(
            f"{field}.value is missing: this operation requires it", field=f"{field}.value"
        )
    problem = json_problem(config["value"])
    if problem is not None:
        raise InvalidArgument(
            problem.below(f"{field}.value").sentence(), field=f"{field}.value{problem.path}"
        )
    return config["value"]


def _rename(config: Mapping[str, Any], field: str) -> TransformStep:
    source = _changed_path(config, "from", field)
    path = _changed_path(config, "to", field)
    if overlap(source, path):
        raise InvalidArgument(
            f"{field}.from and {field}.to overlap: neither path may contain the other",
            field=f"{field}.to",
        )

    def apply(feature: Feature) -> Feature:
        value = get_at(feature, source)
        if value is ABSENT:
            return feature
        return set_at(set_at(feature, source, ABSENT), path, value)

    return TransformStep("rename", path, source, apply)


def _copy(config: Mapping[str, Any], field: str) -> TransformStep:
    source = path_of(config.get("from"), f"{field}.from")
    path = _changed_path(config, "to", field)

    def apply(feature: Feature) -> Feature:
        value = get_at(feature, source)
        return feature if value is ABSENT else set_at(feature, path, value)

    return TransformStep("copy", path, source, apply)


def _set(config: Mapping[str, Any], field: str) -> TransformStep:
    path, value = _changed_path(config, "path", field), _value(config, field)
    return TransformStep("set", path, None, lambda feature: set_at(feature, path, value))


def _default(config: Mapping[str, Any], field: str) -> TransformStep:
    path, value = _changed_path(config, "path", field), _value(config, field)

    def apply(feature: Feature) -> Feature:
        return set_at(feature, path, value) if get_at(feature, path) is ABSENT else feature

    return TransformStep("default", path, None, apply)


def _remove(config: Mapping[str, Any], field: str) -> TransformStep:
    path = _changed_path(config, "path", field)
    return TransformStep("remove", path, None, lambda feature: set_at(feature, path, ABSENT))


def _convert(config: Mapping[str, Any], field: str) -> TransformStep:
    path = _changed_path(config, "path", field)
    name = config.get("to")
    convert = _CONVERSIONS.get(name) if isinstance(name, str) else None
    if convert is None:
        raise InvalidArgument(
            f"{field}.to is {name!r:.40}, which is not a type; use one of "
            f"{', '.join(_CONVERSIONS)}",
            field=f"{field}.to",
        )

    def apply(feature: Feature) -> Feature:
        value = get_at(feature, path)
        if value is ABSENT or value is None:
            return feature
        try:
            return set_at(feature, path, convert(value))
        except (ValueError, OverflowError) as error:
            raise Unconvertible(f"{'.'.join(path)}: {value!r:.60} is not a valid {name}") from error

    return TransformStep("convert", path, None, apply)


def _template(config: Mapping[str, Any], field: str) -> TransformStep:
    path = _changed_path(config, "path", field)
    text = config.get("template")
    if not isinstance(text, str):
        raise InvalidArgument(
            f"{field}.template must be a string, not {value_text(text)}",
            field=f"{field}.template",
        )
    pieces = _PLACE.split(text)
    if any("{" in piece or "}" in piece for piece in pieces):
        raise InvalidArgument(
            f"{field}.template is {text!r:.80}, which has an unmatched brace",
            field=f"{field}.template",
        )
    paths = [path_of(piece, f"{field}.template") for piece in pieces[1::2]]

    def apply(feature: Feature) -> Feature:
        values = [get_at(feature, each) for each in paths]
        if any(value is ABSENT or isinstance(value, dict | list) for value in values):
            return feature
        texts = [piece + _text(value) for piece, value in zip(pieces[::2], values, strict=False)]
        return set_at(feature, path, "".join([*texts, pieces[-1]]))

    return TransformStep("template", path, None, apply)


_STEPS: Final[dict[str, Callable[[Mapping[str, Any], str], TransformStep]]] = {
    "rename": _rename,
    "copy": _copy,
    "set": _set,
    "default": _default,
    "remove": _remove,
    "convert": _convert,
    "template": _template,
}


# ---- Values ----------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise ValueError
    return str(value)


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    if not isinstance(value, str):
        return value
    number = float(value)
    if number in (float("inf"), float("-inf")) or number != number:
        raise ValueError
    return int(value) if re.fullmatch(r"[+-]?[0-9]+", value.strip()) else number


def _integer(value: Any) -> int:
    number = _number(value)
    if int(number) != number:
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if isinstance(value, str | int) and text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _text,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
}


# ---- Queries ---------------------------------------------------------------------------------


def overlap(one: Path, other: Path) -> bool:
    """Whether the paths are equal or one contains the other."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def stored_path(steps: Sequence[TransformStep], path: Path) -> Path:
    """Return where the value is stored that readers see at a path.

    Raises:
        NotSupported: The value is created or changed on read.
    """
    for step in reversed(steps):
        if step.op == "rename" and step.source is not None:
            if path[: len(step.path)] == step.path:
                path = step.source + path[len(step.path) :]
                continue
            if not (overlap(path, step.path) or overlap(path, step.source)):
                continue
        elif not overlap(path, step.path):
            continue
        raise NotSupported(
            f"{'.'.join(path)} cannot be queried here: the space changes it on read ({step.op});"
            " query the space that it is derived from",
            field=".".join(path),
        )
    return path

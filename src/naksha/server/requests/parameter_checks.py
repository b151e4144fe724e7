"""Reject query parameters and headers that an endpoint must not ignore.

Unknown parameters are ignored, since every client adds some of its own, and so are parameters about
the presentation (`clip`, `skipCache`, `selection`). But an endpoint that ignored a filter, a lock
or a dry run would return, overwrite or delete more than the client meant. Therefore a parameter
that any endpoint declares is rejected by all endpoints that do not declare it, unless it is one of
`PRESENTATION`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic.fields import FieldInfo
from starlette.types import Scope

from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.model.errors import InvalidArgument
from naksha.server.routing.binding import HEADER, QUERY
from naksha.server.routing.dispatch import Endpoint

PRESENTATION: Final = frozenset(
    [
        *("clip", "clustering", "force2D", "margin", "mode", "selection", "tweaks", "vizSampling"),
        *("detailed", "fastMode", "newestFirst", "skipCache", "wait"),
        *("includeConnectors", "includeCounts", "includeRights", "includeSystemTags"),
    ]
)
"""Parameters about the form of a response; `clustering` includes `clustering.property` etc."""
PAGE_SIZE: Final = "limit"
"""Presentation for a read; a write that ignored a limit would change more features."""
OPERATORS: Final = "x-operators"
"""OpenAPI extension: the parameter accepts other operators than `=`."""
PROPERTIES: Final = "propertyQuery"
"""Declared by endpoints that take conditions on properties, which have user-defined names."""
_PREFIXES: Final = ("p.", "f.", "properties.")
_OPERATOR: Final = re.compile("[<>!@^]")
_OFF: Final = frozenset({"false", "0", "no", "off"})
_ON: Final = frozenset({"true", "1", "yes", "on"})
_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("conflictDetection", "dryRun", "eraseContent"), _OFF),
    **dict.fromkeys(("dropped", "keepCollection", "squashed"), _OFF),
    **dict.fromkeys(("check", "transactional"), _ON),
    "context": frozenset({"default"}),
}
"""Values that have no effect on any endpoint."""
_MAY_BE_EMPTY: Final = frozenset(
    [
        *("version", "versionRef", "handle", "pageToken", "since", "after"),
        *("addTags", "removeTags", "prefixId", "dryRun"),
    ]
)
"""Parameters that do not filter, or that document the meaning of an empty value."""
LOCKS: Final = ("If-Match", "If-None-Match", "If-Unmodified-Since")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _Supported(NamedTuple):
    """Names that an endpoint declares."""

    parameters: frozenset[str]
    compared: frozenset[str]
    locks: frozenset[str]


class _SentParameter(NamedTuple):
    """A parameter of a request; `base` is its name without the operator."""

    name: str
    base: str
    is_empty: bool


class ParameterChecks:
    """Check of a request before its endpoint binds the parameters."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        """Collect what the endpoints of the application declare."""
        self._supported = {_key(one): _supported_by(one) for one in endpoints}
        known = frozenset[str]().union(*(one.parameters for one in self._supported.values()))
        self._guards = {name.lower(): name for name in known if not _is_presentation(name)}

    def __call__(self, endpoint: Endpoint, scope: Scope) -> None:
        """Raise InvalidArgument if the endpoint would ignore a parameter that it must not."""
        raw, is_read = scope["query_string"], scope["method"] in _READS
        sent = list(self._sent(raw, is_read=is_read)) if raw else []
        locks = [] if is_read else _locks_in(scope)
        if not sent and not locks:
            return
        supported = self._supported[_key(endpoint)]
        title = f"{scope['method']} {endpoint.path}"
        for name, base, is_empty in sent:
            if name not in supported.parameters and base not in supported.compared:
                raise _unsupported(title, f"parameter {name!r:.64}", name)
            if is_empty:
                raise InvalidArgument(
                    f'Parameter "{name:.64}" is empty; pass a value or omit it', field=name
                )
        for header in locks:
            if header not in supported.locks:
                raise _unsupported(title, f"header {header}", header)

    def _sent(self, raw: bytes, *, is_read: bool) -> Iterator[_SentParameter]:
        """Yield the parameters of a query string that the endpoint must support."""
        for pair in raw_pairs(raw):
            text, _, value = pair.partition("=")
            name = decoded(text, "query")
            if name.startswith(_PREFIXES):
                yield _SentParameter(name, PROPERTIES, is_empty=False)
                continue
            base = _OPERATOR.split(name, maxsplit=1)[0]
            # Case-insensitive: a misspelt `dryrun` must not be ignored as unknown.
            guard = self._guards.get(base.lower())
            if guard is None or (guard == PAGE_SIZE and is_read):
                continue
            if value.lower() not in _NEUTRAL.get(name, ()):
                filters = guard not in _MAY_BE_EMPTY and name == base
                yield _SentParameter(name, base, filters and _is_empty(guard, value))


def _is_presentation(name: str) -> bool:
    """Return whether every endpoint may ignore a parameter."""
    return name.partition(".")[0] in PRESENTATION


def _is_empty(name: str, value: str) -> bool:
    """Return whether a list has no values; an id can be an encoded comma, a tag has no `+`."""
    text = value if name == "id" else decoded(value, name, plus_is_space=False)
    return not text.strip(",+" if name == "tags" else ",")


def _unsupported(title: str, what: str, field: str) -> InvalidArgument:
    return InvalidArgument(
        f"{title} does not support the {what}; remove it, since ignoring it could return or "
        "change too much",
        field=field,
    )


def _locks_in(scope: Scope) -> list[str]:
    names = {name for name, _ in scope["headers"]}
    return [lock for lock in LOCKS if lock.lower().encode() in names]


def _key(endpoint: Endpoint) -> tuple[str, str]:
    return endpoint.declared.method, endpoint.declared.path


def _supported_by(endpoint: Endpoint) -> _Supported:
    groups = [one for binding in endpoint.binding.everything() for one in binding.groups]
    declared = {
        name: _has_operators(field)
        for group in groups
        if group.source == QUERY
        for name, field in group.aliases
    }
    for parameter in endpoint.declared.openapi.get("parameters", []):
        if parameter["in"] == "query":
            declared[parameter["name"]] = OPERATORS in parameter
    compared = {name for name, has_operators in declared.items() if has_operators}
    if PROPERTIES in declared:
        compared.add(PROPERTIES)
    locks = {name for group in groups if group.source == HEADER for name, _ in group.aliases}
    if 304 in endpoint.declared.responses:
        locks.add("If-None-Match")  # a POST that only reads
    return _Supported(frozenset(declared), frozenset(compared), frozenset(locks))


def _has_operators(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and OPERATORS in extra

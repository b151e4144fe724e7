"""Every endpoint × every parameter that any endpoint declares: declared, presentation, or 400."""

import asyncio
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from starlette.types import Scope

from naksha.model.errors import InvalidArgument
from naksha.server.app import create_app
from naksha.server.process.settings import ServerSettings
from naksha.server.requests.parameter_checks import LOCKS, PAGE_SIZE, PROPERTIES, ParameterChecks
from naksha.server.routes.table import ROUTES
from naksha.server.routing.dispatch import Endpoint

PRESENTATION = re.compile(
    r"clip|clustering(\..+)?|force2D|margin|mode|selection|tweaks(\..+)?|vizSampling"
    r"|detailed|fastMode|newestFirst|skipCache|wait|include(Connectors|Counts|Rights|SystemTags)"
)
"""Written out again: who adds one changes the test deliberately."""
Operation = tuple[str, str, frozenset[str], frozenset[str]]


@pytest.fixture(scope="module")
def operations() -> list[Operation]:
    """Method, path, declared query parameters and declared headers, from the OpenAPI document."""
    document = create_app(ServerSettings()).openapi()
    return list(_operations(document))


def _operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            names: dict[str, set[str]] = {"query": set(), "header": set(), "path": set()}
            for parameter in one.get("parameters", []):
                names[parameter["in"]].add(parameter["name"])
            if "304" in one["responses"]:
                names["header"].add("If-None-Match")
            yield method.upper(), path, frozenset(names["query"]), frozenset(names["header"])


@cache
def _application() -> tuple[list[Endpoint], ParameterChecks]:
    endpoints = [Endpoint.of(one) for routes in ROUTES for one in routes.router.endpoints]
    return endpoints, ParameterChecks(endpoints)


def _refused(method: str, path: str, query: str = "", header: str = "") -> str | None:
    """The field that the check refuses; None if the endpoint would run."""
    endpoints, checks = _application()
    sent = re.sub(r"\{[^}]*\}", "1", path)
    endpoint = next(
        one for one in endpoints if one.declared.method == method and one.pattern.match(sent)
    )
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": sent,
        "query_string": query.encode(),
        "headers": [(header.lower().encode(), b"*")] if header else [],
    }
    try:
        checks(endpoint, scope)
    except InvalidArgument as error:
        return error.field
    return None


def test_a_known_parameter_is_declared_or_presentation_or_refused(
    operations: list[Operation],
) -> None:
    known = frozenset[str]().union(*(declared for _, _, declared, _ in operations))
    assert len(known) > 60
    assert len(operations) > 80
    wrong = []

    async def walk() -> None:
        for method, path, declared, _ in operations:
            for name in known:
                sent = "p.kind" if name == PROPERTIES else name
                ignored = PRESENTATION.fullmatch(name) or (name == PAGE_SIZE and method == "GET")
                expected = None if name in declared or ignored else sent
                if _refused(method, path, f"{sent}=7") != expected:
                    wrong.append((method, path, name, expected))

    asyncio.run(walk())
    assert not wrong, wrong


def test_a_lock_in_a_header_is_declared_or_refused(operations: list[Operation]) -> None:
    async def walk() -> list[Any]:
        return [
            (method, path, header)
            for method, path, _, headers in operations
            for header in LOCKS
            if _refused(method, path, header=header)
            != (None if method == "GET" or header in headers else header)
        ]

    assert asyncio.run(walk()) == []


@pytest.mark.parametrize(
    ("request_line", "field"),
    [
        ("DELETE /hub/spaces/s?dryrun=true", "dryrun"),
        ("DELETE /hub/spaces/s/features?id=a&TAGS=x", "TAGS"),
        ("DELETE /hub/spaces/s/features?id=a&dryRun=false", None),
        ("DELETE /hub/spaces/s/features?id=a&limit=1", "limit"),
        ("GET /hub/spaces/s/search?author!=x", "author!"),
        ("GET /hub/spaces/s/search?tags%3C=x", "tags<"),
        ("GET /hub/spaces/s/search?part=1,2", "part"),
        ("GET /hub/spaces/s/changesets?version<7", "version<7"),
        ("DELETE /hub/spaces/s/changesets?version<7", None),
        ("DELETE /hub/spaces/s/changesets?version=lt=7", None),
        ("GET /hub/spaces?contentUpdatedAt>=7", None),
        ("GET /hub/spaces?contentUpdatedAt>7", None),
        ("GET /hub/spaces/s/search?contentUpdatedAt>=7", "contentUpdatedAt>"),
        ("GET /hub/spaces/s/changesets?context=super", "context"),
        ("GET /hub/spaces/s/changesets?context=DEFAULT", None),
        ("GET /hub/spaces/s/changesets?action=CREATE", "action"),
        ("POST /hub/spaces/s/rollback?operation=I", "operation"),
        ("POST /hub/spaces/s/revert?context=extension", "context"),
        ("PUT /hub/spaces/s/features?e=retain", "e"),
        ("PATCH /hub/spaces/s/features/a?ne=error", "ne"),
        ("PUT /hub/spaces/s/features/a?transactional=true", None),
        ("DELETE /hub/spaces/s/deleted?id=a&context=extension", "context"),
        ("GET /hub/spaces/s/search?unknown=x&clientId=cli", None),
        ("GET /hub/spaces/s/search?p.name=", None),
        ("GET /hub/spaces/s/search?versionRef=&skipCache=", None),
    ],
)
def test_names_are_recognised(request_line: str, field: str | None) -> None:
    method, _, url = request_line.partition(" ")
    path, _, query = url.partition("?")
    assert _refused(method, path, query) == field

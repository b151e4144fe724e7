"""Requests generated from the OpenAPI document.

The server does not fail, and returns only documented responses.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from naksha.server.app import create_app
from naksha.server.process.settings import ServerSettings
from naksha.testing.servers.hub_server import HubServer
from tests.server.towns import collection, point

CHECKED = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
EXAMPLES = 5
SEED = 20_261_116
IDS: dict[str, list[Any]] = {
    "space_id": ["roads", "rails"],
    "feature_id": ["f1", "f2", "f3"],
    "tag_id": ["first"],
    "branch_id": ["draft"],
    "connector_id": ["plain"],
    "storage_id": ["default"],
    "role_id": ["reader"],
    "version": [1, 2, 3],
    "type": ["quadkey", "web", "tms", "here", "quadkeys"],
    "tileId": ["0", "1_0_0", "120.mvt", "3_4_4.mvtf"],
}
"""Existing ids and values for the parameters of paths."""

# Their content is JSON, too.
for name in ("changeset", "changeset-collection", "compact-changeset"):
    schemathesis.deserializer(f"application/vnd.here.{name}")(
        lambda _, response: json.loads(response.content)
    )

SCHEMA: Any = schemathesis.openapi.from_dict(create_app(ServerSettings()).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


def fill(client: httpx.Client) -> None:
    """Create the objects that requests refer to, and restore what earlier requests changed."""
    for id in IDS["space_id"]:
        space = {"id": id, "title": "x", "active": True, "readOnly": False, "eventHandlerIds": []}
        if client.put(f"/spaces/{id}", json=space).status_code == 404:
            client.post("/spaces", json=space).raise_for_status()
        some = [point(f"f{n}", n, n, n=n, tags=["t"]) for n in range(5)]
        client.put(f"/spaces/{id}/features", json=collection(*some)).raise_for_status()
        client.post(f"/spaces/{id}/tags", json={"id": "first", "version": 1})
        client.post(f"/spaces/{id}/branches", json={"id": "draft"})
    client.post("/handlers", json={"id": "plain", "className": "read-only"})
    client.post("/roles", json={"id": "reader", "urm": {"naksha": {"readFeatures": [{}]}}})


@pytest.fixture(scope="module")
def filled(client: httpx.Client) -> httpx.Client:
    fill(client)
    return client


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_response_is_documented(label: str, hub: HubServer, filled: httpx.Client) -> None:
    operation = OPERATIONS[label]
    checks: list[Any] = CHECKS.get_by_names(CHECKED)
    modes = [GenerationMode.POSITIVE]
    if operation.body or [*operation.iter_parameters()]:  # otherwise nothing can be wrong
        modes.append(GenerationMode.NEGATIVE)

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(data.draw(st.sampled_from(modes))))
        for name in case.path_parameters:
            if data.draw(st.integers(0, 3)):
                case.path_parameters[name] = data.draw(st.sampled_from(IDS.get(name, ["x"])))
        if isinstance((case.query or {}).get("wait"), int | float):
            case.query["wait"] = 0  # nothing happens meanwhile
        case.call_and_validate(base_url=hub.url, checks=checks, timeout=30)

    ask()
    if not label.startswith("GET"):
        fill(filled)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_all_that_the_tool_can_think_of(
    hub: HubServer, client: httpx.Client, tmp_path: Path
) -> None:
    fill(client)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{hub.url}/openapi.json"),
        *("--phases", "coverage,fuzzing,stateful", "--max-examples", "40", "--no-shrink"),
        *("--checks", ",".join([*CHECKED, "allow_header_conformance", "unsupported_method"])),
        *("--continue-on-failure", "--no-color", "--request-timeout", "30", "--warnings", "off"),
        *("--max-time", "900"),
        # It would wait for changes that never come; the other test does not wait.
        *("--exclude-path-regex", "/changes$"),
    ]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-20_000:]

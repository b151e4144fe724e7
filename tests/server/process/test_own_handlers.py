"""The guide's examples of custom handlers, run with real processes.

A distribution is installed beside the hub, and a host runs separately.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from naksha.hub.pipeline.requests import CountFeatures
from naksha.hub.pipeline.responses import Count
from naksha.hub.remote.wire import HandlerReply, WireEvent, decode_request, decode_response
from naksha.testing.servers.hub_server import HubServer
from tests.docs.blocks import FENCE, ROOT
from tests.hub.remote.support import hosted, install

DOCUMENT = ROOT / "docs" / "hub.md"
SECRET = "0123456789abcdef0123456789abcdef"


def blocks() -> dict[str, list[str]]:
    """The blocks of the chapter by what stands behind the fence."""
    chapter = DOCUMENT.read_text().split("\n## Your own handlers\n")[1].split("\n## ")[0]
    found: dict[str, list[str]] = {}
    for block in FENCE.finditer(chapter):
        found.setdefault(block["kind"], []).append(block["text"])
    return found


BLOCKS = blocks()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as it lies there when it is installed."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "acme").mkdir()
    (directory / "acme" / "handlers.py").write_text(BLOCKS["python acme/handlers.py"][0])
    project = tomllib.loads(BLOCKS["toml pyproject.toml"][0])["project"]
    entries = project["entry-points"]["naksha.handlers"]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    return install(directory, "\n".join(["[naksha.handlers]", *lines, ""]))


def run(script: str, url: str, **replaced: str) -> None:
    """The curl commands of a block, sent to a server."""
    for line in filter(None, script.splitlines()):
        for old, new in replaced.items():
            line = line.replace(old, new)
        words = shlex.split(line)
        assert [words[0], words[1], words[4]] == ["curl", "-X", "-d"], line
        path = re.sub(r"^localhost:8080", url, words[3])
        answer = httpx.request(words[2], path, content=words[5])
        assert answer.is_success, answer.text


@pytest.fixture(params=["inside", "remote"])
def url(request: pytest.FixtureRequest, site: Path, tmp_path: Path) -> Iterator[str]:
    """A hub that has the space of the guide."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ExitStack() as stack:
        if request.param == "inside":
            server = HubServer(tmp_path, environment={"PYTHONPATH": paths})
            hub = stack.enter_context(server)
            run(BLOCKS["bash inside"][0], hub.url)
        else:
            (line,) = BLOCKS["bash host"][0].splitlines()
            handler = shlex.split(line)[3]
            host = stack.enter_context(hosted(handler, path=str(site)))
            (line,) = BLOCKS["bash server"][0].splitlines()
            flag = shlex.split(line)[2]
            hub = stack.enter_context(HubServer(tmp_path, arguments=[flag, host]))
            run(BLOCKS["bash remote"][0], hub.url, **{"http://127.0.0.1:9000": host})
        yield f"{hub.url}/hub"


def feature(id: str, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": id, "geometry": None, "properties": properties}


def test_the_handler_of_the_guide(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        named = feature("a", name="Main Street")
        answer = client.put("/spaces/roads/features/a", json=named)
        assert answer.status_code == 200, answer.text
        read = client.get("/spaces/roads/features/a").json()
        assert read["properties"]["sentBy"] == "anonymous"
        refused = client.put("/spaces/roads/features/b", json=feature("b"))
        assert refused.status_code == 400
        told = refused.json()
        assert (told["field"], told["handler"]) == ("properties.name", "stamp")
        assert client.get("/spaces/roads/features/b").status_code == 404
        unknown = {"id": "x", "className": "acme.handlers:Stamp"}
        answer = client.post("/connectors", json=unknown)
        assert answer.status_code == 400
        assert "known are: " in answer.json()["errorMessage"]
        assert answer.json()["field"] == "className"
        elsewhere = {"url": "http://169.254.169.254/latest/meta-data"}
        wrong = {"id": "x", "className": "remote", "properties": elsewhere}
        answer = client.post("/connectors", json=wrong)
        assert (answer.status_code, answer.json()["field"]) == (403, "properties.url")


def test_a_secret_of_a_connector_is_never_shown(tmp_path: Path) -> None:
    target = "http://127.0.0.1:9000"
    with HubServer(tmp_path, arguments=["--remote-handlers", target]) as hub:
        properties = {"url": f"{target}/x", "secret": SECRET}
        made = {"id": "signed", "className": "remote", "properties": properties}
        with httpx.Client(base_url=f"{hub.url}/hub") as client:
            texts = [
                client.post("/connectors", json=made).raise_for_status().text,
                client.get("/connectors/signed").text,
                client.get("/connectors").text,
                client.patch("/connectors/signed", json={"title": "Signed"}).text,
            ]
        assert not any(SECRET in text for text in texts)
        assert all("signed" in text for text in texts)
        assert SECRET not in hub.log()


def test_the_messages_of_the_guide_are_those_of_the_protocol() -> None:
    (event,) = BLOCKS["json event"]
    decoded = msgspec.json.decode(event.encode(), type=WireEvent)
    request = decode_request(decoded.request)
    assert isinstance(request, CountFeatures)
    replies = [
        msgspec.json.decode(each.encode(), type=HandlerReply) for each in BLOCKS["json reply"]
    ]
    assert decode_response(replies[0].response, Count) == Count(7)
    assert replies[1].send is not None
    sent = decode_request(replies[1].send.request)
    assert isinstance(sent, CountFeatures)
    assert sent.query.tags == (("open", "checked"),)
    assert replies[2].error is not None
    assert json.loads(BLOCKS["json reply"][2])["error"]["code"] == replies[2].error.code


def test_the_log_has_why_a_handler_failed(tmp_path: Path) -> None:
    """Reads are affected too."""
    site = install(tmp_path / "site")
    root = Path(__file__).resolve().parents[3]
    paths = os.pathsep.join([str(site), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    with HubServer(tmp_path, environment={"PYTHONPATH": paths}) as hub:
        with httpx.Client(base_url=f"{hub.url}/hub") as client:
            told = {"className": "tests:choose", "properties": {"handler": "Failing"}}
            client.post("/connectors", json={"id": "fails", **told}).raise_for_status()
            space = {"id": "broken", "eventHandlerIds": ["fails"]}
            client.post("/spaces", json=space).raise_for_status()
            answer = client.get("/spaces/broken/search")
            assert (answer.status_code, answer.json()["code"]) == (500, "handler_failed")
            assert "a secret of the handler" not in answer.text
        assert "a secret of the handler" in hub.log()

"""The chapter on handlers: valid connectors, and a table of all handlers."""

import re
from pathlib import Path

import msgspec

from naksha.hub.config.objects import Connector
from naksha.hub.pipeline.handler_registry import handler_names
from tests.docs.blocks import ROOT, examples
from tests.hub.handlers.support import ACTOR, open_hub

GUIDE = ROOT / "docs" / "hub.md"


async def test_every_connector_can_be_made(tmp_path: Path) -> None:
    # "json event" and "json reply" are of the protocol of handlers elsewhere.
    blocks = [example for example in examples(GUIDE, "json") if example.kind == "json"]
    connectors = [msgspec.json.decode(block.code) for block in blocks]
    assert connectors
    async with open_hub(f"file:{tmp_path}/{{realm}}.naksha") as hub:
        await hub.space("roads")
        for each in connectors:
            connector = Connector.from_json(each)
            assert not connector.extra
            await hub.realm.registry.create(connector, ACTOR)
            await hub.space(f"uses-{connector.id}", (connector.class_name, connector.properties))


def test_the_table_has_every_handler() -> None:
    chapter = GUIDE.read_text().split("\n## Event handlers\n")[1].split("\n## ")[0]
    told = set(re.findall(r"^\| `([a-z-]+)` \|", chapter, re.MULTILINE))
    assert told | {"remote"} == {*handler_names()}

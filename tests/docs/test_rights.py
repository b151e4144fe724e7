"""The document about rights: complete lists of actions and of each resource's attributes."""

import re

from naksha.hub.auth import resources
from naksha.hub.auth.rights import ACTIONS, ALIASES
from tests.docs.blocks import ROOT

DOCUMENT = ROOT / "docs" / "rights.md"
TICKED = re.compile(r"`(\w+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    part = DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_action_is_listed() -> None:
    assert {name for row in rows("Actions") for name in TICKED.findall(row[0])} == set(ACTIONS)


def test_every_attribute_is_listed() -> None:
    space = resources.space("a")
    every = [
        space,
        resources.feature(resources.features(space), "a"),
        resources.connector("a"),
        resources.storage("a"),
        resources.collection("a", storage_id="a"),
        resources.subscription("a"),
        resources.role("a"),
        resources.capability("a"),
        resources.subscription("a"),
    ]
    told = {
        kind: {ALIASES.get(name, name) for name in TICKED.findall(row[1])}
        for row in rows("Attributes")
        for kind in row[0].split(", ")
    }
    assert told == {resource.kind.value: set(resource.attributes) for resource in every}

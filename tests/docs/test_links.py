"""Validity of the links between the documents."""

import re
import subprocess

from tests.docs.blocks import ROOT, documents

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"(?<![\w/.-])[\w/<>{},-]+\.(?:py|sql|toml)\b")
FOLDER = re.compile(r"`((?:\w+/)+)`")
TEMPLATE = re.compile("[<{]")
"""A name with a placeholder."""


def test_every_link_inside_the_repository_leads_to_a_file() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken


def test_every_file_that_the_architecture_names_exists() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    files = [f"/{name}" for name in listed.stdout.decode().splitlines()]
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = {name for name in FILE.findall(text) if not TEMPLATE.search(name)}
    named |= set(FOLDER.findall(text))
    missing = [
        name
        for name in sorted(named)
        if not any(
            f"/{name}" in file if name.endswith("/") else file.endswith(f"/{name}")
            for file in files
        )
    ]
    assert len(named) > 100
    assert not missing

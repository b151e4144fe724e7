"""Validity of the links between the documents."""

import re

from tests.docs.blocks import ROOT, documents

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


def test_every_link_inside_the_repository_leads_to_a_file() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken

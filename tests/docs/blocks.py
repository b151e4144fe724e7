"""The fenced blocks of a Markdown document, each example with the output it promises."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "python",
            "versioning",
            "catalog",
            "rights",
            "sqlite",
            "storage",
            "operations",
            "hub",
        )
    ),
]
"""Those whose examples run in a new storage, one after the other."""
FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A block of code, and the text block that stands directly after it."""

    kind: str
    line: int
    code: str
    promised: str | None


def documents() -> list[Path]:
    """Everything that a user reads."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def examples(document: Path, language: str) -> list[Example]:
    """The examples in a language; its name may be followed by a word, as in `sql error`."""
    source = document.read_text()
    found = list(FENCE.finditer(source))
    result = []
    for n, block in enumerate(found):
        if block["kind"].split(" ")[0] != language:
            continue
        after = found[n + 1] if n + 1 < len(found) else None
        promised = None
        if after is not None and after["kind"] == "text":
            between = source[block.end() : after.start()]
            promised = after["text"] if between.strip() == "" else None
        line = source.count("\n", 0, block.start()) + 1
        result.append(Example(block["kind"], line, block["text"], promised))
    return result


def plain(output: str) -> list[str]:
    """Return the lines without trailing spaces and row counts."""
    lines = [line.rstrip() for line in output.strip("\n").split("\n")]
    return [line for line in lines if line and not re.fullmatch(r"\(\d+ rows?\)", line)]

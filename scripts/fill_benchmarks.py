#!/usr/bin/env python3
"""Fill the column "After" of the table in docs/benchmarks.md from results of benchmarks.

    scripts/fill_benchmarks.py docs/benchmarks.md RESULTS/*.json

The last line of each file is what `python -m benchmarks ARGUMENTS` printed last. The file has the
name of the arguments, with a dash for everything that is not a letter or digit, for example
`timetravel-storage-sqlite.json`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|(.*)\|[^|]*\|$", re.MULTILINE)


def filled(document: str, results: dict[str, dict[str, Any]]) -> str:
    """Replace the last cell of each row whose benchmark and key are in the results."""

    def fill(row: re.Match[str]) -> str:
        arguments, key, middle = row.groups()
        value = results.get(re.sub(r"[^a-z0-9]+", "-", arguments), {}).get(key)
        return row[0] if value is None else f"| `{arguments}` | `{key}` |{middle}| {value} |"

    return ROW.sub(fill, document)


def main() -> None:
    """Read the results named on the command line and rewrite the document."""
    document, *files = map(Path, sys.argv[1:])
    results = {file.stem: json.loads(file.read_text().splitlines()[-1]) for file in files}
    document.write_text(filled(document.read_text(), results))


if __name__ == "__main__":
    main()

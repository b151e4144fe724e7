"""Print every message that a user can read, as tab-separated lines: place, kind, text.

Kinds: raise (errors), log, help (flags, settings and OpenAPI texts), sql (errors of PostgreSQL and
SQLite). Reviewers read the table: a message has to be understood without the code.

Usage: python scripts/messages.py [PATH ...]     paths below src/naksha, by default all of it
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "naksha"
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
HELP_ARGUMENTS = {"help", "description", "summary", "title", "epilog"}
SQL_MESSAGE = re.compile(
    r"(?:RAISE\s+(?:EXCEPTION|WARNING|NOTICE)|naksha_raise\(|RAISE\((?:ABORT|FAIL|ROLLBACK),)"
    r"(?P<arguments>[^;]*)",
    re.IGNORECASE,
)
SQL_TEXT = re.compile(r"'((?:[^']|'')*[a-z] (?:[^']|'')*)'")


def text_of(node: ast.expr) -> str:
    """Return a string expression as its reader sees it, with expressions in braces."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            "{" + ast.unparse(part.value) + "}"
            if isinstance(part, ast.FormattedValue)
            else text_of(part)
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        left, right = text_of(node.left), text_of(node.right)
        return left + right if isinstance(node.op, ast.Add) else left
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (text_of(node.body), text_of(node.orelse))))
    return ""


def texts_of(call: ast.Call, names: set[str] | None = None) -> Iterator[str]:
    """Yield the texts among the arguments of a call, all of them or those with certain names."""
    arguments = [] if names else list(call.args)
    arguments += [k.value for k in call.keywords if names is None or k.arg in names]
    for argument in arguments:
        text = text_of(argument)
        if " " in text:
            yield text


def python_messages(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of every message of a Python module."""
    tree = ast.parse(source)
    raised = {
        id(node.exc)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        is_error = name[:1].isupper() or name.startswith(("_invalid", "invalid", "_refuse"))
        if id(node) in raised or (is_error and not HELP_ARGUMENTS & {k.arg for k in node.keywords}):
            kind, names = "raise", None
        elif name in LOG_METHODS:
            kind, names = "log", None
        else:
            kind, names = "help", HELP_ARGUMENTS
        for text in texts_of(node, names):
            yield node.lineno, kind, text


def sql_messages(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of every error that SQL raises."""
    for match in SQL_MESSAGE.finditer(source):
        for text in SQL_TEXT.findall(match["arguments"]):
            yield source.count("\n", 0, match.start()) + 1, "sql", text.replace("''", "'")


def main(paths: list[str]) -> None:
    """Print the messages of all files below the paths."""
    for root in [SOURCE / path for path in paths] or [SOURCE]:
        for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if file.suffix not in {".py", ".sql"}:
                continue
            find = python_messages if file.suffix == ".py" else sql_messages
            for line, kind, text in find(file.read_text()):
                shown = " ".join(text.split())
                sys.stdout.write(f"{file.relative_to(SOURCE)}:{line}\t{kind}\t{shown}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Print every message that a user can read, as tab-separated lines: place, kind, text.

Kinds: raise (errors; "… " stands for the subject that the raiser adds), internal (assertions, which
only a defect of Naksha violates), log, finding (of the job `verify`), help (flags, settings and
OpenAPI texts), sql (errors of PostgreSQL and SQLite, with their hints). Reviewers read the table:
a message has to be understood without the code.

Usage: python scripts/messages.py [PATH ...]     paths below src/naksha, by default all of it
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "naksha"
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
HELP_ARGUMENTS = {"help", "description", "summary", "title", "epilog"}
FINDINGS = {"InvariantRule": 2}
"""Classes with a message as SQL, and its position among the arguments."""
PARTS = {"ProblemError"}
"""Exceptions whose message is a predicate: the path of the value is its subject."""
SQL_CALL = re.compile(
    r"\b(RAISE\s+(?:EXCEPTION|WARNING|NOTICE)|naksha_raise|RAISE)\b", re.IGNORECASE
)
SQL_TOKEN = re.compile(r"'((?:[^']|'')*)'|[(),;]|--[^\n]*")


@cache
def exceptions() -> set[str]:
    """Return the names of all exception classes, builtin ones and those of the package."""
    found = {name for name, thing in vars(builtins).items() if isinstance(thing, type)}
    found = {name for name in found if issubclass(getattr(builtins, name), BaseException)}
    classes = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    while more := {name for name, bases in classes.items() if bases & found} - found:
        found |= more
    return found


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


def texts_of(arguments: list[ast.expr]) -> Iterator[str]:
    """Yield the texts among arguments; a single word is not a message."""
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
        everything = [*node.args, *(k.value for k in node.keywords if k.arg != "field")]
        if name in exceptions() or id(node) in raised:
            start = "… " if name in PARTS or name not in exceptions() else ""
            kind = "internal" if name == "AssertionError" else "raise"
            found = [start + text for text in texts_of(everything)]
        elif name in FINDINGS:
            kind, found = "finding", list(texts_of(node.args[FINDINGS[name] :]))
        elif name in LOG_METHODS:
            kind, found = "log", list(texts_of(everything))
        else:
            helps = [k.value for k in node.keywords if k.arg in HELP_ARGUMENTS]
            kind, found = "help", list(texts_of(helps))
        for text in found:
            yield node.lineno, kind, text


def sql_arguments(source: str, at: int) -> list[str]:
    """Return the text of each argument of a call, joined from its literals, from `at` on."""
    depth, arguments = 0, [""]
    for token in SQL_TOKEN.finditer(source, at):
        if token[1] is not None:
            arguments[-1] += token[1].replace("''", "'")
        elif token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        elif token[0] == "," and depth == 1:
            arguments.append("")
        if token[0] == ";" or (token[0] == ")" and depth <= 0):
            break
    return arguments


def sql_messages(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of every error that SQL raises, with its hint."""
    for match in SQL_CALL.finditer(source):
        arguments = sql_arguments(source, match.end())
        if match[1].lower() == "naksha_raise":  # code, message, detail, hint
            arguments = arguments[1:2] + arguments[3:4]
        text = "; ".join(filter(None, arguments))
        if " " in text and "CREATE OR REPLACE FUNCTION" not in source[match.start() - 30 :][:30]:
            yield source.count("\n", 0, match.start()) + 1, "sql", text


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

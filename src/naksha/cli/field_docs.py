"""Read the docstrings of class fields, which serve as help texts of options."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise


def field_docs(kind: type) -> dict[str, str]:
    """Return docstrings by field, including inherited ones; empty if there is no source code."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError, SyntaxError):
            continue
        found |= _docs_in(tree)
    return found


def _docs_in(tree: ast.Module) -> dict[str, str]:
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = inspect.cleandoc(text.value.value)
    return found

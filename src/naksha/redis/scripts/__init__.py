"""The scripts, one in each file `*.lua`; a call of one is atomic and is repeated by nobody."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple


class Script(NamedTuple):
    """The text of a script and the name by which Redis remembers it."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """The script of the file `name`.lua."""
    text = (resources.files(__package__) / f"{name}.lua").read_text("utf-8")
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

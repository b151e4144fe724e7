"""The Lua scripts, one per file `*.lua`; each call is atomic and is never retried automatically."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple


class LuaScript(NamedTuple):
    """The text of a script and the SHA-1 digest under which Redis caches it."""

    text: str
    digest: str


@cache
def script(name: str) -> LuaScript:
    """Return the script in the file `name`.lua."""
    text = (resources.files(__package__) / f"{name}.lua").read_text("utf-8")
    return LuaScript(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

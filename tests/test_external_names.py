"""Stability of public names: rights, settings, metrics, JSON, SQL, commands, REST.

The names are in `tests/data/external_names.json`. A change of them is a change for users: it needs
a reason, an entry in the CHANGELOG, and often a way for what was written before. Then write the
file again, and read its difference:

    python -m tests.external_names
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.external_names import COLLECTED, DATA


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(DATA.read_bytes())
    return found


def lines(value: Any, path: str = "") -> Iterator[str]:
    """A line for each name, so that a failure shows those that differ and no others."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from lines(one, f"{path}/{name}")
        if not value:
            yield f"{path}: nothing"
    elif isinstance(value, list):
        yield from (f"{path}: {one}" for one in value)
        if not value:
            yield f"{path}: nothing"
    else:
        yield f"{path}: {value}"


def test_every_kind_of_names_is_recorded() -> None:
    assert recorded().keys() == COLLECTED.keys()


@pytest.mark.parametrize("kind", COLLECTED)
def test_names_are_what_they_were(kind: str) -> None:
    now = set(lines(msgspec.to_builtins(COLLECTED[kind]())))
    before = set(lines(recorded()[kind]))
    assert sorted(before - now) == [], "names that are gone"
    assert sorted(now - before) == [], "names that are new"

"""One random script on the backend and on the model: every answer must be the same.

A script is data: calls with their arguments, written by Hypothesis without knowing what they will
do. Names, ids, tokens and numbers come from so few values that calls meet each other.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naksha.spi.catalog import (
    CatalogBackend,
    ObjectKey,
    ObjectRow,
    PointerRow,
    ScannedObject,
    ScannedPointer,
)
from naksha.testing.catalog.model import CatalogModel
from naksha.testing.catalog.suite_support import fresh_realm, scanned

Call = tuple[str, tuple[Any, ...]]
"""The name of a method, and its arguments."""

SUFFIXES = ["", "a", "-"]
"""The realms of a script begin with each other."""

_names = st.sampled_from(["a", "A", "a ", "a/b", "a%", "ö", "\U0001f5fa", "\uffff"])
_bytes = st.sampled_from([b"", b"\0", b"a", b"A", b"a ", b"\xff" * 20])
_ids = st.sampled_from([0, 1, 2, 2**53 + 1, 2**63 - 1])
_few = st.integers(0, 2)
_tokens = st.sampled_from(["t", "u", "T"])
_realms = st.integers(0, len(SUFFIXES) - 1)

_pointers = st.builds(PointerRow, _names, _bytes, _few, _few, _bytes)
_keys = st.builds(ObjectKey, _ids, _few)
_objects = st.builds(
    ObjectRow,
    id=_ids,
    part=_few,
    parts=st.just(3),
    type=st.sampled_from(["test", "Test"]),
    value=_bytes,
    created_us=_few,
    token=st.none() | _tokens,
)
_some_objects = st.lists(_objects, max_size=6)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[PointerRow, PointerRow]:
    """Expected and new row of a swap: the same name and creation."""
    expected, row = draw(_pointers), draw(_pointers)
    return expected, PointerRow(
        expected.name, row.target, expected.created, row.epoch, row.previous
    )


def _call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(name), st.tuples(_realms, *arguments))


_calls = st.one_of(
    _call("create_pointer", _pointers),
    _call("create_pointers", st.lists(_pointers, max_size=6)),
    _call("fetch_pointers", st.lists(_names, max_size=4)),
    _call("list_pointers", st.sampled_from(["", "a", "a/", "%", "_", "ö"]), _names, _few),
    _call("swap_pointer", _pairs()),
    _call("delete_pointer", _pointers),
    _call("fetch", st.lists(_keys, max_size=6)),
    _call("write", _some_objects),
    _call("delete", st.lists(_keys, max_size=6)),
    _call("insert", _objects),
    _call("replace", _objects, _tokens),
    _call("delete_if", _keys, _tokens),
    _call("publish", _some_objects, _pairs()),
    _call("scan"),
    _call(
        "delete_scanned",
        st.lists(
            st.builds(ScannedPointer, st.just(""), _names, _few)
            | st.builds(ScannedObject, st.just(""), _keys, st.just("test"), _few),
            max_size=6,
        ),
    ),
    _call("delete_realms"),
)
_scripts = st.lists(_calls, min_size=5, max_size=40)


class TestAgainstTheModel:
    # It is bound to several backends: a script that one of them failed is tried on all.
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    @given(script=_scripts)
    async def test_one_script_gives_equal_answers(
        self, catalog_backend: CatalogBackend, script: list[Call]
    ) -> None:
        model = CatalogModel()
        start = fresh_realm()
        realms = [start + suffix for suffix in SUFFIXES]
        for name, (where, *arguments) in script:
            realm = realms[where]
            expected = _on_model(model, name, realm, arguments)
            assert await _on_backend(catalog_backend, name, realm, realms, arguments) == expected
        assert Counter(await scanned(catalog_backend, *realms)) == Counter(model.scan())
        for realm in realms:
            names = [name for owner, name in model.pointers if owner == realm]
            found = await catalog_backend.fetch_pointers(realm, names)
            assert found == model.fetch_pointers(realm, names)
            keys = [key for owner, key in model.objects if owner == realm]
            assert await catalog_backend.fetch(realm, keys) == model.fetch(realm, keys)


def _flat(name: str, realm: str, arguments: list[Any]) -> list[Any]:
    """The arguments as the method takes them."""
    if name == "delete_scanned":
        return [[row._replace(realm=realm) for row in arguments[0]]]
    if name == "delete_realms":
        return [[realm]]
    if name in ("swap_pointer", "publish"):
        *others, (expected, row) = arguments
        return [realm, *others, expected, row]
    return [realm, *arguments]


def _on_model(model: CatalogModel, name: str, realm: str, arguments: list[Any]) -> Any:
    if name == "scan":
        return Counter(model.scan())
    return getattr(model, name)(*_flat(name, realm, arguments))


async def _on_backend(
    backend: CatalogBackend, name: str, realm: str, realms: list[str], arguments: list[Any]
) -> Any:
    if name == "scan":
        return Counter(await scanned(backend, *realms))
    if name == "delete_realms" and not backend.deletes_realms:
        await backend.delete_scanned(await scanned(backend, realm))
        return None
    return await getattr(backend, name)(*_flat(name, realm, arguments))

"""Random modifications of a space, compared with a plain dict."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naksha.hub.pipeline.requests import Modification
from naksha.model.errors import FeatureExists, FeatureNotFound, NakshaError
from naksha.model.merge import same
from naksha.model.state import XYZ
from tests.hub.write.support import Desk, Feature, feature, modification, properties_of

IDS = ("a", "b", "c", "d")
_VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", ""])
_LEAVES = _VALUES | st.lists(_VALUES, max_size=2)
_TREES = st.recursive(
    _LEAVES, lambda below: st.dictionaries(st.sampled_from("klm"), below, max_size=3), max_leaves=5
)
_PROPERTIES = st.dictionaries(st.sampled_from("klm"), _TREES, max_size=3)
_TAGS = st.lists(st.sampled_from(["s", "t", "u"]), unique=True, max_size=3)


@st.composite
def _features(draw: st.DrawFn) -> Feature:
    made = feature(draw(st.sampled_from(IDS)), **draw(_PROPERTIES))
    if draw(st.booleans()):
        made["properties"][XYZ] = {"tags": draw(_TAGS)}
    return made


@st.composite
def _modifications(draw: st.DrawFn) -> Modification:
    ne = draw(st.sampled_from(["create", "create", "retain", "error"]))
    if draw(st.integers(0, 3)) == 0:
        return modification(
            ids=tuple(draw(st.lists(st.sampled_from(IDS), max_size=3))), e="delete", ne=ne
        )
    e = draw(st.sampled_from(["patch", "patch", "replace", "replace", "delete", "retain", "error"]))
    return modification(*draw(st.lists(_features(), max_size=4)), e=e, ne=ne)


_REQUESTS = st.fixed_dictionaries(
    {
        "modifications": st.lists(_modifications(), min_size=1, max_size=3),
        "transactional": st.booleans(),
        "add_tags": _TAGS.map(tuple),
        "remove_tags": _TAGS.map(tuple),
    }
)


class Model:
    """A dict of features, each with properties and tags."""

    def __init__(self) -> None:
        self.features: dict[str, tuple[Feature, list[str]]] = {}

    def run(self, request: dict[str, Any]) -> int | NakshaError:
        """How many failed; the error if it fails as a whole."""
        before = copy.deepcopy(self.features)
        failed = total = 0
        first: NakshaError | None = None
        for one in request["modifications"]:
            sent: dict[str, Feature | None] = {}
            for each in one.features:
                sent.pop(each["id"], None)
                sent[each["id"]] = each
            sent |= dict.fromkeys(one.ids)
            total += len(sent)
            for id, each in sent.items():
                try:
                    self._one(id, each, one, request)
                except NakshaError as error:
                    failed += 1
                    first = first or error
        if first is not None and (request["transactional"] or failed == total):
            self.features = before
            return first
        return failed

    def _one(self, id: str, sent: Feature | None, one: Modification, request: Any) -> None:
        there = self.features.get(id)
        if there is None:
            if one.if_not_exists == "error":
                raise FeatureNotFound("")
            if one.if_not_exists == "create" and sent is not None:
                body, tags = _taken_apart(sent)
                self.features[id] = (body, _tagged(tags or [], request))
        elif one.if_exists == "error":
            raise FeatureExists("")
        elif one.if_exists == "delete":
            del self.features[id]
        elif one.if_exists != "retain":
            assert sent is not None
            body, tags = _taken_apart(sent)
            if one.if_exists == "patch":
                body = _patched(there[0], body)
            self.features[id] = (body, _tagged(there[1] if tags is None else tags, request))


def _taken_apart(sent: Feature) -> tuple[Feature, list[str] | None]:
    body = copy.deepcopy(sent["properties"])
    xyz = body.pop(XYZ, None)
    return body, None if xyz is None else xyz["tags"]


def _tagged(tags: list[str], request: Any) -> list[str]:
    both = [*tags, *(tag for tag in request["add_tags"] if tag not in tags)]
    return [tag for tag in both if tag not in request["remove_tags"]]


def _patched(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = _patched(new.get(name), value)
    return new


async def _check(desk: Desk, requests: list[dict[str, Any]]) -> None:
    await desk.delete()
    model = Model()
    for request in requests:
        before = dict(model.features)
        expected = model.run(request)
        if isinstance(expected, NakshaError):
            with pytest.raises(type(expected)):
                await desk.modify(*request["modifications"], **_options(request))
        else:
            written = await desk.modify(*request["modifications"], **_options(request))
            assert len(written.failed) == expected
            assert {state.id for state in written.states} <= set(model.features)
            assert set(written.inserted) <= set(model.features)
            for state in written.states:
                assert _seen(state) == model.features[state.id]
            named = {*written.inserted, *written.updated, *written.deleted}
            changed = {id for id in IDS if not _is_same(before.get(id), model.features.get(id))}
            assert changed <= named
            if len(request["modifications"]) == 1:
                assert changed == named
        found = await desk.states()
        assert {id: _seen(state) for id, state in found.items()} == model.features


def _options(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != "modifications"}


def _seen(state: Any) -> tuple[Feature, list[str]]:
    return properties_of(state), state.xyz["tags"]


def _is_same(one: Any, other: Any) -> bool:
    return same(None if one is None else [*one], None if other is None else [*other])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(_REQUESTS, min_size=1, max_size=4))
async def test_any_modifications_do_what_a_dict_does(
    desk: Desk, requests: list[dict[str, Any]]
) -> None:
    await _check(desk, requests)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(_REQUESTS, min_size=1, max_size=4))
async def test_many_modifications_do_what_a_dict_does(
    desk: Desk, requests: list[dict[str, Any]]
) -> None:
    await _check(desk, requests)

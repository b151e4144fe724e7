"""Edits of JSON text: the edited member is right, and all other text stays as it was."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.json_text import (
    close_namespace,
    close_object,
    features_of,
    open_object,
    open_properties,
    with_first,
    with_in_namespace,
    with_last,
    with_namespace,
    with_txn_next,
)
from naksha.model.state import XYZ

decode = msgspec.json.decode
encode = msgspec.json.encode
NAMESPACE: dict[str, Any] = {"action": "CREATE", "txn_next": "7", "tags": []}
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "é",
        '"properties":{',
        f'"{XYZ}":{{',
        '"txn_next":"7"',
        '\\"',
        "properties",
        XYZ,
        "\n",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(TEXTS, below, max_size=2),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS.filter(lambda name: name != XYZ), VALUES, max_size=3)


@st.composite
def features(draw: st.DrawFn, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Features whose texts and members look like those that are edited."""
    properties = draw(OBJECTS)
    if namespace is not None:
        properties = {XYZ: namespace, **properties}
    members = draw(OBJECTS)
    members.pop("properties", None)
    return {**members, "id": "x", "properties": properties}


@given(OBJECTS, VALUES)
def test_members_are_added_to_an_object(members: dict[str, Any], value: Any) -> None:
    text = encode(members)
    first, last = (edit(text, "new", encode(value)) for edit in (with_first, with_last))
    assert [*decode(first).items()] == [("new", value), *members.items()]
    assert [*decode(last).items()] == [*members.items(), ("new", value)]


@given(OBJECTS.filter(bool), OBJECTS)
def test_an_open_object_is_continued(members: dict[str, Any], more: dict[str, Any]) -> None:
    text = open_object(members) + b',"streamed":[1,2]' + close_object(more)
    assert decode(text) == {**members, "streamed": [1, 2], **more}


@given(features())
def test_a_namespace_is_the_first_property(feature: dict[str, Any]) -> None:
    edited = decode(with_namespace(encode(feature), encode(NAMESPACE)))
    assert [*edited["properties"].items()] == [(XYZ, NAMESPACE), *feature["properties"].items()]
    assert {**edited, "properties": feature["properties"]} == feature
    assert [*edited] == [*feature]


@given(features(NAMESPACE), st.sampled_from([b"", b" "]))
def test_a_member_is_added_to_the_namespace(feature: dict[str, Any], space: bytes) -> None:
    text = encode(feature).replace(f'"{XYZ}":'.encode(), f'"{XYZ}":'.encode() + space)
    before = decode(text)
    edited = decode(with_in_namespace(text, "space", b'"roads"'))
    assert edited["properties"].pop(XYZ) == {"space": "roads", **before["properties"].pop(XYZ)}
    assert edited == before


@given(features(NAMESPACE), st.sampled_from([b"", b" "]))
def test_the_end_of_a_state_is_replaced(feature: dict[str, Any], space: bytes) -> None:
    text = encode(feature).replace(b'"txn_next":', b'"txn_next":' + space)
    before = decode(text)
    edited = decode(with_txn_next(text, "7", "0"))
    assert edited["properties"].pop(XYZ) == {**NAMESPACE, "txn_next": "0"}
    before["properties"].pop(XYZ)
    assert edited == before


@pytest.mark.parametrize("number", ["1.0", "1e3", "12345678901234567890123", "0.1000"])
def test_other_text_is_not_rewritten(number: str) -> None:
    """Neither where the member is found in the text, nor where the levels above it are parsed."""
    plain = f'{{"id":"x","properties":{{"{XYZ}":{{"txn_next":"7"}},"n":{number}}}}}'
    twice = f'{{"same":{{"{XYZ}":{{"txn_next":"7"}}}},{plain[1:]}'
    for text in (plain, twice):
        for edited in (
            with_in_namespace(text.encode(), "space", b'"roads"'),
            with_txn_next(text.encode(), "7", "0"),
        ):
            assert f'"n":{number}' in edited.decode()


def test_an_empty_namespace_gets_a_first_member() -> None:
    text = encode({"properties": {XYZ: {}}})
    assert decode(with_in_namespace(text, "space", b'"a"')) == {"properties": {XYZ: {"space": "a"}}}


MEMBERS = st.dictionaries(TEXTS.filter(lambda name: name != "properties"), VALUES, max_size=3)
COLUMNS = st.lists(st.tuples(TEXTS, st.none() | OBJECTS, st.none() | MEMBERS), min_size=1)
TAGS = st.none() | st.lists(TEXTS)


@given(COLUMNS)
def test_features_are_built_from_columns(rows: list[tuple[str, Any, Any]]) -> None:
    ids, properties, members = zip(*rows, strict=True)
    for text, (id, own, others) in zip(features_of(ids, properties, members), rows, strict=True):
        expected = {"type": "Feature", **(others or {}), "id": id, "properties": own or {}}
        assert [*decode(text).items()] == [*expected.items()]
        assert text == encode(expected)


@given(features(), TAGS, st.none() | TEXTS, st.sampled_from([None, "0123"]))
def test_a_namespace_is_the_last_property(
    feature: dict[str, Any], tags: list[str] | None, crid: str | None, qrid: str | None
) -> None:
    properties = feature.pop("properties")
    feature["properties"] = properties
    head = open_properties(encode(feature))
    begin = b'"%b":{"action":"CREATE",' % XYZ.encode()
    edited = decode(head + begin + close_namespace(tags, crid, qrid))
    members = {"tags": tags or [], "crid": crid or None, "qrid": qrid, "mrid": crid or qrid}
    namespace = {"action": "CREATE", **members}
    assert [*edited["properties"].items()] == [*properties.items(), (XYZ, namespace)]
    assert {**edited, "properties": properties} == feature

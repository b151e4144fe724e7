"""Valid and invalid names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import (
    check_app_id,
    check_author,
    check_collection_id,
    check_feature_id,
    check_storage_id,
    is_reserved,
)


@pytest.mark.parametrize(
    "name",
    ["a", "roads", "naksha", "naksha:spaces", "a-b_c:9", "a" * 32, "hst", "x_p", "x_pg", "x_p10",
     "x_hstory", "deleted", "a_del_b", "a_metal", "my_naksha_x"],
)  # fmt: skip
def test_ordinary_collection_ids(name: str) -> None:
    assert check_collection_id(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "Roads", "1a", "_a", ":a", "-a", "a b", "a.b", "a/b", "a$b", "ä", "a" * 33, "a\n",
     "a\0", None, 7],
)  # fmt: skip
def test_malformed_collection_ids(name: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_collection_id(name, field="collections[2].id")
    assert caught.value.field == "collections[2].id"


@pytest.mark.parametrize(
    "name",
    ["a_hst", "a_hst_2023_01_30", "a_hst_", "a_del", "a_meta", "a_i_seq", "a_p0", "a_pf",
     "naksha_tx", "naksha_"],
)  # fmt: skip
def test_reserved_collection_ids(name: str) -> None:
    assert is_reserved(name)
    with pytest.raises(InvalidArgument, match="reserved"):
        check_collection_id(name)


@given(st.from_regex(r"\A[a-z][a-z0-9_:-]{0,31}\Z"))
def test_an_accepted_id_never_names_a_table_of_another_collection(name: str) -> None:
    tail = re.search(r"_(hst|del|meta|i_seq|p[0-9a-f])$", name) or "_hst_" in name
    assert is_reserved(name) is bool(tail or name.startswith("naksha_"))


@pytest.mark.parametrize("name", ["a", "naksha", "my-storage_1", "a" * 32])
def test_storage_ids(name: str) -> None:
    assert check_storage_id(name) == name


@pytest.mark.parametrize("name", ["", "a:b", "A", "1", "a" * 33, "a\n", None])
def test_malformed_storage_ids(name: object) -> None:
    with pytest.raises(InvalidArgument, match="storage id"):
        check_storage_id(name)


@pytest.mark.parametrize("value", ["x", " ", "a/b,c", "ü" * 256, "😀", "x" * 512])
def test_feature_ids_are_free_text(value: str) -> None:
    assert check_feature_id(value) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ("ü" * 257, f"514 bytes, but at most {limits.FEATURE_ID_BYTES_MAX} are allowed"),
        (7, "id must be a string, not 7"),
        (None, "id must be a string, not null"),
    ],
)
def test_malformed_feature_ids(value: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        check_feature_id(value)
    assert caught.value.field == "id"


def test_the_author_is_optional_and_the_app_id_is_not() -> None:
    assert check_author(None) is None
    assert check_author("jane") == "jane"
    assert check_app_id("editor") == "editor"
    for empty in ("", None):
        with pytest.raises(InvalidArgument):
            check_app_id(empty)
    with pytest.raises(InvalidArgument, match="empty"):
        check_author("")

"""Tags and ids in query strings."""

from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.query_language.tags import id_list, tag_list, tag_query
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.tags import normalise_tag


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("tags=a", (("a",),)),
        ("tags=a,b+c", (("a",), ("b", "c"))),
        ("tags=a%2Cb%2Bc", (("a",), ("b", "c"))),
        ("tags=a&x=1&tags=b+c", (("a",), ("b", "c"))),
        ("tags=B+a,A+b,a+a", (("b", "a"), ("a", "b"), ("a",))),
        ("tags=a%20b", (("a b",),)),
        ("tags=,a,,+", (("a",),)),
        ("tags=", None),
        ("tags", None),
        ("tag=a&p.tags=b", None),
        ("t%61gs=a", (("a",),)),
        ("tags=@Ä,~Big,ref_X,É", (("@Ä",), ("~Big",), ("ref_X",), ("e",))),
        ("tags=*", (("*",),)),
        (b"tags=a", (("a",),)),
    ],
)
def test_tags_are_or_of_ands(query: str, groups: object) -> None:
    assert tag_query(query) == groups


def test_a_tag_that_no_feature_can_have_finds_nothing_instead_of_everything() -> None:
    assert tag_query("tags=" + quote("地図")) == ()
    assert tag_query("tags=" + quote("地図,a")) == (("a",),)
    assert tag_query("tags=" + quote("地図+a")) == ()


TAGS = st.text("abAB ~#@é-", min_size=1, max_size=5).filter(normalise_tag)


@given(st.lists(st.lists(TAGS, min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_groups_come_back_encoded_or_not(groups: list[list[str]], encode_all: bool) -> None:
    if encode_all:
        query = urlencode({"tags": ",".join(map("+".join, groups))}, quote_via=quote)
    else:
        query = "tags=" + ",".join("+".join(map(quote, group)) for group in groups)
    expected = [tuple(dict.fromkeys(map(normalise_tag, group))) for group in groups]
    assert tag_query(query) == tuple(dict.fromkeys(expected))


def test_tags_to_add_and_remove() -> None:
    query = "addTags=A,b%2Cc&removeTags=x+y&addTags=a"
    assert tag_list(query, "addTags") == ["a", "b", "c"]
    assert tag_list(query, "removeTags") == ["x+y"]
    assert tag_list(query, "other") == []


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("id=a", ("a",)),
        ("id=a,b&id=c&id=a", ("a", "b", "c")),
        ("id=ITA%2CBRA", ("ITA,BRA", "ITA", "BRA")),
        ("id=a,b%2Cc", ("a", "b,c", "b", "c")),
        ("id=a+b%2B", ("a b+",)),
        ("id=", ()),
        ("ids=a", None),
    ],
)
def test_ids_are_repeated_or_have_commas(query: str, ids: object) -> None:
    assert id_list(query) == ids


@given(st.lists(st.text("ab,+ %é'\"", min_size=1, max_size=6), min_size=1))
def test_every_id_that_was_sent_is_a_candidate(ids: list[str]) -> None:
    found = id_list(",".join(map(quote_plus, ids)).join(["id=", ""]))
    assert found is not None
    assert set(ids) <= set(found)
    found = id_list(urlencode({"id": ",".join(ids)}))
    assert found is not None
    assert {part for text in ids for part in text.split(",") if part} <= set(found)


def test_several_ids_in_one_encoded_text_are_not_one_id() -> None:
    ids = [f"feature-{number}" for number in range(100)]
    assert id_list(urlencode({"id": ",".join(ids)})) == tuple(ids)


def test_bad_ids_and_too_many_tags_are_refused() -> None:
    with pytest.raises(InvalidArgument) as raised:
        id_list("id=" + "x" * (limits.FEATURE_ID_BYTES_MAX + 1))
    assert raised.value.field == "id"
    with pytest.raises(InvalidArgument):
        id_list("id=a%00")
    with pytest.raises(LimitExceeded):
        tag_query("tags=" + ",".join(map(str, range(limits.TAGS_MAX + 1))))

"""Normalization of tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.limits import TAG_LENGTH_MAX, TAG_TEXT_BYTES_MAX, TAGS_MAX
from naksha.model.tags import normalise_tag, normalise_tags


@pytest.mark.parametrize(
    ("tag", "normalised"),
    [
        ("Road", "road"),
        ("Café", "cafe"),
        ("Straße", "strae"),
        ("道路", ""),
        ("@Café", "@Café"),
        ("~Café", "~Cafe"),
        ("#Café", "#Cafe"),
        ("ref_Café", "ref_Cafe"),
        ("sourceID_Café", "sourceID_Cafe"),
        ("sourceid_Café", "sourceid_cafe"),
        ("Ref_Café", "ref_cafe"),
        ("réf_X", "ref_x"),
        (" a b ", " a b "),
        ("", ""),
    ],
)
def test_one_tag(tag: str, normalised: str) -> None:
    assert normalise_tag(tag) == normalised


@given(st.text())
def test_doing_it_twice_changes_nothing(tag: str) -> None:
    once = normalise_tag(tag)
    assert normalise_tag(once) == once


@given(st.text())
def test_only_marked_tags_keep_case_or_other_letters(tag: str) -> None:
    normalised = normalise_tag(tag)
    if not tag.startswith("@"):
        assert normalised.isascii()
        if not tag.startswith(("~", "#", "ref_", "sourceID_")):
            assert normalised == normalised.lower()


def test_commas_separate_and_repetitions_vanish() -> None:
    assert normalise_tags(["b,A", "a", "", "é,,É", "道路", "@X,Y"]) == ["b", "a", "e", "@X", "y"]
    assert normalise_tags(("x",)) == ["x"]
    assert normalise_tags([]) == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_the_result_is_normal_and_without_repetition(tags: list[str]) -> None:
    normalised = normalise_tags(tags)
    assert normalise_tags(normalised) == normalised
    assert len(set(normalised)) == len(normalised)
    assert not any("," in tag or not tag for tag in normalised)


@pytest.mark.parametrize(
    ("tags", "field", "message"),
    [
        ("road", "tags", "array of strings, not 'road'"),
        ({"a": 1}, "tags", "array of strings, not an object"),
        (["a", 7], "tags[1]", "string, not 7"),
        (["a", ["b"]], "tags[1]", "string, not an array"),
        (["a\0"], "tags[0]", "NUL"),
        (["@\ud800"], "tags[0]", "surrogate"),
        (
            ["ok", "x" * (TAG_LENGTH_MAX + 1)],
            "tags[1]",
            "257 characters, but at most 256 are allowed",
        ),
        (
            ["ok", ("x" * 255 + ",") * 17],
            "tags[1]",
            f"but at most {TAG_TEXT_BYTES_MAX} are allowed",
        ),
        (
            [f"t{index}" for index in range(TAGS_MAX + 1)],
            "tags",
            "1001 tags, but at most 1000 are allowed",
        ),
    ],
)
def test_bad_tags_are_named(tags: list[str], field: str, message: str) -> None:
    for _ in range(2):  # a refusal is not remembered as an acceptance
        with pytest.raises(InvalidArgument, match=message) as caught:
            normalise_tags(tags)
        assert caught.value.field == field

"""Selections in query strings."""

import pytest

from naksha.hub.query_language.selection import Selection, parse_selection, selection_of
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.state import XYZ

ALWAYS = (("id",), ("type",))


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("selection=p.name", (("properties", "name"),)),
        ("selection=p.a,p.b.c&x=1", (("properties", "a"), ("properties", "b", "c"))),
        ("selection=p.a%2Cp.b", (("properties", "a"), ("properties", "b"))),
        ("selection=p.a&selection=p.b", (("properties", "a"), ("properties", "b"))),
        ("selection=properties.a", (("properties", "a"),)),
        ("selection=properties", (("properties",),)),
        ("selection=p", (("p",),)),
        ("selection=rootKey", (("rootKey",),)),
        ("selection=root.key", (("root", "key"),)),
        ("selection=f.tags", (("properties", XYZ, "tags"),)),
        ("selection=f.momType", (("momType",),)),
        ("selection=g.type", (("geometry", "type"),)),
        ("selection=p.@ns:com:here:xyz", (("properties", XYZ),)),
        ("selection=none", (("none",),)),
    ],
)
def test_names_become_paths(query: str, paths: tuple[tuple[str, ...], ...]) -> None:
    assert selection_of(query) == Selection((*ALWAYS, *paths))


@pytest.mark.parametrize("query", ["selection=*", "selection=p.a,*", "selection=*&selection=p.a"])
def test_a_star_is_everything(query: str) -> None:
    selection = selection_of(query)
    assert selection == Selection(everything=True)
    assert selection.keeps_all


def test_the_geometry_can_be_left_out() -> None:
    assert selection_of("selection=!geometry") == Selection(everything=True, geometry=False)
    assert selection_of("selection=*,%21geometry") == Selection(everything=True, geometry=False)
    assert selection_of("selection=p.a,!geometry") == Selection(
        (*ALWAYS, ("properties", "a")), geometry=False
    )


@pytest.mark.parametrize(
    ("query", "has"),
    [
        ("selection=*", True),
        ("selection=properties", True),
        ("selection=p.@ns:com:here:xyz", True),
        ("selection=p.a,f.tags", True),
        ("selection=p.a", False),
        ("selection=type", False),
    ],
)
def test_whether_the_namespace_is_stored(query: str, has: bool) -> None:
    selection = selection_of(query)
    assert selection is not None
    assert selection.has(("properties", XYZ)) is has


@pytest.mark.parametrize("query", ["", "selection=", "selection=,", "p.selection=p.a"])
def test_no_selection_is_none(query: str) -> None:
    assert selection_of(query) is None


@pytest.mark.parametrize("name", ["p.", "p..a", "f.", "g.", ".a", "a.", "!p.a", "!"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_selection([name])


def test_there_is_a_limit() -> None:
    with pytest.raises(LimitExceeded):
        parse_selection(f"p.{number}" for number in range(limits.SELECTION_PATHS_MAX + 1))

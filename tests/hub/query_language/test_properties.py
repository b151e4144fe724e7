"""The property query, against the examples of the documentation and against brute force."""

from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.query_language.properties import property_query
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.query import And, Op, Or
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.testing.models.brute_force import compare, holds
from naksha.testing.models.strategies import NASTY_TEXTS, texts

A = ("properties", "a")
SPELLINGS = {
    "=": Op.EQ,
    "!=": Op.NE,
    ">=": Op.GTE,
    "=gte=": Op.GTE,
    "<=": Op.LTE,
    "=lte=": Op.LTE,
    ">": Op.GT,
    "=gt=": Op.GT,
    "<": Op.LT,
    "=lt=": Op.LT,
    "@>": Op.CONTAINS,
    "=cs=": Op.CONTAINS,
    "^=": Op.STARTS_WITH,
    "=bw=": Op.STARTS_WITH,
}


def feature(value: Any) -> dict[str, Any]:
    return {"id": "x", "properties": {"a": value}}


def matches(query: str, value: Any) -> bool:
    predicate = property_query(query)
    assert predicate is not None
    return holds(feature(value), predicate)


@pytest.mark.parametrize(("spelling", "op"), SPELLINGS.items())
@pytest.mark.parametrize("encode", [str, quote_plus, lambda text: text.replace("=", "%3D", 1)])
def test_every_operator_in_every_spelling_also_encoded(spelling: str, op: Op, encode: Any) -> None:
    assert property_query(f"p.a{encode(spelling)}xy") == PropertyTest(A, op, "xy")


def test_requests_of_the_python_client_are_understood() -> None:
    assert property_query("p.capacity%3Dgte=5") == PropertyTest(
        ("properties", "capacity"), Op.GTE, 5
    )
    assert property_query("f.id%3Dlte=AGO") == PropertyTest(("id",), Op.LTE, "AGO")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("12", 12),
        ("-12", -12),
        ("%2B12", 12),
        ("007", 7),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("9223372036854775807", 2**63 - 1),
        ("1" * 400, "1" * 400),
        ("99999999999999999999", 1e20),
        ("1e999", "1e999"),
        ("nan", "nan"),
        ("infinity", "infinity"),
        ("1_000", "1_000"),
        ("١٢", "١٢"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("'.null'", ".null"),
        ("'", "'"),
        ("''", ""),
        ("'a\"", "'a\""),
        ("", ""),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("a%2Cb", "a,b"),
        ("a=b", "a=b"),
        ("a>b", "a>b"),
    ],
)
def test_values_have_the_type_that_they_look_like(text: str, value: object) -> None:
    test = property_query(f"p.a={text}")
    assert isinstance(test, PropertyTest)
    assert (test.value, type(test.value)) == (value, type(value))


def test_pairs_are_joined_by_and_and_values_by_or() -> None:
    assert property_query("x=1&p.a=1,b&clientId=c&p.a>0&") == And(
        (
            Or((PropertyTest(A, Op.EQ, 1), PropertyTest(A, Op.EQ, "b"))),
            PropertyTest(A, Op.GT, 0),
        )
    )
    assert property_query(b"?limit=5&tags=a&handle=p.a%3D3") is None
    assert property_query("") is None


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("p.a.b", ("properties", "a", "b")),
        ("properties.a.b", ("properties", "a", "b")),
        ("p.@ns:com:here:xyz.tags", ("properties", XYZ, "tags")),
        ("p.a,b", ("properties", "a,b")),
        ("p.%61", A),
        ("p.Route+Type", ("properties", "Route Type")),
        ("f.id", ("id",)),
        ("f.createdAt", ("properties", XYZ, "createdAt")),
        ("f.updatedAt", ("properties", XYZ, "updatedAt")),
        ("f.tags", ("properties", XYZ, "tags")),
        ("f.app_id", ("properties", XYZ, "appId")),
        ("f.momType", ("momType",)),
        ("f.reference.id", ("reference", "id")),
    ],
)
def test_keys_become_paths(key: str, path: tuple[str, ...]) -> None:
    test = property_query(f"{key}=x")
    assert isinstance(test, PropertyTest)
    assert test.path == path


def test_names_of_the_namespace_that_hold_text_are_compared_with_text() -> None:
    txn = "2026011500000000001"
    assert property_query(f"f.txn={txn}") == PropertyTest(("properties", XYZ, "txn"), Op.EQ, txn)
    assert property_query("f.id=1") == PropertyTest(("id",), Op.EQ, "1")
    assert property_query("f.version=1") == PropertyTest(("properties", XYZ, "version"), Op.EQ, 1)
    assert property_query("p.@ns:com:here:xyz=1") == PropertyTest(("properties", XYZ), Op.EQ, 1)


def test_tags_are_looked_for_in_their_normal_form() -> None:
    path = ("properties", XYZ, "tags")
    assert property_query("f.tags=cs=Straße,2021,@Keep,'A'") == Or(
        tuple(PropertyTest(path, Op.CONTAINS, tag) for tag in ("strae", "2021", "@Keep", "a"))
    )


@pytest.mark.parametrize("operator", SPELLINGS)
def test_null_means_absent_or_null_whatever_the_operator(operator: str) -> None:
    unwanted = operator == "!="
    for null in (".null", ".NULL"):
        predicate = property_query(f"p.a{operator}{null}")
        assert predicate is not None
        assert holds({"properties": {}}, predicate) is not unwanted
        assert holds(feature(None), predicate) is not unwanted
        assert holds(feature(0), predicate) is unwanted


def test_a_sign_that_a_gateway_appends_is_cut() -> None:
    assert property_query("p.a>5=") == PropertyTest(A, Op.GT, 5)
    assert property_query("p.a%3C5=") == PropertyTest(A, Op.LT, 5)
    assert property_query("p.a=5=") == PropertyTest(A, Op.EQ, "5=")
    assert property_query("p.a=gt=x=") == PropertyTest(A, Op.GT, "x=")


def test_an_object_is_also_looked_for_in_an_array() -> None:
    query = "p.a=cs=" + quote('{"b":1,"c":"d"}')
    assert matches(query, {"b": 1, "c": "d", "e": 2})
    assert matches(query, [{"b": 1, "c": "d", "e": 2}, 5])
    assert not matches(query, [{"b": 1}])
    assert matches("p.a@>" + quote("[1,2]"), [3, 2, 1])
    assert not matches("p.a@>" + quote("[1,2]"), [3, 2])
    assert matches("p.a@>1", [1, 2])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("p.a", "p.a"),
        ("p.=5", "p."),
        ("p.a..b=5", "p.a..b"),
        ("f.=5", "f."),
        ("p.a>true", "p.a"),
        ("p.a=cs={", "p.a"),
        ('p.a=cs={"b":1,"c":2}', "p.a"),
        ("p.a=cs=" + "[" * 200 + "]" * 200, "p.a"),
        ("p.a=%00", "query"),
        ("p.a=%FF", "query"),
        ("p.a=\ud800", "query"),
        (b"p.a=\xff", "query"),
    ],
)
def test_errors_name_the_field(query: str | bytes, field: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        property_query(query)
    assert raised.value.field == field


def test_there_are_limits() -> None:
    most = limits.PROPERTY_CONDITIONS_MAX
    assert property_query("&".join(["p.a=1"] * most)) is not None
    with pytest.raises(LimitExceeded, match=str(most)):
        property_query("&".join(["p.a=1"] * (most + 1)))
    values = ",".join(["1"] * limits.PROPERTY_VALUES_MAX)
    assert property_query(f"p.a={values}") is not None
    with pytest.raises(LimitExceeded):
        property_query(f"p.a={values},1")
    with pytest.raises(LimitExceeded):
        property_query(f"p.a={values}&p.b=1")


@given(texts(), st.sampled_from(sorted(SPELLINGS)), st.sampled_from([quote, quote_plus]))
def test_any_text_in_quotes_comes_through_unchanged(text: str, operator: str, encode: Any) -> None:
    query = f"p.a{operator}{encode(chr(39) + text + chr(39), safe='')}"
    assert property_query(query) == PropertyTest(A, SPELLINGS[operator], text)


@given(
    st.lists(st.integers(-3, 3) | st.sampled_from(NASTY_TEXTS), min_size=1, max_size=4),
    st.sampled_from(sorted(set(SPELLINGS) - {"^=", "=bw=", "=cs=", "@>"})),
    st.integers(-3, 3) | st.sampled_from(NASTY_TEXTS) | st.booleans(),
)
def test_it_holds_if_the_comparison_with_one_of_the_values_does(
    values: list[int | str], operator: str, found: object
) -> None:
    encoded = [
        str(value) if isinstance(value, int) else quote(f'"{value}"', safe="") for value in values
    ]
    expected = any(compare(found, SPELLINGS[operator], value) for value in values)
    assert matches(f"p.a{operator}{','.join(encoded)}", found) is expected


@given(st.text(st.sampled_from("pf.a=!<>@^gtelcsbw,'\"%+&{}[]1Cn"), max_size=24))
def test_every_query_is_understood_or_refused(text: str) -> None:
    try:
        predicate = property_query("p.a" + text)
    except InvalidArgument:
        return
    assert predicate is not None
    holds(feature("a"), predicate)

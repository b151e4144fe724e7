"""JSONPath, as far as it is supported in queries over untrusted features."""

from typing import Any

import pytest

from naksha.hub.pipeline.json_path import JsonPath
from naksha.model import limits
from naksha.model.errors import InvalidArgument

FEATURE = {"id": "a", "properties": {"speed": 50, "lanes": [{"n": 1}, {"n": 2}]}}


@pytest.mark.parametrize(
    ("path", "finds"),
    [
        ("$.properties.speed", True),
        ("$.properties[?@ > 40]", True),
        ("$.properties[?@ > 60]", False),
        ("$..lanes[?@.n == $.properties.lanes[1].n]", True),
        ("$..[?count(@.*) > 5]", False),
        ("$.properties.lanes[0:5].n", True),
        ("$.properties.nothing", False),
    ],
)
def test_matches(path: str, finds: bool) -> None:
    assert JsonPath.parse(path, field="path").finds(FEATURE) is finds


@pytest.mark.parametrize(
    "path",
    [
        "no path",
        "$" + "[*,*]" * 30 + ".nothing",
        "$.a.*[?$.a.*[?$.a.*[?@.b]]]",
        "$.*[?$..x]",
        "$..*..*..nothing",
        "$.*[?@..a && @..b]",
        "$" + ".a" * 40,
        "$.a[?" + " || ".join(["@.x"] * 40) + "]",
        "$.properties[?match(@.name, '(a|a)*b')]",
        "$[?" + "!" * 900 + "@]",
        "$[?@ == 1e999999]",
        "$[?@ == " + "9" * 900 + "]",
        "$.a" + " " * 1_000,
    ],
)
def test_unbounded_expressions_are_rejected(path: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        JsonPath.parse(path, field="path")
    assert raised.value.field == "path"


def test_a_feature_may_be_as_deep_as_any() -> None:
    deep: Any = {"here": 1}
    for _ in range(limits.JSON_DEPTH_MAX - 1):
        deep = {"a": deep}
    assert JsonPath.parse("$..here", field="path").finds(deep)
    assert not JsonPath.parse("$..there", field="path").finds(deep)

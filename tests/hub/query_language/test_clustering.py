"""The parameters of clustering and of tweaks."""

import pytest

from naksha.hub.query_language.clustering import (
    CountMode,
    Ensure,
    Hexbin,
    Quadbin,
    Sampling,
    SamplingAlgorithm,
    Simplification,
    SimplificationAlgorithm,
    parse_clustering,
    parse_tweaks,
)
from naksha.model.errors import InvalidArgument


def clustering(kind: str, **parameters: str) -> object:
    return parse_clustering(
        {"clustering": kind, **{f"clustering.{name}": text for name, text in parameters.items()}}
    )


def tweaks(kind: str, **parameters: str) -> object:
    return parse_tweaks(
        {"tweaks": kind, **{f"tweaks.{name}": text for name, text in parameters.items()}}
    )


def test_hexbin() -> None:
    assert clustering("hexbin") == Hexbin()
    assert clustering(
        "hexbin",
        absoluteResolution="13",
        resolution="4",
        relativeResolution="-2",
        property="p.a.b",
        pointmode="true",
        singlecoord="TRUE",
        sampling="lowmed",
    ) == Hexbin(13, -2, "a.b", True, True, 30)
    assert clustering("HEXBIN", resolution="4", property="", sampling="off") == Hexbin(4)


def test_quadbin() -> None:
    assert clustering("quadbin") == Quadbin(count_mode=CountMode.MIXED)
    assert clustering(
        "quadbin", relativeResolution="4", noBuffer="true", countmode="real", absoluteResolution="9"
    ) == Quadbin(4, 9, True, CountMode.REAL)
    assert clustering("quadbin", resolution="3") == Quadbin(3)


def test_tweaks() -> None:
    assert tweaks("sampling") == Sampling()
    assert tweaks("sampling", strength="high", algorithm="geometrySize") == Sampling(
        100, SamplingAlgorithm.GEOMETRY_SIZE
    )
    assert tweaks("sampling", strength="7") == Sampling(7)
    assert tweaks("simplification") == Simplification()
    assert tweaks("simplification", strength="low", algorithm="simplified") == Simplification(
        20, SimplificationAlgorithm.SIMPLIFIED
    )
    assert tweaks("ensure", samplingthreshold="30") == Ensure(30)


def test_other_parameters_are_none() -> None:
    assert parse_clustering({"clustering.property": "a"}) is None
    assert parse_tweaks({"x": "y"}) is None


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("hexbin", "resolution", "16"),
        ("hexbin", "absoluteResolution", "-1"),
        ("hexbin", "relativeResolution", "3"),
        ("hexbin", "relativeResolution", "--1"),
        ("hexbin", "relativeResolution", ""),
        ("hexbin", "relativeResolution", "1.5"),
        ("hexbin", "relativeResolution", "²"),
        ("hexbin", "relativeResolution", "9" * 5000),
        ("hexbin", "pointmode", "yes"),
        ("hexbin", "sampling", "strong"),
        ("quadbin", "relativeResolution", "5"),
        ("quadbin", "relativeResolution", "-1"),
        ("quadbin", "countmode", "guess"),
    ],
)
def test_bad_parameters_of_clustering_are_named(kind: str, name: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        clustering(kind, **{name: text})
    assert raised.value.field == f"clustering.{name}"


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("sampling", "strength", "0"),
        ("sampling", "strength", "101"),
        ("sampling", "strength", "weak"),
        ("sampling", "algorithm", "grid"),
        ("simplification", "algorithm", "distribution"),
        ("ensure", "samplingthreshold", "5"),
    ],
)
def test_bad_parameters_of_tweaks_are_named(kind: str, name: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        tweaks(kind, **{name: text})
    assert raised.value.field == f"tweaks.{name}"


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="hexbin, quadbin"):
        clustering("squares")
    with pytest.raises(InvalidArgument, match="sampling, simplification, ensure"):
        tweaks("magic")

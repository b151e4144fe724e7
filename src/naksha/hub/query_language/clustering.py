"""Parameters of `clustering=…` and `tweaks=…`, parsed and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar, Final, TypeVar

import msgspec

from naksha.model.errors import InvalidArgument

Parameters = Mapping[str, str]
"""The decoded parameters of a request by name."""

T = TypeVar("T")
Name = TypeVar("Name", bound=StrEnum)

HEXAGON_RESOLUTION_MAX: Final = 13
_STRENGTHS: Final = {"low": 10, "lowmed": 30, "med": 50, "medhigh": 75, "high": 100}
_SIMPLIFICATIONS: Final = {"low": 20, "lowmed": 40, "med": 60, "medhigh": 80, "high": 100}
_RESOLUTION_ACCEPTED_MAX: Final = 15
"""Maximum of H3; finer than `HEXAGON_RESOLUTION_MAX` is accepted but not returned."""
_STRENGTH_DEFAULT: Final = 50
_THRESHOLDS: Final = (10, 100)


class CountMode(StrEnum):
    """Counting mode.

    Counts that are known exactly are exact in each mode, except that `bool` only reports whether
    there are features.
    """

    REAL = "real"
    ESTIMATED = "estimated"
    MIXED = "mixed"
    BOOL = "bool"


class Hexbin(msgspec.Struct, frozen=True):
    """`clustering=hexbin`: features counted in H3 hexagons."""

    capability: ClassVar[str] = "hexbinClustering"
    """The name that rights matrices give it."""

    resolution: int | None = None
    relative: int = 0
    property: str | None = None
    point_mode: bool = False
    single_coordinate: bool = False
    sampling: int | None = None
    """Sampling strength, see `naksha.hub.render.sampling`."""


class Quadbin(msgspec.Struct, frozen=True):
    """`clustering=quadbin`: features counted in tiles."""

    capability: ClassVar[str] = "quadbinClustering"
    """The name that rights matrices give it."""

    relative: int = 0
    resolution: int | None = None
    no_buffer: bool = False
    count_mode: CountMode = CountMode.MIXED


class SamplingAlgorithm(StrEnum):
    """Which features a sample has: any, or large ones."""

    DISTRIBUTION = "distribution"
    DISTRIBUTION2 = "distribution2"
    GEOMETRY_SIZE = "geometrysize"


class SimplificationAlgorithm(StrEnum):
    """Algorithm that simplifies or combines geometries."""

    GRID = "grid"
    GRID_BY_TILE_LEVEL = "gridbytilelevel"
    SIMPLIFIED = "simplified"
    SIMPLIFIED_KEEP_TOPOLOGY = "simplifiedkeeptopology"
    MERGE = "merge"
    LINE_MERGE = "linemerge"

    @property
    def joins(self) -> bool:
        """Whether several features are combined into one."""
        return self in (SimplificationAlgorithm.MERGE, SimplificationAlgorithm.LINE_MERGE)


class Sampling(msgspec.Struct, frozen=True):
    """`tweaks=sampling`: a sample of the features."""

    strength: int = _STRENGTH_DEFAULT
    algorithm: SamplingAlgorithm = SamplingAlgorithm.DISTRIBUTION


class Simplification(msgspec.Struct, frozen=True):
    """`tweaks=simplification`: fewer coordinates; the default strength depends on the area."""

    strength: int | None = None
    algorithm: SimplificationAlgorithm = SimplificationAlgorithm.GRID


class Ensure(msgspec.Struct, frozen=True):
    """`tweaks=ensure`: a sample of at most this many thousand features."""

    thousands: int = _THRESHOLDS[0]


def parse_clustering(parameters: Parameters) -> Hexbin | Quadbin | None:
    """Parse the requested clustering, if any."""
    kind = parameters.get("clustering")
    if kind is None:
        return None
    kinds: dict[str, Callable[[Parameters], Hexbin | Quadbin]] = {
        "hexbin": _hexbin,
        "quadbin": _quadbin,
    }
    return _one_of("clustering", kind, kinds)(parameters)


def parse_tweaks(parameters: Parameters) -> Sampling | Simplification | Ensure | None:
    """Parse the requested tweaks, if any."""
    kind = parameters.get("tweaks")
    if kind is None:
        return None
    kinds: dict[str, Callable[[Parameters], Sampling | Simplification | Ensure]] = {
        "sampling": _sampling,
        "simplification": _simplification,
        "ensure": _ensure,
    }
    return _one_of("tweaks", kind, kinds)(parameters)


def _hexbin(parameters: Parameters) -> Hexbin:
    most = _RESOLUTION_ACCEPTED_MAX
    older = _integer(parameters, "clustering.resolution", 0, most)
    absolute = _integer(parameters, "clustering.absoluteResolution", 0, most)
    sampling = parameters.get("clustering.sampling", "off")
    return Hexbin(
        resolution=older if absolute is None else absolute,
        relative=_integer(parameters, "clustering.relativeResolution", -2, 2) or 0,
        property=(parameters.get("clustering.property") or "").removeprefix("p.") or None,
        point_mode=_flag(parameters, "clustering.pointmode"),
        single_coordinate=_flag(parameters, "clustering.singlecoord"),
        sampling=_one_of("clustering.sampling", sampling, {"off": None, **_STRENGTHS}),
    )


def _quadbin(parameters: Parameters) -> Quadbin:
    older = _integer(parameters, "clustering.resolution", 0, 4)
    relative = _integer(parameters, "clustering.relativeResolution", 0, 4)
    return Quadbin(
        relative=(older if relative is None else relative) or 0,
        resolution=_integer(parameters, "clustering.absoluteResolution", 0, 30),
        no_buffer=_flag(parameters, "clustering.noBuffer"),
        count_mode=_member(parameters, "clustering.countmode", CountMode, CountMode.MIXED),
    )


def _sampling(parameters: Parameters) -> Sampling:
    field = "tweaks.algorithm"
    return Sampling(
        _strength(parameters, _STRENGTHS) or _STRENGTH_DEFAULT,
        _member(parameters, field, SamplingAlgorithm, SamplingAlgorithm.DISTRIBUTION),
    )


def _simplification(parameters: Parameters) -> Simplification:
    field = "tweaks.algorithm"
    return Simplification(
        _strength(parameters, _SIMPLIFICATIONS),
        _member(parameters, field, SimplificationAlgorithm, SimplificationAlgorithm.GRID),
    )


def _ensure(parameters: Parameters) -> Ensure:
    return Ensure(_integer(parameters, "tweaks.samplingthreshold", *_THRESHOLDS) or _THRESHOLDS[0])


def _strength(parameters: Parameters, names: Mapping[str, int]) -> int | None:
    text = parameters.get("tweaks.strength")
    if text is None or text in names:
        return None if text is None else names[text]
    return _integer(parameters, "tweaks.strength", 1, 100)


def _integer(parameters: Parameters, field: str, least: int, most: int) -> int | None:
    text = parameters.get(field)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InvalidArgument(
            f'Parameter "{field}" must be an integer, not {text!r:.64}', field=field
        )
    if not least <= int(text) <= most:
        raise InvalidArgument(
            f'Parameter "{field}" is {text}; it must be in {least}..{most}', field=field
        )
    return int(text)


def _flag(parameters: Parameters, field: str) -> bool:
    text = parameters.get(field, "false")
    return _one_of(field, text, {"true": True, "false": False, "": True})


def _member(parameters: Parameters, field: str, kind: type[Name], default: Name) -> Name:
    text = parameters.get(field, default.value)
    return _one_of(field, text, {member.value: member for member in kind})


def _one_of(field: str, text: str, known: Mapping[str, T]) -> T:
    if text.lower() not in known:
        names = ", ".join(filter(None, known))
        raise InvalidArgument(
            f'Parameter "{field}" is {text!r:.64}; use one of {names}', field=field
        )
    return known[text.lower()]

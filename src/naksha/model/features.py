"""Checking and splitting of features sent by clients, for a set-based write.

The fast path works in C (msgspec, NumPy, shapely) and only detects that a value is invalid;
`json_rules` and `geometry_rules` then determine which one and why.  The input is never modified.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec
import numpy as np

from naksha.model.damage import DAMAGED
from naksha.model.errors import LimitExceeded
from naksha.model.feature_problems import FeatureProblem, ProblemError, invalid_feature, readable_id
from naksha.model.gc_pause import uncollected
from naksha.model.geo.geometry import encode_geometries
from naksha.model.identity.names import text_problem
from naksha.model.json_rules import json_problem
from naksha.model.limits import (
    CRID_BYTES_MAX,
    FEATURE_BYTES_MAX,
    FEATURE_ID_BYTES_MAX,
    GENERATED_ID_LENGTH,
    INT8_MAX,
    JSON_DEPTH_MAX,
    STATE_ID_BYTES_MAX,
    WRITE_BYTES_MAX,
    WRITE_FEATURES_MAX,
)
from naksha.model.tags import checked_tags
from naksha.model.value_text import value_text

NAMESPACE: Final = "@ns:com:here:xyz"
"""Member of `properties` that belongs to the storage."""

MARK_3D: Final = "naksha:3d"
"""Member of features reserved for storages; a value sent by a client is dropped."""

CRID_CLEARED: Final = ""
"""Marks an explicit `crid: null`; unambiguous, because an empty `crid` is refused."""

Feature = Mapping[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_OBJECT: Final = (dict, Mapping)
"""Types of a JSON object; `isinstance` is much cheaper with the common type first."""

_BYTES_PER_CHARACTER_MAX: Final = 4
_LETTERS_AND_DIGITS: Final = (string.ascii_letters + string.digits).encode()
_TO_LETTERS_AND_DIGITS: Final = bytes(
    _LETTERS_AND_DIGITS[byte % len(_LETTERS_AND_DIGITS)] for byte in range(256)
)
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_STEPS: Final = np.zeros(256, dtype=np.int8)
_STEPS[[*b"[{"]] = 1
_STEPS[[*b"]}"]] = -1


@dataclass(frozen=True, slots=True)
class PreparedFeatures:
    """Parallel lists with one entry per feature to write, without duplicate ids."""

    positions: list[int]
    """The position of the feature in the input."""
    ids: list[str]
    json: list[bytes]
    """The feature without geometry and namespace; it always has `id` and `properties`."""
    wkb: list[bytes | None]
    has_z: list[bool]
    qrid: list[str | None]
    tags: list[list[str] | None]
    """None: not given, as opposed to an empty list."""
    crid: list[str | None]
    """None: not given; CRID_CLEARED: given as null, which removes it."""
    lock_uuid: list[str | None]
    """The state id that the client expects; not parsed, because it may come from another system."""
    lock_version: list[int | None]
    values: list[dict[str, Any] | None]
    """The value of `json` if the feature was parsed from JSON, so that a comparison need not parse
    it again; else None, because the caller may change the feature meanwhile."""

    def __len__(self) -> int:
        return len(self.ids)


@uncollected
def check_features(
    features: Sequence[Feature],
    *,
    id_prefix: str | None = None,
    generate_ids: bool = False,
    is_json: bool = False,
) -> PreparedFeatures:
    """Check features and split them into columns; of features with the same id the last one wins.

    Args:
        features: GeoJSON features; an integer id is converted to decimal text.
        id_prefix: Prefix that is removed from ids that start with it.
        generate_ids: Whether to generate missing ids instead of refusing the feature.
        is_json: Whether all values were parsed from JSON. Otherwise the JSON of each feature is
            parsed again, to find values that it does not express.
    """
    if len(features) > WRITE_FEATURES_MAX:
        raise LimitExceeded(
            f"The write has {len(features)} features, but at most {WRITE_FEATURES_MAX} are "
            "allowed; split it"
        )
    _check_envelopes(features)
    ids = _ids_of(features, id_prefix, generate_ids)
    bodies, values, namespaces = _bodies_of(features, ids, is_json)
    prepared = _parts_of(features, ids, bodies, namespaces)
    prepared.values[:] = values
    _check_sizes(features, prepared)
    return _without_duplicates(prepared)


def generate_ids(count: int) -> list[str]:
    """Generate random ids of letters and digits."""
    size = GENERATED_ID_LENGTH
    text = os.urandom(count * size).translate(_TO_LETTERS_AND_DIGITS).decode("ascii")
    return [text[start : start + size] for start in range(0, count * size, size)]


# ---- Envelope and ids ----------------------------------------------------------------------------


def _check_envelopes(features: Sequence[object]) -> None:
    for position, feature in enumerate(features):
        if not isinstance(feature, _OBJECT):
            problem = FeatureProblem("", f"must be a GeoJSON object, not {value_text(feature)}")
            raise invalid_feature(problem, {}, position)
        if feature.get("type") != "Feature":
            problem = FeatureProblem(
                "type", f"must be 'Feature', not {value_text(feature.get('type'))}"
            )
            raise invalid_feature(problem, feature, position)


def _ids_of(features: Sequence[Feature], prefix: str | None, generate: bool) -> list[str]:
    given: list[Any] = [feature.get("id") for feature in features]
    if not prefix and are_plain_ids(given):
        return given
    fresh = iter(generate_ids(given.count(None)) if generate else ())
    return [
        _id_of(next(fresh, None) if value is None else value, prefix or "", feature, position)
        for position, (value, feature) in enumerate(zip(given, features, strict=True))
    ]


def are_plain_ids(ids: list[Any]) -> bool:
    """Return whether all ids can stay as they are.

    NUL and lone surrogates are not looked for here: the check of the feature's JSON finds them.
    """
    if set(map(type, ids)) != {str} or not all(ids):
        return False
    return max(map(len, ids)) * _BYTES_PER_CHARACTER_MAX <= FEATURE_ID_BYTES_MAX


def _id_of(value: object, prefix: str, feature: Feature, position: int) -> str:
    problem: str | None
    if value is None:
        problem = "is missing; give the feature an id"
    else:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT8_MAX:
            value = str(value)
        problem = text_problem(value, FEATURE_ID_BYTES_MAX)
    if problem is None:
        assert isinstance(value, str)
        if value != prefix or not prefix:
            return value.removeprefix(prefix)
        problem = f"must be longer than the id prefix {prefix!r} of the collection"
    raise invalid_feature(FeatureProblem("id", problem), feature, position)


# ---- JSON ----------------------------------------------------------------------------------------


def _bodies_of(
    features: Sequence[Feature], ids: list[str], is_json: bool
) -> tuple[list[bytes], list[dict[str, Any] | None], dict[int, Any]]:
    """Return JSON and value of every feature, and the given namespaces by position."""
    bodies: list[bytes] = []
    values: list[dict[str, Any] | None] = []
    namespaces: dict[int, Any] = {}
    for position, feature in enumerate(features):
        body = {**feature}
        body.pop("geometry", None)
        body.pop(MARK_3D, None)
        body.pop(DAMAGED, None)
        body["id"] = ids[position]
        properties = body.get("properties")
        if properties is None:
            body["properties"] = {}
        elif not isinstance(properties, _OBJECT):
            problem = f"must be an object, not {value_text(properties)}"
            raise invalid_feature(FeatureProblem("properties", problem), feature, position)
        elif NAMESPACE in properties or type(properties) is not dict:
            body["properties"] = properties = {**properties}
            namespaces[position] = properties.pop(NAMESPACE, None)
        bodies.append(_json_of(body, feature, position, is_json))
        values.append(body if is_json else None)
    return bodies, values, namespaces


def _json_of(body: dict[str, Any], feature: Feature, position: int, is_json: bool) -> bytes:
    """Encode a feature as JSON that decodes to the same value, or raise an error.

    msgspec encodes NaN as null, and silently converts numeric member names and dates to strings.
    Decoding and comparing detects all of that in C, faster than a check of every value in Python.
    """
    try:
        text = _encode(body)
        if b"\\u0000" not in text and not is_deep(text) and (is_json or _decode(text) == body):
            return text
        failure = None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        text, failure = b"", error
    problem = json_problem(body)
    if problem is None and failure is not None:
        problem = FeatureProblem("", f"cannot be written as JSON: {failure}")
    if problem is not None:
        raise invalid_feature(problem, feature, position)
    return text


def is_deep(text: bytes) -> bool:
    """Return whether JSON is nested deeper than allowed; cheap unless it has many brackets."""
    if len(text) <= 2 * JSON_DEPTH_MAX or text.count(b"{") + text.count(b"[") <= JSON_DEPTH_MAX:
        return False
    brackets = np.frombuffer(_TEXT.sub(b"", text), dtype=np.uint8)
    return bool(np.cumsum(_STEPS[brackets], dtype=np.int64).max() > JSON_DEPTH_MAX)


# ---- Namespace, geometry and sizes ---------------------------------------------------------------


def _parts_of(
    features: Sequence[Feature], ids: list[str], bodies: list[bytes], namespaces: dict[int, Any]
) -> PreparedFeatures:
    count = len(features)
    geometries = encode_geometries(features)
    prepared = PreparedFeatures(
        positions=list(range(count)),
        ids=ids,
        json=bodies,
        wkb=geometries.wkb,
        has_z=geometries.has_z,
        qrid=geometries.qrid,
        tags=[None] * count,
        crid=[None] * count,
        lock_uuid=[None] * count,
        lock_version=[None] * count,
        values=[None] * count,
    )
    for position, namespace in namespaces.items():
        try:
            _read_namespace(prepared, position, namespace)
        except ProblemError as broken:
            problem = broken.problem.below(f"properties.{NAMESPACE}")
            raise invalid_feature(problem, features[position], position) from None
    return prepared


def _read_namespace(prepared: PreparedFeatures, position: int, given: object) -> None:
    """Copy the members that clients may set; all others belong to the storage and are ignored."""
    if given is None:
        return
    if not isinstance(given, _OBJECT):
        raise ProblemError("", f"must be an object, not {value_text(given)}")
    tags, version = given.get("tags"), given.get("version")
    if tags is not None:
        prepared.tags[position] = _tags(tags)
    if version is not None:
        prepared.lock_version[position] = _version(version)
    if "crid" in given:
        prepared.crid[position] = _text(given, "crid", CRID_BYTES_MAX) or CRID_CLEARED
    if "uuid" in given:
        prepared.lock_uuid[position] = _text(given, "uuid", STATE_ID_BYTES_MAX)


def _text(namespace: Mapping[str, Any], name: str, bytes_max: int) -> str | None:
    value: str | None = namespace.get(name)
    message = None if value is None else text_problem(value, bytes_max)
    if message is not None:
        raise ProblemError(name, message)
    return value


def _tags(tags: object) -> list[str]:
    try:
        return checked_tags(tags)
    except ProblemError as broken:
        problem = broken.problem.below("tags")
        raise ProblemError(problem.path, problem.message) from None


def _version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int):
        raise ProblemError("version", f"must be an integer, not {value_text(version)}")
    if not 0 <= version <= INT8_MAX:
        raise ProblemError(
            "version", f"must be between 0 and {INT8_MAX}, not {value_text(version)}"
        )
    return version


def _check_sizes(features: Sequence[Feature], prepared: PreparedFeatures) -> None:
    total = 0
    for position, (body, wkb) in enumerate(zip(prepared.json, prepared.wkb, strict=True)):
        size = len(body) if wkb is None else len(body) + len(wkb)
        total += size
        if size > FEATURE_BYTES_MAX:
            field, id_ = f"features[{position}]", readable_id(features[position].get("id"))
            problem = FeatureProblem(
                "", f"has {size} bytes, but at most {FEATURE_BYTES_MAX} are allowed"
            )
            message = problem.sentence(field) if id_ is None else problem.sentence_of(id_)
            raise LimitExceeded(message, field=field, feature_id=id_)
    if total > WRITE_BYTES_MAX:
        raise LimitExceeded(
            f"The features of the write have {total} bytes, but at most {WRITE_BYTES_MAX} are "
            "allowed; split it"
        )


def _without_duplicates(prepared: PreparedFeatures) -> PreparedFeatures:
    last = dict(zip(prepared.ids, prepared.positions, strict=True))
    if len(last) == len(prepared):
        return prepared
    kept = sorted(last.values())
    parts = {each.name: getattr(prepared, each.name) for each in fields(prepared)}
    return PreparedFeatures(**{name: [part[at] for at in kept] for name, part in parts.items()})

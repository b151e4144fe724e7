"""Checking and splitting of features given as columns, for a set-based write.

Rows that are obviously valid, nearly all of them, are processed column by column in C (msgspec,
NumPy, shapely). Every other row is converted to a feature and checked by `check_features`, so that
there is one set of rules; its errors are reported for that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import shapely

from naksha.model.errors import InvalidArgument, LimitExceeded, NakshaError
from naksha.model.feature_problems import FeatureProblem, ProblemError, readable_id
from naksha.model.features import (
    MARK_3D,
    NAMESPACE,
    PreparedFeatures,
    are_plain_ids,
    check_features,
    generate_ids,
    is_deep,
)
from naksha.model.gc_pause import uncollected
from naksha.model.geo.geometry import qrids_of, wkb_of
from naksha.model.geo.wkb_rules import Mask, geojson_like, shapes_of
from naksha.model.identity.names import text_problem
from naksha.model.json_text import features_of
from naksha.model.limits import CRID_BYTES_MAX, FEATURE_BYTES_MAX, FEATURE_ID_BYTES_MAX
from naksha.model.tags import checked_tags
from naksha.model.value_text import value_text

_decode = msgspec.json.Decoder().decode

_OWN: Final = ("id", "geometry", "properties")
"""Members that have columns of their own."""
_JUDGED: Final = frozenset({*_OWN, "type", MARK_3D})
"""Members that need a check by `check_features`."""
_NAMESPACE_JSON: Final = msgspec.json.encode(NAMESPACE) + b":"
_NUL_JSON: Final = b"\\u0000"
_ONLY: Final = "features[0]"

Texts = list[str | None]


@uncollected
def check_columns(
    batch: pa.RecordBatch, *, id_prefix: str | None = None, first_row: int = 0
) -> PreparedFeatures:
    """Check features in the columns of `naksha.spi.arrow.INPUT`, all of which must be present.

    Does the same as `check_features`, except that a duplicate id is refused: rows have no order in
    which the last one could take precedence. A feature without an id gets a generated one. In the
    JSON of each feature `properties` comes last.

    Args:
        batch: The features.
        id_prefix: Prefix that is removed from ids that start with it.
        first_row: The number of the first row, for errors.
    """
    rows = _Rows(batch, id_prefix or "", first_row)
    prepared = rows.prepared()
    _check_unique(prepared.ids, first_row)
    return prepared


class _Rows:
    """Rows of a batch as Python lists; a mask tells which ones are obviously valid ("plain")."""

    def __init__(self, batch: pa.RecordBatch, prefix: str, first_row: int) -> None:
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"The record batch is not valid Arrow data: {error}", field="batch"
            ) from error
        self._prefix = prefix
        self._first_row = first_row
        self._count = batch.num_rows
        self._given: Texts = _values(batch.column("id"))
        self._wkbs: list[bytes | None] = _values(batch.column("geometry"))
        self._properties = self._objects(batch.column("properties"), "properties")
        self._members = self._objects(batch.column("members"), "members")
        self._tags = self._tags_of(batch.column("tags"))
        self._crids = self._crids_of(batch.column("crid"))

    def prepared(self) -> PreparedFeatures:
        shapes, plain = shapes_of(self._wkbs)
        ids = self._ids(plain)
        bodies = self._bodies(ids, plain)
        # Invalid shapes would break `qrids_of`.
        shapes[~plain] = None
        wkbs = wkb_of(shapes)
        self._check_sizes(bodies, wkbs, plain)
        prepared = PreparedFeatures(
            positions=list(range(self._count)),
            ids=ids,
            json=bodies,
            wkb=wkbs,
            has_z=shapely.has_z(shapes).tolist(),
            qrid=qrids_of(shapes),
            tags=self._tags,
            crid=self._crids,
            lock_uuid=[None] * self._count,
            lock_version=[None] * self._count,
            values=[None] * self._count,
        )
        self._put_checked(prepared, np.flatnonzero(~plain).tolist())
        return prepared

    # ---- Columns -----------------------------------------------------------------------------

    def _objects(self, column: pa.Array, field: str) -> list[dict[str, Any] | None]:
        """Return the parsed JSON objects of a column."""
        texts: list[Any] = _values(column)
        found: list[Any]
        try:
            if column.null_count:
                found = [None if text is None else _decode(text) for text in texts]
            else:
                found = [_decode(text) for text in texts if text is not None]
            if set(map(type, found)) <= {dict, type(None)}:
                return found
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass
        for row, text in enumerate(texts):
            message = None if text is None else _object_problem(text)
            if message is not None:
                raise self._error(FeatureProblem(field, message), row)
        raise AssertionError(f"column {field} was refused, but each of its rows is valid")

    def _tags_of(self, column: pa.Array) -> list[list[str] | None]:
        count = len(column)
        if column.null_count == count:
            return [None] * count
        words = _values(column.values)
        ends = column.offsets.to_numpy().tolist()
        lists: list[tuple[Any, ...] | None] = [
            tuple(words[start:end]) for start, end in pairwise(ends)
        ]
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            lists[row] = None
        try:
            # Most features share a few tag lists: check each distinct list once.
            known = {tags: None if tags is None else checked_tags(tags) for tags in set(lists)}
        except ProblemError:
            for row, tags in enumerate(lists):
                self._check_tags(tags, row)
            raise
        return list(map(known.__getitem__, lists))

    def _check_tags(self, tags: tuple[Any, ...] | None, row: int) -> None:
        try:
            checked_tags(tags or ())
        except ProblemError as broken:
            raise self._error(broken.problem.below("tags"), row) from None

    def _crids_of(self, column: pa.Array) -> Texts:
        crids: Texts = _values(column)
        if column.null_count < len(column):
            for row, crid in enumerate(crids):
                message = None if crid is None else text_problem(crid, CRID_BYTES_MAX)
                if message is not None:
                    raise self._error(FeatureProblem("crid", message), row)
        return crids

    def _ids(self, plain: Mask) -> list[str]:
        """Return the ids as they are stored; rows with an invalid id are marked as not plain."""
        fresh = iter(generate_ids(self._given.count(None)))
        prefix = self._prefix
        ids = [next(fresh) if i is None else i.removeprefix(prefix) for i in self._given]
        if not are_plain_ids(ids) or "\0" in "".join(ids):
            for row, (given, id_) in enumerate(zip(self._given, ids, strict=True)):
                if not id_ or (given is not None and _has_problem(given)):
                    plain[row] = False
        return ids

    # ---- JSON --------------------------------------------------------------------------------

    def _bodies(self, ids: list[str], plain: Mask) -> list[bytes]:
        bodies = features_of(ids, self._properties, self._members)
        whole = b"\n".join(bodies)
        if _NUL_JSON in whole or _NAMESPACE_JSON in whole:
            for row, body in enumerate(bodies):
                if _NUL_JSON in body or _NAMESPACE_JSON in body:
                    plain[row] = False
        plain[[row for row, body in enumerate(bodies) if is_deep(body)]] = False
        if any(self._members):
            judged = [not _JUDGED.isdisjoint(each or ()) for each in self._members]
            plain[judged] = False
        return bodies

    def _check_sizes(self, bodies: list[bytes], wkbs: list[bytes | None], plain: Mask) -> None:
        sizes = np.fromiter(map(len, bodies), np.int64, self._count)
        sizes += np.fromiter((0 if wkb is None else len(wkb) for wkb in wkbs), np.int64)
        plain[sizes > FEATURE_BYTES_MAX] = False

    # ---- Rows that are not plain -------------------------------------------------------------

    def _put_checked(self, prepared: PreparedFeatures, rows: list[int]) -> None:
        """Check rows with `check_features` and put the results in their places."""
        if not rows:
            return
        features = [self._feature(row) for row in rows]
        try:
            judged = check_features(features, id_prefix=self._prefix, generate_ids=True)
            parts = [judged] if len(judged) == len(rows) else []
        except NakshaError:
            parts = []
        if not parts:
            # Check one by one, to report the row; or all are valid, but too large together.
            parts = [self._checked(row, each) for row, each in zip(rows, features, strict=True)]
        for name in (each.name for each in fields(prepared) if each.name != "positions"):
            column, values = getattr(prepared, name), [v for p in parts for v in getattr(p, name)]
            for row, value in zip(rows, values, strict=True):
                column[row] = value

    def _checked(self, row: int, feature: dict[str, Any]) -> PreparedFeatures:
        try:
            return check_features([feature], id_prefix=self._prefix, generate_ids=True)
        except (InvalidArgument, LimitExceeded) as error:
            error.position = self._first_row + row
            if error.message.startswith(_ONLY):
                text = error.message.removeprefix(_ONLY)
                error.message = text[1:] if text.startswith(".") else f"The feature{text}"
            if error.field is not None and error.field.startswith(_ONLY):
                error.field = error.field.removeprefix(_ONLY).lstrip(".") or None
            raise

    def _feature(self, row: int) -> dict[str, Any]:
        """Return the row as a GeoJSON feature."""
        members, properties = self._members[row] or {}, self._properties[row] or {}
        for name in _OWN:
            if name in members:
                problem = FeatureProblem(
                    f"members.{name}", f"must be given in the column {name}, not in members"
                )
                raise self._error(problem, row)
        wkb = self._wkbs[row]
        try:
            geometry = None if wkb is None else geojson_like(wkb)
        except ProblemError as broken:
            raise self._error(broken.problem.below("geometry"), row) from None
        return {
            "type": "Feature",
            **members,
            "id": self._given[row],
            "geometry": geometry,
            "properties": self._with_columns(properties, row),
        }

    def _with_columns(self, properties: dict[str, Any], row: int) -> dict[str, Any]:
        """Return properties with a namespace that includes the columns `tags` and `crid`."""
        own = {"tags": self._tags[row], "crid": self._crids[row]}
        present = {name: value for name, value in own.items() if value is not None}
        namespace = properties.get(NAMESPACE)
        if not present or not isinstance(namespace, dict | None):
            return properties
        return {**properties, NAMESPACE: {**(namespace or {}), **present}}

    def _error(self, problem: FeatureProblem, row: int) -> InvalidArgument:
        feature_id = readable_id(self._given[row])
        message = problem.sentence() if feature_id is None else problem.sentence_of(feature_id)
        error = InvalidArgument(message, field=problem.path, feature_id=feature_id)
        error.position = self._first_row + row
        return error


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; several times faster than `to_pylist`."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _object_problem(text: str) -> str | None:
    try:
        found = _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return f"is not valid JSON: {error}"
    if found is None or isinstance(found, dict):
        return None
    return f"must be an object, not {value_text(found)}"


def _has_problem(id_: str) -> bool:
    return text_problem(id_, FEATURE_ID_BYTES_MAX) is not None


def _check_unique(ids: Sequence[str], first_row: int) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        if id_ in seen:
            error = InvalidArgument(
                f"The id {id_!r:.64} occurs in rows {first_row + seen[id_]} and "
                f"{first_row + row}; remove one of them",
                field="id",
                feature_id=id_,
            )
            error.position = first_row + row
            raise error
        seen[id_] = row

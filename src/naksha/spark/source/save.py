"""Implementation of `naksha.spark.write`, which writes a DataFrame and returns a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import MapType, StructField, StructType, VariantType

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, NakshaError, OutcomeUnknown, Unavailable
from naksha.spark.runtime.failures import MARK, ours
from naksha.spark.runtime.sessions import UTC, set_up
from naksha.spark.runtime.storage_cache import shared_storage
from naksha.spark.source.input_columns import check_columns
from naksha.spark.source.json_numbers import (
    INFINITE,
    NO_JSON,
    has_no_json,
    has_variant,
    is_certainly_infinite,
    is_infinite,
    without_nan,
    without_null_entries,
)
from naksha.spark.source.options import StorageRef, storage_ref_of
from naksha.spark.source.write import applied_job
from naksha.spark.source.write_options import WriteOptions, options_of
from naksha.spi.staging import AppliedWrite, StagedWrite, WriteMode, check_write
from naksha.versioning.version_refs import MAIN_BRANCH

_JSON_COLUMNS: Final = ("properties", "members")
_AS_JSON: Final = {"timeZone": UTC, "ignoreNullFields": "true"}
"""Independent of the settings of the session."""


def write(
    frame: DataFrame,
    storage: str,
    collection: str | CollectionInfo,
    *,
    app_id: str,
    mode: WriteMode | str = WriteMode.CREATE,
    key: Sequence[str] | None = None,
    author: str | None = None,
    message: str | None = None,
    job: str | None = None,
    branch: str = MAIN_BRANCH,
    schema: str | None = None,
) -> AppliedWrite:
    """Write a DataFrame as features of a collection with one transaction, and return the result.

    `df.write.format("naksha")` does the same without a result.

    Columns are `id`, `geometry`, `properties`, `members`, `tags` and `crid`; all are optional.
    `properties` and `members` may also be structs, maps or variants. A new collection gets the
    settings of `collection`. `key` is the path for mode "replace". A `job` that was applied before
    is not written again. `schema` is the PostgreSQL schema.

    Raises:
        NakshaError: The error of the storage, with the feature and the field that it concerns.
    """
    info = CollectionInfo(id=collection) if isinstance(collection, str) else collection
    staged = StagedWrite(
        job=job or uuid4().hex,
        info=info,
        mode=WriteMode(mode),
        app_id=app_id,
        author=author,
        message=message,
        key=None if key is None else tuple(key),
    )
    check_write(staged, ())
    place = storage_ref_of({"storage": storage} | ({} if schema is None else {"schema": schema}))
    before = applied_job(shared_storage(place), staged.job, info.id, branch)
    if before is not None:
        return before
    written = _with_json(frame)
    check_columns(written.schema)
    set_up(frame.sparkSession)
    options = options_of(WriteOptions(place, staged, branch))
    try:
        written.write.format("naksha").options(**options).mode("append").save()
    except PySparkException as error:
        return _written(place, staged, branch, ours(error))
    done = applied_job(shared_storage(place), staged.job, info.id, branch)
    if done is None:
        raise OutcomeUnknown(
            "Spark reported a successful write, but the storage has no record of job "
            f"{staged.job!r}; check the collection before you repeat the write",
            field="job",
        )
    return msgspec.structs.replace(done, repeated=False)


def _written(
    place: StorageRef, write: StagedWrite, branch: str, error: BaseException
) -> AppliedWrite:
    """Determine the result of a write that Spark reported as failed: it may have been applied.

    Raises:
        BaseException: The error, if nothing was written.
        OutcomeUnknown: The storage did not report whether it was written.
    """
    try:
        done = applied_job(shared_storage(place), write.job, write.info.id, branch)
    except NakshaError as reason:
        if isinstance(error, NakshaError) and not isinstance(error, Unavailable):
            raise error from error.__cause__
        raise OutcomeUnknown(
            f"{error!s:.500}; the storage did not report whether the features were written, so "
            "check before you repeat the write",
            field="job",
        ) from reason
    if done is None:
        raise error from error.__cause__
    return msgspec.structs.replace(done, repeated=False)


def _with_json(frame: DataFrame) -> DataFrame:
    """Convert structs, maps and variants in the columns of JSON to JSON texts.

    Fields and entries that are null or NaN are omitted, and infinite ones are rejected. The content
    of a variant is not changed.
    """
    texts = {
        field.name: _json(field, frame.columns)
        for field in frame.schema.fields
        if field.name in _JSON_COLUMNS
        and isinstance(field.dataType, StructType | MapType | VariantType)
    }
    return frame.withColumns(texts) if texts else frame


def _json(field: StructField, columns: Sequence[str]) -> Column:
    value = without_nan(f.col(field.name), field.dataType)
    value = without_null_entries(value, field.dataType)
    text = f.to_json(value, _AS_JSON)
    refused = f.when(f.lit(False), f.lit(""))
    infinite = _infinite(field)
    if infinite is not None:
        refused = refused.when(infinite.isNotNull(), _refused(infinite, INFINITE, columns))
    if has_variant(field.dataType):
        is_wrong = has_no_json(value, text)
        refused = refused.when(is_wrong, _refused(f.lit(field.name), NO_JSON, columns))
    return refused.otherwise(text)


def _infinite(field: StructField) -> Column | None:
    """Return the name of the first member that is infinite or contains an infinite number."""
    type_, given = field.dataType, f.col(field.name)
    if isinstance(type_, MapType):
        kind = type_.valueType
        if is_infinite(given, type_) is None:
            return None
        found = f.map_filter(given, lambda _, value: is_certainly_infinite(value, kind))
        return f.concat(f.lit(f"{field.name}."), f.get(f.map_keys(found), f.lit(0)))
    if not isinstance(type_, StructType):
        return None
    tests = [(each.name, is_infinite(given[each.name], each.dataType)) for each in type_]
    names = [
        f.when(test, f.lit(f"{field.name}.{name}")) for name, test in tests if test is not None
    ]
    return f.coalesce(*names) if names else None


def _refused(field: Column, reason: str, columns: Sequence[str]) -> Column:
    """Build an expression that fails the write, as an error raised by a task does."""
    failure = {"code": InvalidArgument.code, "message": reason}
    members = [f.lit(value).alias(name) for name, value in failure.items()]
    members.append(field.alias("field"))
    if "id" in columns:
        members.append(f.col("id").cast("string").alias("feature_id"))
    # Spark appends more text, so the note is terminated by a line break.
    note = f.concat(f.lit(f"{MARK} "), f.to_json(f.struct(*members)), f.lit("\n"))
    return f.raise_error(note).cast("string")

"""Comparison of the features of files, as a load would write them, with those of a version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.errors import InvalidArgument
from naksha.model.state import XYZ
from naksha.spark.jobs.loading.check import REJECTED, RecordChecker
from naksha.spark.jobs.state_pairs import STATE
from naksha.spi.arrow import INPUT

BEFORE: Final = ("properties", "members", "tags", "crid")
"""Columns of the version for a quick test whether a feature is unchanged."""
_READ: Final = pa.schema([*INPUT, *(field for field in REJECTED if field.name not in INPUT.names)])
READ_ROWS: Final[StructType] = from_arrow_schema(_READ)
"""Rows that `Reading` returns: features, and rejected records, which have a `reason`."""
_EMPTY: Final = r"^\s*\{\s*\}\s*$"


class Reading(msgspec.Struct, frozen=True):
    """Task that converts records to features and rejects, as a load does."""

    checker: RecordChecker

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the records of a partition."""
        for batch in batches:
            found = self.checker.check(batch)
            for part in (*found.given, found.rejected):
                yield _aligned(part)


def _aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in _READ
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_READ)


def without_prefix(given: DataFrame, prefix: str | None) -> DataFrame:
    """Remove the id prefix of the collection, as a storage does."""
    if prefix is None:
        return given
    cut = f.substring("id", f.lit(len(prefix) + 1), f.length("id"))
    bare = f.when(f.col("id").startswith(prefix), cut).otherwise(f.col("id"))
    return given.withColumn("id", bare)


def check_unique(given: DataFrame) -> None:
    """Reject duplicate ids, as a load does."""
    ids = given.where(f.col("id").isNotNull()).groupBy("id").count()
    twice = ids.where("count > 1").orderBy("id").first()
    if twice is not None:
        raise InvalidArgument(
            f"The files contain several features with the id {twice.id!r}; ids must be unique",
            field="id",
            feature_id=twice.id,
        )


def pairs_of(version: DataFrame, given: DataFrame, *, complete: bool) -> DataFrame:
    """Pair the features of the version (`STATE` and `BEFORE`) with those of the files.

    Pairs that are certainly equal are omitted. So are features that are missing in the files,
    unless the files are complete.
    """
    old = version.select("id", *(f.col(name).alias(f"old_{name}") for name in (*STATE, *BEFORE)))
    new = given.select(
        "id",
        *(f.col(name).alias(f"new_{name}") for name in (*BEFORE, "geometry")),
        _document().alias("new_feature"),
        f.lit(None).cast("string").alias("new_uuid"),
    )
    pairs = old.join(new, "id", "full_outer" if complete else "right_outer")
    return pairs.where(~_is_same()).select(
        "id", *(f"{side}_{name}" for side in ("old", "new") for name in STATE)
    )


def _is_same() -> Column:
    """Test whether the features of a pair are certainly equal.

    JSON is compared as text with sorted members. Equal texts have equal values, but equal values
    may have different texts, because of the notation of numbers.
    """
    both = f.col("old_feature").isNotNull() & f.col("new_feature").isNotNull()
    same = both & f.col("old_geometry").eqNullSafe(f.col("new_geometry"))
    for name in ("properties", "members"):
        texts = [
            f.to_json(f.try_parse_json(f.coalesce(f.col(f"{side}_{name}"), f.lit("{}"))))
            for side in ("old", "new")
        ]
        # JSON that Spark cannot parse is null here, and was not compared.
        same &= f.coalesce(texts[0] == texts[1], f.lit(False))
    tags, crid = f.col("new_tags"), f.col("new_crid")
    same &= tags.isNull() | f.array_sort(tags).eqNullSafe(f.array_sort("old_tags"))
    return same & (crid.isNull() | crid.eqNullSafe(f.col("old_crid")))


def _document() -> Column:
    """Build the JSON of a feature without geometry from columns of `naksha.spi.arrow.INPUT`."""
    properties = f.coalesce("properties", f.lit("{}"))
    given = f.to_json(f.struct("tags", "crid"))
    own = f.when(f.col("tags").isNotNull() | f.col("crid").isNotNull(), given)
    inside = _inside(properties)
    comma = f.when(inside == "", f.lit("")).otherwise(f.lit(","))
    spliced = f.concat(f.lit("{"), inside, comma, f.lit(f'"{XYZ}":'), own, f.lit("}"))
    members = _inside(f.coalesce("members", f.lit("{}")))
    rest = f.when(members == "", f.lit("")).otherwise(f.concat(f.lit(","), members))
    return f.concat(
        f.lit('{"type":"Feature",'),
        f.coalesce(f.concat(_inside(f.to_json(f.struct("id"))), f.lit(",")), f.lit("")),
        f.lit('"properties":'),
        f.coalesce(spliced, properties),
        rest,
        f.lit("}"),
    )


def _inside(text: Column) -> Column:
    """Extract the text between the braces of a JSON object."""
    bare = f.trim(text)
    whole = f.substring(bare, f.lit(2), f.length(bare) - 2)
    return f.when(text.rlike(_EMPTY), f.lit("")).otherwise(whole)

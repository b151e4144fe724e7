"""Features of files beside those of a version, as a load would bring them: for a comparison."""

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
from naksha.spark.jobs.loading.check import REJECTED, Checker
from naksha.spark.jobs.state_pairs import STATE
from naksha.spi.arrow import GIVEN

BEFORE: Final = ("properties", "members", "tags", "crid")
"""Columns of the version that tell quickly whether a feature is the same."""
_READ: Final = pa.schema([*GIVEN, *(field for field in REJECTED if field.name not in GIVEN.names)])
READ_ROWS: Final[StructType] = from_arrow_schema(_READ)
"""What `Reading` gives: features, and records that are none, which have a `reason`."""
_EMPTY: Final = r"^\s*\{\s*\}\s*$"


class Reading(msgspec.Struct, frozen=True):
    """What a task does: tells the features among records, as a load does."""

    checker: Checker

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
    """Features by the ids that a storage gives them."""
    if prefix is None:
        return given
    cut = f.substring("id", f.lit(len(prefix) + 1), f.length("id"))
    bare = f.when(f.col("id").startswith(prefix), cut).otherwise(f.col("id"))
    return given.withColumn("id", bare)


def check_unique(given: DataFrame) -> None:
    """Refuse ids that are there twice, as a load does."""
    ids = given.where(f.col("id").isNotNull()).groupBy("id").count()
    twice = ids.where("count > 1").orderBy("id").first()
    if twice is not None:
        raise InvalidArgument("The feature is there twice", field="id", feature_id=twice.id)


def pairs_of(version: DataFrame, given: DataFrame, *, complete: bool) -> DataFrame:
    """Each feature in the version (`STATE` and `BEFORE`) and as it is given; those that are the
    same without a doubt are left out, and so are those that are not given, unless all are."""
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
    """Whether two are the same at first sight. Texts with their members in order are the same if
    the values are; the other way round it may be a matter of how numbers are written."""
    both = f.col("old_feature").isNotNull() & f.col("new_feature").isNotNull()
    same = both & f.col("old_geometry").eqNullSafe(f.col("new_geometry"))
    for name in ("properties", "members"):
        texts = [
            f.to_json(f.try_parse_json(f.coalesce(f.col(f"{side}_{name}"), f.lit("{}"))))
            for side in ("old", "new")
        ]
        # What Spark cannot parse is null, and nobody has compared it.
        same &= f.coalesce(texts[0] == texts[1], f.lit(False))
    tags, crid = f.col("new_tags"), f.col("new_crid")
    same &= tags.isNull() | f.array_sort(tags).eqNullSafe(f.array_sort("old_tags"))
    return same & (crid.isNull() | crid.eqNullSafe(f.col("old_crid")))


def _document() -> Column:
    """A feature without geometry as JSON, out of the columns of `naksha.spi.arrow.GIVEN`."""
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
    """What is between the braces of an object."""
    bare = f.trim(text)
    whole = f.substring(bare, f.lit(2), f.length(bare) - 2)
    return f.when(text.rlike(_EMPTY), f.lit("")).otherwise(whole)

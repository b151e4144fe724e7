"""Features that are no part of a storage, and what a storage would make of them: to be compared
with a version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model.errors import InvalidArgument
from naksha.model.state import XYZ
from naksha.spark.jobs.comparing import STATE
from naksha.spark.jobs.export import ABOUT, About, Properties
from naksha.spark.jobs.load import records_of
from naksha.spark.jobs.loading.files import files_of, format_of
from naksha.spark.jobs.loading.shapes import shapes_of
from naksha.spark.jobs.loading.spec import Format, Load
from naksha.spi.arrow import GIVEN

BEFORE: Final = ("properties", "members", "tags", "crid")
"""Columns of the version that tell quickly whether a feature is the same."""
_WHERE: Final = [
    pa.field("source", pa.string()),
    pa.field("line", pa.int64()),
    pa.field("problem", pa.string()),
]
_EXTERNAL: Final = pa.schema([*GIVEN, *_WHERE])
_EMPTY: Final = r"^\s*\{\s*\}\s*$"


def of_files(spark: SparkSession, load: Load) -> DataFrame:
    """The features of files, as `naksha.spi.arrow.GIVEN`, with where each is from, and what is
    wrong with those that are none. They are read as a load would; what an export wrote is known."""
    files = files_of(load)
    if format_of(load, files) is Format.PARQUET and _is_export(files[0]):
        rows = spark.read.parquet(*files)
        return rows.select(
            *GIVEN.names,
            f.col("_metadata.file_path").alias("source"),
            (f.col("_metadata.row_index") + 1).alias("line"),
            f.lit(None).cast("string").alias("problem"),
        )
    records, crs = records_of(spark, load, files)
    shaper = _Shaper(load.mapping.crs or crs)
    return records.mapInArrow(shaper, from_arrow_schema(_EXTERNAL))


def of_table(rows: DataFrame) -> DataFrame:
    """The same for a table that has some columns of `naksha.spi.arrow.GIVEN`; `id` among them."""
    if "id" not in rows.columns:
        raise InvalidArgument("The table has no column 'id'", field="id")
    types = from_arrow_schema(_EXTERNAL)
    return rows.select(
        *(
            (f.col(field.name) if field.name in rows.columns else f.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in types
        )
    )


def _is_export(path: str) -> bool:
    text = (pq.read_metadata(path).metadata or {}).get(ABOUT.encode())
    return text is not None and msgspec.json.decode(text, type=About).properties is Properties.JSON


class _Shaper:
    """A task: makes geometries of whatever they come as."""

    def __init__(self, crs: str | None) -> None:
        self._crs = crs

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            shapes = shapes_of(batch, self._crs)
            problems = batch.column("problem").to_pylist()
            for n, problem in shapes.problems.items():
                problems[n] = problems[n] or problem
            made = {"geometry": pa.array(shapes.wkb), "problem": pa.array(problems)}
            columns = [
                made[name] if name in made else batch.column(name) for name in _EXTERNAL.names
            ]
            arrays = [c.cast(field.type) for c, field in zip(columns, _EXTERNAL, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_EXTERNAL)


def check(given: DataFrame) -> None:
    """Whether each of them can be told from others: what is wrong is told of the first one."""
    nameless = f.when(f.col("id").isNull(), f.lit("it has no id"))
    wrong = given.select("source", "line", f.coalesce("problem", nameless).alias("problem"))
    first = wrong.where(f.col("problem").isNotNull()).orderBy("source", "line").first()
    if first is not None:
        where = "" if first.source is None else f"{first.source}, record {first.line}: "
        raise InvalidArgument(f"{where}{first.problem}", field="files")
    twice = given.groupBy("id").count().where("count > 1").orderBy("id").first()
    if twice is not None:
        raise InvalidArgument(
            f"{twice['count']} records have the same id", field="files", feature_id=twice.id
        )


def pairs_of(version: DataFrame, given: DataFrame, *, complete: bool) -> DataFrame:
    """Each feature in the version (`STATE` and `BEFORE`) and as it is given; those that are the
    same without a doubt are left out, and so are those that are not given, unless all are."""
    old = version.select("id", *(f.col(name).alias(f"old_{name}") for name in (*STATE, *BEFORE)))
    new = given.select(
        "id",
        *(f.col(name).alias(f"new_{name}") for name in (*BEFORE, "geometry")),
        document().alias("new_feature"),
        *(f.lit(None).cast("string").alias(f"new_{name}") for name in ("uuid", "puuid")),
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
        same &= texts[0].eqNullSafe(texts[1])
    tags, crid = f.col("new_tags"), f.col("new_crid")
    same &= tags.isNull() | f.array_sort(tags).eqNullSafe(f.array_sort("old_tags"))
    return same & (crid.isNull() | crid.eqNullSafe(f.col("old_crid")))


def document() -> Column:
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
        _inside(f.to_json(f.struct("id"))),
        f.lit(',"properties":'),
        f.coalesce(spliced, properties),
        rest,
        f.lit("}"),
    )


def _inside(text: Column) -> Column:
    """What is between the braces of an object."""
    bare = f.trim(text)
    whole = f.substring(bare, f.lit(2), f.length(bare) - 2)
    return f.when(text.rlike(_EMPTY), f.lit("")).otherwise(whole)

"""Conversion of table rows and GeoJSON properties to records, according to a mapping.

It uses Spark's own functions, so that rows are not processed one by one in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
)

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.geojson import EXACT_MAX
from naksha.spark.jobs.loading.layouts import check_required, geometry_of
from naksha.spark.jobs.loading.spec import Mapping
from naksha.spark.jobs.loading.tables import (
    LINE,
    OWN,
    PROBLEM,
    RECORD,
    SOURCE,
    Table,
    column_of,
)
from naksha.spark.source.json_numbers import INFINITE, is_infinite, without_nan
from naksha.spark.source.times import with_texts_of_times
from naksha.spi.arrow import INPUT

_ID: Final = "id"
_FLOATING: Final = (FloatType, DoubleType)
_EXACT_FLOAT_MAX: Final = 2**24 - 1
"""Like `EXACT_MAX`, for floats with single precision."""
_NO_OBJECT: Final = "properties must be a JSON object with unique names"
_WKB_NAMES: Final = ("geometry", "geom", "wkb", "wkb_geometry")
_TEXT_NAMES: Final = ("wkt", "geometry", "geom", "geometry_wkt", "wkb", "wkb_geometry")
"""Names of columns with WKT, or with WKB in hexadecimal digits."""
_LON_NAMES: Final = ("lon", "lng", "long", "longitude", "x")
_LAT_NAMES: Final = ("lat", "latitude", "y")


class _GeometryColumns(msgspec.Struct, frozen=True):
    wkb: str | None = None
    wkt: str | None = None
    lon: str | None = None
    lat: str | None = None

    @property
    def columns(self) -> set[str]:
        return {each for each in (self.wkb, self.wkt, self.lon, self.lat) if each is not None}


def records_of_table(table: Table, mapping: Mapping) -> DataFrame:
    """Convert a table to records like those of GeoJSON, plus WKT, longitude and latitude."""
    rows = table.rows
    columns = [name for name in rows.columns if name not in OWN]
    _check_names(mapping, columns)
    _check_types(mapping, rows, lambda name, to: column_of(name).try_cast(to))
    places = _geometry_columns(table, columns, mapping)
    id_name = mapping.id or _find(columns, (_ID,))
    check_required(table.layouts, places.columns | ({id_name} if id_name is not None else set()))
    used = places.columns | {name for name in (id_name, mapping.tags) if name is not None}
    left = [name for name in columns if name not in used]
    casts = {name: column_of(name).try_cast(to) for name, to in mapping.types.items()}
    members = _members(rows, left, mapping, casts)
    problem = F.coalesce(
        column_of(PROBLEM),
        *_cast_problems(casts | _numbers(places)),
        *_number_problems(rows, members),
        *_id_number_problems(rows.schema, id_name),
    )
    # Only for rows with a problem; problems found later are reported with the feature.
    record = F.when(problem.isNotNull(), _row(rows.schema, columns))
    return rows.select(
        column_of(SOURCE).alias("source"),
        column_of(LINE).alias("line"),
        _id_of(rows.schema, id_name).alias("id"),
        _maybe(places.wkb, "binary").alias("geometry"),
        _properties(rows, mapping, members).alias("properties"),
        F.lit(None).cast("string").alias("members"),
        _tags(rows.schema, mapping.tags).alias("tags"),
        F.lit(None).cast("string").alias("crid"),
        F.lit(False).alias("adjusted"),
        problem.alias("problem"),
        F.coalesce(column_of(RECORD), record).alias("record"),
        _maybe(places.wkt, "string").alias("wkt"),
        _number(places.lon).alias("lon"),
        _number(places.lat).alias("lat"),
    )


def records_of_features(table: Table) -> DataFrame:
    """Convert a table with the columns of `naksha.spi.arrow.INPUT` to records."""
    own = {"source": column_of(SOURCE), "line": column_of(LINE), "problem": column_of(PROBLEM)}
    nothing = {"record": "string", "wkt": "string", "lon": "double", "lat": "double"}
    return table.rows.select(
        *INPUT.names,
        *(column.alias(name) for name, column in own.items()),
        # They were exported by Naksha, and must not be changed.
        F.lit(None).cast("boolean").alias("adjusted"),
        *(F.lit(None).cast(type_).alias(name) for name, type_ in nothing.items()),
    )


def mapped_features(records: DataFrame, mapping: Mapping) -> DataFrame:
    """Apply a mapping to the properties of GeoJSON records."""
    nowhere = [
        F.lit(None).cast("string").alias("wkt"),
        F.lit(None).cast("double").alias("lon"),
        F.lit(None).cast("double").alias("lat"),
    ]
    if mapping.lon or mapping.lat or mapping.geometry:
        raise InvalidArgument(
            "GeoJSON files have their own geometry; remove geometry, lon and lat from the mapping",
            field="mapping",
        )
    if mapping == Mapping(crs=mapping.crs):
        return records.select(*records.columns, *nowhere)
    _check_renames(mapping)
    _check_types(mapping, records, lambda _, to: _read(F.parse_json(F.lit("null")), to))
    parsed = F.try_parse_json(F.coalesce("properties", F.lit("{}")))
    members = F.try_variant_get(parsed, "$", "map<string,variant>")
    casts = {
        name: _number_of_json(records, _read(members[name], to))
        for name, to in mapping.types.items()
    }
    problem = F.coalesce(
        F.col("problem"),
        F.when(members.isNull(), F.lit(_NO_OBJECT)),
        *_id_problems(members, mapping.id),
        *_tags_problems(members, mapping.tags),
        *_rename_problems(members, mapping),
        *_member_problems(members, casts),
    )
    given = {
        "id": F.coalesce(_id_in(members[mapping.id]), "id") if mapping.id else F.col("id"),
        # Rejected records keep their original properties.
        "properties": F.when(problem.isNull(), _changed(members, mapping, casts)).otherwise(
            F.col("properties")
        ),
        "tags": _tags_in(members[mapping.tags]) if mapping.tags else F.col("tags"),
        "problem": problem,
    }
    columns = [given.get(name, F.col(name)).alias(name) for name in records.columns]
    return records.select(*columns, *nowhere)


# ---- Tables --------------------------------------------------------------------------------------


def _geometry_columns(table: Table, columns: Sequence[str], mapping: Mapping) -> _GeometryColumns:
    if mapping.lon is not None or mapping.lat is not None:
        if mapping.lon is None or mapping.lat is None:
            raise InvalidArgument(
                f"The mapping has only {'lon' if mapping.lat is None else 'lat'}; set both lon and"
                " lat, or neither",
                field="mapping",
            )
        return _GeometryColumns(lon=mapping.lon, lat=mapping.lat)
    schema = table.rows.schema
    named = mapping.geometry or geometry_of(table.layouts)
    if named is not None:
        is_text = isinstance(schema[named].dataType, StringType)
        return _GeometryColumns(wkt=named) if is_text else _GeometryColumns(wkb=named)
    binary = [name for name in columns if isinstance(schema[name].dataType, BinaryType)]
    texts = [name for name in columns if isinstance(schema[name].dataType, StringType)]
    wkb, wkt = _find(binary, _WKB_NAMES), _find(texts, _TEXT_NAMES)
    lon, lat = _find(columns, _LON_NAMES), _find(columns, _LAT_NAMES)
    if wkb is not None:
        return _GeometryColumns(wkb=wkb)
    if wkt is not None:
        return _GeometryColumns(wkt=wkt)
    return _GeometryColumns() if lon is None or lat is None else _GeometryColumns(lon=lon, lat=lat)


def _check_names(mapping: Mapping, columns: Sequence[str]) -> None:
    named = [mapping.id, mapping.geometry, mapping.lon, mapping.lat, mapping.tags]
    named += [*mapping.rename, *(mapping.keep or ()), *mapping.drop, *mapping.types]
    unknown = [name for name in named if name is not None and name not in columns]
    if unknown:
        raise InvalidArgument(
            f"Unknown column {unknown[0]!r} in the mapping; columns: {', '.join(columns)}",
            field="mapping",
        )


def _check_types(mapping: Mapping, rows: DataFrame, cast: Callable[[str, str], Column]) -> None:
    """Reject types that Spark does not know, or that a column cannot be cast to."""
    for name, to in mapping.types.items():
        try:
            _ = rows.select(cast(name, to)).schema
        except AnalysisException as error:
            raise InvalidArgument(
                f"The mapping gives column {name!r} the type {to!r:.64}, which Spark does not "
                "know or cannot convert the column to; use a type such as int, double or "
                "timestamp",
                field=f"mapping.types.{name}",
            ) from error


def _find(columns: Sequence[str], names: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def _members(
    rows: DataFrame, left: Sequence[str], mapping: Mapping, casts: dict[str, Column]
) -> dict[str, Column]:
    """Return the columns that become properties, by their names."""
    _check_renames(mapping)
    kept = [name for name in left if _stays(mapping, name)]
    _check_distinct(kept, mapping)
    return {name: casts.get(name, column_of(name)) for name in kept}


def _types(rows: DataFrame, values: dict[str, Column]) -> list[tuple[str, Column, DataType]]:
    schema = rows.select(*(value.alias(name) for name, value in values.items())).schema
    return [
        (name, value, field.dataType)
        for (name, value), field in zip(values.items(), schema, strict=True)
    ]


def _number_problems(rows: DataFrame, values: dict[str, Column]) -> list[Column]:
    found = [(name, is_infinite(value, type_)) for name, value, type_ in _types(rows, values)]
    return [F.when(test, F.lit(f"{name}: {INFINITE}")) for name, test in found if test is not None]


def _properties(rows: DataFrame, mapping: Mapping, values: dict[str, Column]) -> Column:
    members = [
        with_texts_of_times(without_nan(value, type_), type_).alias(mapping.rename.get(name, name))
        for name, value, type_ in _types(rows, values)
    ]
    members += [
        F.parse_json(F.lit(msgspec.json.encode(value).decode())).alias(name)
        for name, value in mapping.constants.items()
    ]
    if not members:
        return F.lit("{}")
    return F.to_json(F.struct(*members), {"ignoreNullFields": "false"})


def _stays(mapping: Mapping, name: str) -> bool:
    """Whether a column becomes a property, possibly with another name."""
    if name in (*mapping.drop, mapping.id, mapping.tags):
        return False
    if mapping.keep is not None and name not in mapping.keep:
        return False
    return name in mapping.rename or name not in mapping.constants


def _check_renames(mapping: Mapping) -> None:
    for name, new in mapping.rename.items():
        if new in mapping.constants and _stays(mapping, name):
            raise InvalidArgument(
                f"The column {name!r} cannot be renamed to {new!r}, which is a constant of the"
                " mapping; use another name",
                field="mapping.rename",
            )


def _check_distinct(names: Sequence[str], mapping: Mapping) -> None:
    """Reject columns that would become properties of the same name."""
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda each: each in mapping.rename):
        new = mapping.rename.get(name, name)
        if found.setdefault(new, name) != name:
            raise InvalidArgument(
                f"The columns {found[new]!r} and {name!r} would both become the property {new!r};"
                " rename or drop one of them",
                field="mapping.rename",
            )


def _cast_problems(casts: dict[str, Column]) -> list[Column]:
    return [
        F.when(
            column_of(name).isNotNull() & cast.isNull(),
            F.concat(F.lit(f"{name}: cannot be read as the requested type: "), _text(name)),
        )
        for name, cast in casts.items()
    ]


def _tags(schema: StructType, name: str | None) -> Column:
    if name is None:
        return F.lit(None).cast("array<string>")
    if isinstance(schema[name].dataType, ArrayType):
        return column_of(name).cast("array<string>")
    return _split(_text(name))


def _split(text: Column) -> Column:
    # Spark would also pass the index to F.trim itself.
    words = F.transform(F.split(text, "[,;]"), lambda word: F.trim(word))  # noqa: PLW0108
    return F.filter(words, lambda word: word != "")


def _text(name: str | None) -> Column:
    return _maybe(name, "string")


def _maybe(name: str | None, type_: str) -> Column:
    return F.lit(None).cast(type_) if name is None else column_of(name).cast(type_)


def _id_of(schema: StructType, name: str | None) -> Column:
    """Convert the column with ids to strings.

    Some programs store integers as floats if values are missing, which are NaN then.
    """
    if name is None or not isinstance(schema[name].dataType, _FLOATING):
        return _text(name)
    return F.when(~F.isnan(column_of(name)), column_of(name).try_cast("bigint").cast("string"))


def _id_number_problems(schema: StructType, name: str | None) -> list[Column]:
    """Return the problem of an id that is not an integer, or too large to be exact."""
    type_ = None if name is None else schema[name].dataType
    if name is None or not isinstance(type_, _FLOATING):
        return []
    number = column_of(name).cast("double")
    exact_max = EXACT_MAX if isinstance(type_, DoubleType) else _EXACT_FLOAT_MAX
    is_exact = (number == F.rint(number)) & (F.abs(number) <= exact_max)
    message = F.concat(F.lit(f"{name} is not an exact integer: "), number.cast("string"))
    return [F.when(~F.isnan(number) & ~is_exact, F.concat(message, F.lit("; use a string")))]


def _number(name: str | None) -> Column:
    return F.lit(None).cast("double") if name is None else column_of(name).try_cast("double")


def _numbers(places: _GeometryColumns) -> dict[str, Column]:
    return {name: _number(name) for name in (places.lon, places.lat) if name is not None}


def _row(schema: StructType, columns: Sequence[str]) -> Column:
    """Format a row for users, with WKB in hexadecimal digits."""
    shown = [
        F.hex(column_of(name)).alias(name)
        if isinstance(schema[name].dataType, BinaryType)
        else column_of(name)
        for name in columns
    ]
    return F.to_json(F.struct(*shown)) if shown else F.lit("{}")


# ---- GeoJSON -------------------------------------------------------------------------------------


def _read(member: Column, type_: str) -> Column:
    """Read a member of the properties as a type; null if it does not fit.

    The member is not selected by a path, because a path cannot express some names.
    """
    return F.try_variant_get(member, "$", type_)


def _id_in(member: Column) -> Column:
    """Convert a member to an id like GeoJSON's own: a number to a string, `1e3` to `1000`."""
    integer = _read(member, "bigint")
    is_whole = integer.cast("double") == _read(member, "double")
    is_double = F.schema_of_variant(member) == "DOUBLE"
    return F.when(is_double & is_whole, integer.cast("string")).otherwise(_read(member, "string"))


def _id_problems(members: Column, name: str | None) -> list[Column]:
    if name is None:
        return []
    kind, number = F.schema_of_variant(members[name]), _read(members[name], "double")
    return [
        F.when(
            kind.rlike("^(OBJECT|ARRAY|BOOLEAN)"),
            F.lit(f"properties.{name}: an id must be a string or a number"),
        ),
        F.when(
            (kind == "DOUBLE") & (F.abs(number) > EXACT_MAX),
            F.lit(f"properties.{name} is too large for a number and must be a string"),
        ),
    ]


def _tags_in(member: Column) -> Column:
    return F.coalesce(_read(member, "array<string>"), _split(_read(member, "string")))


def _tags_problems(members: Column, name: str | None) -> list[Column]:
    if name is None:
        return []
    is_wrong = F.schema_of_variant(members[name]).rlike("^(OBJECT|BOOLEAN)")
    return [F.when(is_wrong, F.lit(f"properties.{name}: tags must be an array or a string"))]


def _changed(members: Column, mapping: Mapping, casts: dict[str, Column]) -> Column:
    """Apply the mapping to properties: omit, rename and cast members, and encode them as JSON."""
    names = {
        mapping.rename.get(name, name): cast
        for name, cast in casts.items()
        if _stays(mapping, name)
    }
    replaced = mapping.constants.keys() - mapping.rename.keys()
    gone = {*mapping.drop, *casts, *replaced, mapping.id, mapping.tags} - {None}
    if gone:
        members = F.map_filter(members, lambda key, _: ~key.isin(*gone))
    if mapping.keep is not None:
        wanted = mapping.keep
        members = F.map_filter(members, lambda key, _: key.isin(*wanted))
    if mapping.rename:
        others = F.create_map(*(F.lit(each) for pair in mapping.rename.items() for each in pair))
        members = F.transform_keys(members, lambda key, _: F.coalesce(others[key], key))
    more = [(F.lit(name), cast.cast("variant")) for name, cast in names.items()]
    more += [
        (F.lit(name), F.parse_json(F.lit(msgspec.json.encode(value).decode())))
        for name, value in mapping.constants.items()
    ]
    if more:
        added = F.create_map(*(each for pair in more for each in pair))
        # The cast of a missing property is null, and must not add a member.
        members = F.map_concat(members, F.map_filter(added, lambda _, value: value.isNotNull()))
    return F.to_json(members)


def _rename_problems(members: Column, mapping: Mapping) -> list[Column]:
    """Return the problems of features with two properties that would get the same name."""
    problems = []
    renamed = {name: new for name, new in mapping.rename.items() if _stays(mapping, name)}
    for name, new in renamed.items():
        twins = {twin for twin, its in renamed.items() if its == new and twin != name}
        if new not in mapping.rename and _stays(mapping, new):
            twins.add(new)
        for twin in sorted(twins):
            both = F.map_contains_key(members, name) & F.map_contains_key(members, twin)
            message = f"properties.{name}: cannot be renamed to {new!r}, which already exists"
            problems.append(F.when(both, F.lit(message)))
    return problems


def _number_of_json(records: DataFrame, cast: Column) -> Column:
    """Replace numbers that JSON cannot represent, cast from strings like `Infinity`, by null."""
    ((_, _, type_),) = _types(records, {"cast": cast})
    infinite = is_infinite(cast, type_)
    return cast if infinite is None else F.when(~infinite, without_nan(cast, type_))


def _member_problems(members: Column, casts: dict[str, Column]) -> list[Column]:
    return [
        F.when(
            members[name].isNotNull() & ~F.is_variant_null(members[name]) & cast.isNull(),
            F.concat(
                F.lit(f"properties.{name}: cannot be read as the requested type: "),
                F.to_json(members[name]),
            ),
        )
        for name, cast in casts.items()
    ]

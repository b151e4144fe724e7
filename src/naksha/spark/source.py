"""The data source `naksha`: features of a collection at a version, as a table."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from naksha.spark.columns import CHANGES, READ, schema_of
from naksha.spark.read_options import STARTING, geometry_form, read_options, stream_options
from naksha.spark.reading import FeatureReader
from naksha.spark.streaming import ChangeReader
from naksha.spark.write_options import write_options
from naksha.spark.writing import FeatureStreamWriter, FeatureWriter


class NakshaSource(DataSource):
    """`spark.read.format("naksha")`, with options `storage`, `collection` and `version`."""

    @classmethod
    def name(cls) -> str:
        return "naksha"

    def schema(self) -> StructType:
        """Nobody tells whether it is a stream; but streams say where they start."""
        names = CHANGES if STARTING in self.options else READ
        return schema_of(names, geometry_form(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return FeatureReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ChangeReader(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FeatureWriter(write_options(self.options, overwrite=overwrite), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = write_options(self.options, overwrite=overwrite)
        return FeatureStreamWriter(options, schema, self.options.get("job"))

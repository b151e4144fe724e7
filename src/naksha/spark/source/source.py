"""The data source `naksha`: features of a collection at a version, as a table."""

from __future__ import annotations

import contextlib
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from naksha.model.errors import NakshaError
from naksha.spark.source.columns import CHANGES, READ, schema_in, schema_of
from naksha.spark.source.read import FeatureReader, Fixed, fixed
from naksha.spark.source.read_options import (
    COLUMNS,
    geometry_form,
    is_of_stream,
    read_options,
    stream_options,
)
from naksha.spark.source.stream import ChangeReader
from naksha.spark.source.write import FeatureStreamWriter, FeatureWriter
from naksha.spark.source.write_options import write_options


class NakshaSource(DataSource):
    """`spark.read.format("naksha")`, with options `storage`, `collection` and `version`.

    Spark makes one for each table, and pickles it; whoever plans a scan of the table, with filters
    or without, gets what was pickled. So the version that it has then is that of all scans: HEAD
    may be another one at each. It is made by `load()`, which asks for the schema; only when
    somebody has given one, by the first plan."""

    _fixed: Fixed | None = None

    @classmethod
    def name(cls) -> str:
        return "naksha"

    def schema(self) -> StructType:
        """Nobody tells whether it is a stream; but streams say where they start."""
        form = geometry_form(self.options)
        if is_of_stream(self.options):
            return schema_of(CHANGES, form)
        self._version()
        if COLUMNS in self.options:
            return schema_in(self.options[COLUMNS])
        return schema_of(READ, form)

    def __getstate__(self) -> dict[str, Any]:
        if not is_of_stream(self.options):
            # What is wrong is told by the reader: nobody understands errors of pickling.
            with contextlib.suppress(NakshaError):
                self._version()
        return self.__dict__

    def _version(self) -> Fixed:
        if self._fixed is None:
            self._fixed = fixed(read_options(self.options))
        return self._fixed

    def reader(self, schema: StructType) -> DataSourceReader:
        return FeatureReader(read_options(self.options), schema, self._version())

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        return ChangeReader(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FeatureWriter(write_options(self.options, overwrite=overwrite), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = write_options(self.options, overwrite=overwrite, is_stream=True)
        return FeatureStreamWriter(options, schema, self.options.get("job"))

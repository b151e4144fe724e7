"""Data source `naksha`: the features of a collection at a version as a table."""

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
from naksha.spark.source.read import FeatureReader, ResolvedVersion, resolved_version
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
    """Data source of `spark.read.format("naksha")`.

    Its main options are `storage`, `collection` and `version`.

    Spark creates and pickles one object per table and plans every scan with the pickled object. So
    all scans read the version that was resolved before pickling, though HEAD may move between
    them. It is resolved by `load()`, which asks for the schema; if the caller provides a schema, by
    the first plan.
    """

    _fixed: ResolvedVersion | None = None

    @classmethod
    def name(cls) -> str:
        return "naksha"

    def schema(self) -> StructType:
        """Return the schema of a table or a stream; the options of a stream have a start."""
        form = geometry_form(self.options)
        if is_of_stream(self.options):
            return schema_of(CHANGES, form)
        self._version()
        if COLUMNS in self.options:
            return schema_in(self.options[COLUMNS])
        return schema_of(READ, form)

    def __getstate__(self) -> dict[str, Any]:
        if not is_of_stream(self.options):
            # The reader raises the error again; an error of pickling would be hard to understand.
            with contextlib.suppress(NakshaError):
                self._version()
        return self.__dict__

    def _version(self) -> ResolvedVersion:
        if self._fixed is None:
            self._fixed = resolved_version(read_options(self.options))
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
